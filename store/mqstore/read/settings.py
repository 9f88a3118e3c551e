"""The settings of a scan, beside its slices: plain values that travel into tasks."""

from dataclasses import dataclass
from typing import Final

from mqstore.codec.compression import MAX_DECOMPRESSED_BYTES

BATCH_ROWS: Final = 50_000
BATCH_BYTES: Final = 8 * 1024 * 1024
FIRST_BATCH_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """What to read of each message and what to do with a broken one. Pickles into tasks.

    ``tags`` is a tag expression, ``sql`` one of SQL92 (None: all pass); ``keys`` and ``msg_ids``
    pass a message that has any of them (empty: all pass). ``on_corrupt`` is ``fail``, ``skip`` or
    ``rescue``. The first batch has at most ``first_rows`` rows, so that a look at a few is cheap.
    ``merged``: slices are read together, in the order of the log, which costs less than one after
    the other.
    """

    columns: tuple[str, ...]
    tags: str = "*"
    sql: str | None = None
    keys: tuple[str, ...] = ()
    msg_ids: tuple[str, ...] = ()
    on_corrupt: str = "fail"
    fail_on_data_loss: bool = True
    verify_crc: bool = True
    decompress: bool = True
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    read_mode: str = "pread"
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES
    first_rows: int = FIRST_BATCH_ROWS
    merged: bool = False
