"""Offset maps in files: ``FORMAT:DIR``, as ``mqlog replay --offset-map`` and its job write them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from mqstore.audit.relation import MAP_OPTION, OffsetRelation, relation_of
from mqstore.codec.offset_map import OFFSET_MAP
from mqstore.errors import InvalidOptionError
from mqstore.options import store_paths

MAP_FORMATS: Final = ("parquet", "csv", "json")
_MAP_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class MapPlace:
    """A directory with the files of an offset map, and their format."""

    format: str
    directory: str

    @classmethod
    def of(cls, option: str, text: str) -> "MapPlace":
        """Return the place of ``FORMAT:DIR``, as an option gives it. Raises InvalidOptionError."""
        kind, colon, where = text.partition(":")
        if not colon or not where or kind not in MAP_FORMATS:
            forms = ", ".join(f"{name}:DIR" for name in MAP_FORMATS)
            raise InvalidOptionError(option, text, f"write {forms}")
        return cls(kind, where)

    @classmethod
    def here(cls, option: str, text: str) -> "MapPlace":
        """Return that of a directory of this machine. Raises InvalidOptionError."""
        found = cls.of(option, text)
        return cls(found.format, store_paths.absolute(option, found.directory))

    def relation(self) -> OffsetRelation:
        """Return the relation of the map. Raises InvalidOptionError where there is none."""
        found = relation_of(self._rows())
        if not found.sources:
            raise InvalidOptionError(MAP_OPTION, str(self), "has no message")
        return found

    def _rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the pieces of the map, as OFFSET_MAP."""
        import pyarrow.dataset as ds  # noqa: PLC0415 - reads start without it

        try:
            found = ds.dataset(self.directory, schema=OFFSET_MAP, format=self.format)
            if not found.files:
                raise FileNotFoundError(f"no file is in {self.directory}")
            yield from found.to_batches(batch_size=_MAP_ROWS)
        except (OSError, pa.ArrowException) as error:
            reason = f"is no offset map that can be read: {error}"
            raise InvalidOptionError(MAP_OPTION, str(self), reason) from error

    def __str__(self) -> str:
        return f"{self.format}:{self.directory}"
