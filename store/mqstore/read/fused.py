"""A chunk read by the compiled kernel in one pass, where there is one and the chunk is good.

Whatever is not good is left to numpy, which tells what is wrong: this module never judges.
"""

from collections.abc import Generator
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from mqstore.arrays import Int64s
from mqstore.codec.bodies import Plain, decompress_stored, with_plain
from mqstore.codec.kernels.columns import Decoded
from mqstore.codec.kernels.decode import Decoder
from mqstore.codec.kernels.library import library
from mqstore.codec.schema import message_schema
from mqstore.derive.records import RecordChecks, out_of_reach
from mqstore.errors import StoreError
from mqstore.files.log.commit_log import CommitLog, Scratch
from mqstore.read.log_order import UnitBatch
from mqstore.read.matching import RowFilter
from mqstore.read.settings import ScanSettings

Batches: TypeAlias = Generator[pa.RecordBatch, None, UnitBatch]

_BODIES: Final = ("body", "value")
_PACKED: Final = ("sysFlag", "body")  # What decompression needs.


class FusedDecode:
    """Reads the chunks of one scan; ``batches`` returns what it leaves to numpy."""

    def __init__(
        self, decoder: Decoder, log: CommitLog, settings: ScanSettings, *, plain: bool
    ) -> None:
        self._decoder = decoder
        self._log = log
        self._settings = settings
        self._plain = plain
        self._scratch = Scratch()

    @classmethod
    def of(
        cls,
        log: CommitLog,
        settings: ScanSettings,
        row_filter: RowFilter,
        *,
        check_crc: bool,
        plain: bool,
    ) -> "FusedDecode | None":
        """Return one for ``settings``, None without a compiled kernel.

        Raises InvalidOptionError where MQSTORE_KERNELS asks for a kernel that is not there.
        """
        found = library()
        if found is None:
            return None
        columns = {*settings.columns, *row_filter.columns, *(_PACKED if plain else ())}
        decoder = Decoder(found, columns, check_crc=check_crc)
        return cls(decoder, log, settings, plain=plain)

    def batches(self, chunk: UnitBatch, row_filter: RowFilter) -> Batches:
        """Yield the chunk's messages that pass the filter; return the rows that are left.

        Those are all of them, or the ones from the first batch on that has a body which does not
        decompress, or none.
        """
        try:
            decoded = self._decode(chunk)
            if decoded is None:
                return chunk
            batch = self._as_batch(decoded)
            mask = row_filter.matches(decoded.column)
        except (StoreError, OSError, pa.ArrowInvalid):
            return chunk
        rows = np.arange(len(chunk))
        packed = decoded if self._plain and decoded.any_compressed else None
        if mask is not None:
            rows, batch = rows[mask], batch.filter(pa.array(mask))
        if packed is None:
            yield batch
            return chunk.take(slice(0, 0))
        return (yield from self._decompressed(batch, packed, chunk, rows))

    def _decompressed(
        self, batch: pa.RecordBatch, decoded: Decoded, chunk: UnitBatch, rows: Int64s
    ) -> Batches:
        """Yield ``batch``, which has those rows of the chunk, with its bodies decompressed."""
        settings, start = self._settings, 0
        flags, bodies = decoded.column("sysFlag").to_numpy(), decoded.column("body")
        while start < len(rows):
            part = rows[start:]
            plain = decompress_stored(
                flags[part],
                partial(_body, bodies, part),
                settings.max_decompressed_bytes,
                settings.batch_bytes,
            )
            if plain.broken:
                return chunk.take(part)
            yield _with_bodies(batch.slice(start, plain.count), plain)
            start += plain.count
        return chunk.take(slice(0, 0))

    def _decode(self, chunk: UnitBatch) -> Decoded | None:
        places, sizes = chunk.physical_offsets, chunk.sizes
        if out_of_reach(self._log, places, sizes, RecordChecks(positions=chunk.source)):
            return None
        return self._decoder.decode(
            places, sizes, chunk.source, lambda: self._log.blocks(places, sizes, self._scratch)
        )

    def _as_batch(self, decoded: Decoded) -> pa.RecordBatch:
        columns = self._settings.columns
        arrays = [decoded.column(name) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=message_schema(columns))


def _body(bodies: pa.BinaryArray, rows: Int64s, place: int) -> bytes:
    body: bytes = bodies[int(rows[place])].as_py()
    return body


def _with_bodies(batch: pa.RecordBatch, plain: Plain) -> pa.RecordBatch:
    for place, name in enumerate(batch.schema.names):
        if name in _BODIES:
            field = batch.schema.field(place)
            batch = batch.set_column(place, field, with_plain(batch.column(place), plain))
    return batch
