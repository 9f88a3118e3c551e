"""Batches of units decoded by the compiled kernel in one pass, where there is one.

A batch with a record that is not good is left to numpy, which finds out what is wrong with it.
"""

from collections.abc import Generator
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from mqstore.codec.arrow_compat import with_column
from mqstore.codec.bodies import Plain, decompress_stored, with_plain
from mqstore.codec.fused.columns import Decoded
from mqstore.codec.fused.decoder import Decoder
from mqstore.codec.schema import message_schema
from mqstore.errors import StoreError
from mqstore.format.arrays import Int64s
from mqstore.read.row_filter import RowFilter
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Fetched
from mqstore.read.units import UnitBatch

Batches: TypeAlias = Generator[pa.RecordBatch, None, UnitBatch]

_BODIES: Final = ("body", "value")
_PACKED: Final = ("sysFlag", "body")  # What decompression needs.


class FusedDecode:
    """Decodes the batches of one scan; ``batches`` returns what it leaves to numpy."""

    def __init__(self, decoder: Decoder, settings: ScanSettings, *, plain: bool) -> None:
        self._decoder = decoder
        self._settings = settings
        self._plain = plain

    @classmethod
    def of(
        cls,
        settings: ScanSettings,
        row_filter: RowFilter,
        *,
        check_crc: bool,
        plain: bool,
    ) -> "FusedDecode | None":
        """Return one for ``settings``, None without a kernel for its columns.

        Raises InvalidOptionError where MQSTORE_KERNELS asks for kernels that are not there.
        """
        columns = {*settings.columns, *row_filter.columns, *(_PACKED if plain else ())}
        decoder = Decoder.of(columns, check_crc=check_crc)
        return None if decoder is None else cls(decoder, settings, plain=plain)

    def batches(self, fetched: Fetched, row_filter: RowFilter) -> Batches:
        """Yield the messages that pass the filter; return the units that are left.

        They are all of them, or the ones from the first batch on that has a body which does not
        decompress, or none.
        """
        units = fetched.units
        try:
            decoded = self._decode(fetched)
            if decoded is None:
                return units
            batch = self._as_batch(decoded)
            mask = row_filter.matches(decoded.column)
        except (StoreError, OSError, pa.ArrowInvalid):
            return units
        rows = np.arange(len(units))
        packed = decoded if self._plain and decoded.any_compressed else None
        if mask is not None:
            rows, batch = rows[mask], batch.filter(pa.array(mask))
        if packed is None:
            yield batch
            return units.take(slice(0, 0))
        return (yield from self._decompressed(batch, packed, units, rows))

    def _decompressed(
        self, batch: pa.RecordBatch, decoded: Decoded, units: UnitBatch, rows: Int64s
    ) -> Batches:
        """Yield ``batch``, which has those rows of the units, with its bodies decompressed."""
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
                return units.take(part)
            yield _with_bodies(batch.slice(start, plain.count), plain)
            start += plain.count
        return units.take(slice(0, 0))

    def _decode(self, fetched: Fetched) -> Decoded | None:
        blocks, units = fetched.blocks(), fetched.units
        if blocks is None:
            return None
        return self._decoder.decode(units.physical_offsets, units.sizes, units.positions, blocks)

    def _as_batch(self, decoded: Decoded) -> pa.RecordBatch:
        columns = self._settings.columns
        arrays = [decoded.column(name) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=message_schema(columns))


def _body(bodies: pa.BinaryArray, rows: Int64s, place: int) -> bytes:
    body: bytes = bodies[int(rows[place])].as_py()
    return body


def _with_bodies(batch: pa.RecordBatch, plain: Plain) -> pa.RecordBatch:
    for field in batch.schema:
        if field.name in _BODIES:
            batch = with_column(batch, field, with_plain(batch.column(field.name), plain))
    return batch
