"""Which names the properties of many records have, and in what order.

Records of one producer have the same names in the same order: one layout. So names are looked
at once for each layout, of which there are few, and a property is found by its place there.
"""

from functools import cached_property

import numpy as np
import pyarrow as pa

from mqstore.arrays import Int32s, Int64s, Mask
from mqstore.codec.slices import as_text


class Layouts:
    """The layouts of n rows: row r has the names of entries [edges[r], edges[r + 1]).

    Two rows share a layout if their names, joined, are the same bytes, and as long each.
    """

    def __init__(self, names: pa.BinaryArray, edges: Int64s) -> None:
        self.of_row, first_rows = _distinct(names, edges)
        starts, counts = edges[first_rows], edges[first_rows + 1] - edges[first_rows]
        self._edges = np.concatenate(([0], np.cumsum(counts)))
        self._place = np.arange(self._edges[-1]) - np.repeat(self._edges[:-1], counts)
        entries = names.take(pa.array(np.repeat(starts, counts) + self._place))
        # By text, not by bytes: what is not UTF-8 may be the same name in other bytes.
        texts = as_text(entries).dictionary_encode()
        self._codes = texts.indices.to_numpy()
        self._code_of = {name: code for code, name in enumerate(texts.dictionary.to_pylist())}
        self._layout = np.repeat(np.arange(len(counts)), counts)

    def places(self, name: str) -> Int64s:
        """Return for each row which of its entries has that name; -1 for none."""
        found = np.full(len(self._edges) - 1, -1, np.int64)
        hits = np.flatnonzero(self._codes == self._code_of.get(name, -1))
        found[self._layout[hits]] = self._place[hits]  # Of hits in one layout the last stays.
        return found[self.of_row]

    @cached_property
    def overwritten(self) -> Mask | None:
        """Which entries of all rows have a name that comes again in their row; None if none has."""
        pairs = self._layout * (len(self._code_of) + 1) + self._codes
        lasts = len(pairs) - 1 - np.unique(pairs[::-1], return_index=True)[1]
        if len(lasts) == len(pairs):
            return None
        again = np.ones(len(pairs), np.bool_)
        again[lasts] = False
        edges = pa.array(self._edges.astype(np.int32))
        of_layouts = pa.ListArray.from_arrays(edges, pa.array(again))
        flat: Mask = of_layouts.take(pa.array(self.of_row)).flatten().to_numpy(zero_copy_only=False)
        return flat


def _distinct(names: pa.BinaryArray, edges: Int64s) -> tuple[Int64s, Int64s]:
    """Return which layout each row has, and the first row of each."""
    count = len(edges) - 1
    if not len(names):
        return np.zeros(count, np.int64), np.zeros(min(count, 1), np.int64)
    _, name_edges, data = names.buffers()
    places = np.frombuffer(name_edges, np.int32, len(names) + 1, names.offset * 4)
    codes = _codes(places[edges], data)
    widths = _codes((edges * 4).astype(np.int32), pa.py_buffer(np.diff(places)))
    if widths.any():
        pairs = pa.array(codes * (int(widths.max()) + 1) + widths).dictionary_encode()
        codes = pairs.indices.to_numpy().astype(np.int64)
    # Codes count up as they first come.
    firsts = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
    return codes, firsts


def _codes(edges: Int32s, data: pa.Buffer) -> Int64s:
    rows = pa.Array.from_buffers(
        pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), data]
    ).dictionary_encode()
    codes: Int64s = rows.indices.to_numpy().astype(np.int64)
    return codes
