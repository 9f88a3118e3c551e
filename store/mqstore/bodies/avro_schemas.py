"""The schemas that bodies of Avro are written with, by id and by fingerprint, and the reader's."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mqstore.bodies import framing
from mqstore.bodies.avro_plain import check_resolves, plain_schema
from mqstore.bodies.avro_types import AvroType, parsed_schema, type_of
from mqstore.bodies.libraries import avro_library


@dataclass(frozen=True, slots=True)
class AvroWriter:
    """A schema that bodies are written with."""

    type: AvroType
    plain: Any
    fingerprint: bytes


class AvroSchemas:
    """The schemas of bodies: one, or several by their id, of which the greatest is the reader's."""

    def __init__(self, texts: Sequence[tuple[int | None, str]]) -> None:
        """``texts`` are schemas with their ids. Raises ValueError with the reason."""
        self.by_id: dict[int | None, AvroWriter] = {}
        for number, text in texts:
            try:
                self.by_id[number] = _writer(text)
            except ValueError as error:
                of = "" if number is None else f"{number}.avsc: "
                raise ValueError(f"{of}{error}") from None
        self.reader_id = max(self.by_id, key=lambda number: number or 0)
        self.reader = self.by_id[self.reader_id]
        for number, writer in self.by_id.items():
            try:
                check_resolves(writer.type, self.reader.type)
            except ValueError as error:
                raise ValueError(f"{number}.avsc and {self.reader_id}.avsc: {error}") from None

    @property
    def of_one(self) -> bool:
        """Whether there is one schema without an id."""
        return None in self.by_id

    def of_id(self, number: int) -> AvroWriter:
        """Return the schema of an id; one without an id is that of all. Raises ValueError."""
        writer = self.by_id.get(None if self.of_one else number)
        if writer is None:
            raise ValueError(f"{framing.UNKNOWN_SCHEMA}: id {number} is not in bodySchema")
        return writer

    def of_fingerprint(self, fingerprint: bytes) -> AvroWriter:
        """Return the schema with a fingerprint; raises ValueError."""
        for writer in self.by_id.values():
            if writer.fingerprint == fingerprint:
                return writer
        raise ValueError(
            f"{framing.UNKNOWN_SCHEMA}: fingerprint {fingerprint.hex()} is not in bodySchema"
        )


@lru_cache(maxsize=16)
def avro_schemas(texts: tuple[tuple[int | None, str], ...]) -> AvroSchemas:
    """Return schemas, made once; raises ValueError with the reason."""
    return AvroSchemas(texts)


def _writer(text: str) -> AvroWriter:
    parsed = parsed_schema(text)
    kind = type_of(parsed)
    module = avro_library().schema
    form = module.to_parsing_canonical_form(parsed)
    return AvroWriter(
        kind, plain_schema(parsed), bytes.fromhex(module.fingerprint(form, "CRC-64-AVRO"))
    )
