"""What a read takes of messages: its options, and the settings of a scan that obeys them."""

from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from mqstore.changes.settings import ChangeOptions
from mqstore.codec.compression import MAX_DECOMPRESSED_BYTES
from mqstore.options import grammar
from mqstore.options.option import one_of, option, options_of
from mqstore.read.sql.filter import parse_sql
from mqstore.read.tags import check_tags

BATCH_ROWS: Final = 50_000
BATCH_BYTES: Final = 8 << 20
FIRST_BATCH_ROWS: Final = 1_000
MAX_BATCH_ROWS: Final = 1_000_000
# A column of a batch must stay below 2 GiB: the bodies stored plain, the decompressed ones and
# one more body.
MAX_BATCH_BYTES: Final = 256 << 20
MAX_BODY_BYTES: Final = 1 << 30


def _tags(name: str, text: str) -> str:
    check_tags(text, option=name)
    return text


def _sql(name: str, text: str) -> str:
    parse_sql(text, option=name)
    return text


_batch_rows = partial(grammar.count, high=MAX_BATCH_ROWS)
_batch_bytes = partial(grammar.size, high=MAX_BATCH_BYTES)
_body_bytes = partial(grammar.size, high=MAX_BODY_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions(ChangeOptions):
    """The options that say which messages pass, and what to do with a broken one.

    ``tags`` is a tag expression, ``sql`` one of SQL92 (None: all pass); ``keys`` and ``msg_ids``
    pass a message that has any of them (empty: all pass). ``on_corrupt`` is ``fail``, ``skip`` or
    ``rescue``.
    """

    tags: str = option("tags", _tags, "*", alias="subExpression")
    sql: str | None = option("sql", _sql)
    keys: tuple[str, ...] = option("keys", grammar.names, ())
    msg_ids: tuple[str, ...] = option("msgIds", grammar.names, ())
    fail_on_data_loss: bool = option("failOnDataLoss", grammar.boolean, True)
    on_corrupt: str = option("onCorrupt", one_of(*grammar.ON_CORRUPT), "fail")
    verify_crc: bool = option("verifyCrc", grammar.boolean, True)
    decompress: bool = option("decompress", grammar.boolean, True)
    max_decompressed_bytes: int = option(
        "maxDecompressedBytes", _body_bytes, MAX_DECOMPRESSED_BYTES
    )
    read_mode: str = option("readMode", one_of("mmap", "pread"), "pread")
    batch_rows: int = option("batchRows", _batch_rows, BATCH_ROWS)
    batch_bytes: int = option("batchBytes", _batch_bytes, BATCH_BYTES)


@dataclass(frozen=True, slots=True)
class ScanSettings(ScanOptions):
    """The settings of a scan, beside its slices: plain values that travel into tasks.

    The first batch has at most ``first_rows`` rows, so that a look at a few is cheap.
    ``merged``: slices are read together, in the order of the log, which costs less than one after
    the other.
    """

    columns: tuple[str, ...]
    first_rows: int = FIRST_BATCH_ROWS
    merged: bool = False

    @classmethod
    def of(cls, options: ScanOptions, columns: tuple[str, ...], *, merged: bool = False) -> Self:
        """Return the settings of a scan that obeys ``options``."""
        values = {field: getattr(options, field) for field in options_of(ScanOptions)}
        return cls(columns, merged=merged, **values)
