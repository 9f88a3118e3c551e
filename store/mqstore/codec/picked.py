"""A few properties of many records, without the others: what a walk over the log wants.

A compiled kernel finds the values of all wanted names in one pass over the blocks; without one
all properties are split (codec/properties.py).
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from mqstore.codec.properties import PropertyBlocks
from mqstore.codec.slices import as_text, scatter, slices
from mqstore.format.arrays import Bytes, Int64s
from mqstore.native import frames


class PickedProperties:
    """The properties ``names`` of n records, given their blocks in one buffer, in its order."""

    def __init__(
        self, buffer: Bytes, starts: Int64s, lengths: Int64s, names: Sequence[str]
    ) -> None:
        self._buffer = buffer
        self._names = tuple(names)
        self._found = frames.property_values(buffer, starts, lengths, self._names)
        self._blocks = None if self._found else PropertyBlocks(buffer, starts, lengths)

    def column(self, name: str) -> pa.StringArray:
        """Return the value of one of the properties for every row; null where there is none."""
        number = self._names.index(name)
        if self._found is None:
            assert self._blocks is not None
            return self._blocks.column(name)
        starts, lengths = (table[number] for table in self._found)
        rows = np.flatnonzero(starts >= 0)
        if not len(rows):
            return pa.nulls(len(starts), pa.string())
        if len(rows) == len(starts):
            return as_text(slices(self._buffer, starts, lengths))
        values = as_text(slices(self._buffer, starts[rows], lengths[rows]))
        return scatter(values, rows, len(starts))
