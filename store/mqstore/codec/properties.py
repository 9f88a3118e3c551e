"""Property blocks of many records to a map column and to single properties.

All blocks lie in one buffer; separators are found once for all of them. Names are dictionary
encoded, so that a property is found by comparing small integers.

Reference: org.apache.rocketmq.common.message.MessageDecoder#string2messageProperties.
"""

from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.codec.schema import HEADERS, PROPERTIES
from mqstore.codec.slices import as_text, slices
from mqstore.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

Ints: TypeAlias = NDArray[np.int64]

_BIT_NAMES = 40  # Sums of this many powers of two, 2^13 of each, stay below 2^63.


class PropertyBlocks:
    """The properties of n records, given their blocks in one buffer.

    Entry j of row r is ``name[j] → value[j]`` for j in [edges[r], edges[r + 1]).
    """

    def __init__(self, buffer: NDArray[np.uint8], starts: Ints, lengths: Ints) -> None:
        blocks = slices(buffer, starts, lengths)
        self._count = len(starts)
        self._bytes, block_edges = _contents(blocks)
        piece_starts, piece_ends = _pieces(self._bytes, block_edges)
        separators = _first_separators(self._bytes, piece_starts, piece_ends)
        kept = (separators > piece_starts) & (separators < piece_ends - 1)
        if not kept.all():
            piece_starts, piece_ends = piece_starts[kept], piece_ends[kept]
            separators = separators[kept]
        self._starts, self._separators, self._ends = piece_starts, separators, piece_ends
        self._edges = np.searchsorted(piece_starts, block_edges)
        self._drop_overwritten()

    def column(self, name: str) -> pa.StringArray:
        """Return the value of one property for every row; null where there is none."""
        code = self._codes_by_name.get(name)
        if code is None:
            return pa.nulls(self._count, pa.string())
        entries = np.flatnonzero(self._codes == code)
        places = np.full(self._count, -1, np.int64)
        places[self._rows[entries]] = entries
        return self._texts.take(pa.array(places, mask=places < 0))

    def as_map(self) -> pa.MapArray:
        """Return all properties as map<string, string>, names in the order of the record."""
        return pa.MapArray.from_arrays(self._arrow_edges, self._names, self._texts).cast(PROPERTIES)

    def as_headers(self) -> pa.ListArray:
        """Return all properties as Kafka headers: list<struct<key: string, value: binary>>."""
        element = HEADERS.value_type
        pairs = pa.StructArray.from_arrays([self._names, self._values], fields=list(element))
        return pa.ListArray.from_arrays(self._arrow_edges, pairs).cast(HEADERS)

    def _drop_overwritten(self) -> None:
        """Of entries with one name in a row keep the last, as the broker's map does."""
        if not self._repeats_a_name():
            return
        pairs = self._rows * (len(self._codes_by_name) + 1) + self._codes
        reverse = np.unique(pairs[::-1], return_index=True)[1]
        kept = np.sort(len(pairs) - 1 - reverse)
        rows = self._rows[kept]
        for name in (
            "_rows",
            "_codes",
            "_names",
            "_values",
            "_texts",
            "_encoded",
            "_codes_by_name",
        ):
            self.__dict__.pop(name, None)
        self._starts, self._ends = self._starts[kept], self._ends[kept]
        self._separators = self._separators[kept]
        self._edges = np.searchsorted(rows, np.arange(self._count + 1))

    def _repeats_a_name(self) -> bool:
        codes, rows = self._codes, self._rows
        same_row = rows[1:] == rows[:-1]
        if bool((codes[1:] > codes[:-1])[same_row].all()):
            return False
        if len(self._codes_by_name) > _BIT_NAMES:
            pairs = rows * (len(self._codes_by_name) + 1) + codes
            return len(np.unique(pairs)) < len(pairs)
        bits = np.left_shift(np.int64(1), codes)
        first = np.flatnonzero(np.concatenate(([True], ~same_row)))
        return bool((np.add.reduceat(bits, first) != np.bitwise_or.reduceat(bits, first)).any())

    @property
    def _arrow_edges(self) -> pa.Array:
        return pa.array(self._edges.astype(np.int32))

    @cached_property
    def _rows(self) -> Ints:
        return np.repeat(np.arange(self._count), np.diff(self._edges))

    @cached_property
    def _encoded(self) -> pa.DictionaryArray:
        names = slices(self._bytes, self._starts, self._separators - self._starts)
        return names.dictionary_encode()

    @cached_property
    def _codes(self) -> Ints:
        codes: Ints = self._encoded.indices.to_numpy().astype(np.int64)
        return codes

    @cached_property
    def _codes_by_name(self) -> dict[str, int]:
        return {
            name: code for code, name in enumerate(as_text(self._encoded.dictionary).to_pylist())
        }

    @cached_property
    def _names(self) -> pa.StringArray:
        return as_text(self._encoded.dictionary).take(self._encoded.indices)

    @cached_property
    def _texts(self) -> pa.StringArray:
        return as_text(self._values)

    @cached_property
    def _values(self) -> pa.BinaryArray:
        return slices(self._bytes, self._separators + 1, self._ends - self._separators - 1)


def _contents(blocks: pa.BinaryArray) -> tuple[NDArray[np.uint8], Ints]:
    """Return the bytes of all blocks and the n + 1 edges between them."""
    if len(blocks) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, edges, data = blocks.buffers()
    edges_array = np.frombuffer(edges, np.int32, len(blocks) + 1, blocks.offset * 4)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return content, edges_array.astype(np.int64)


def _pieces(content: NDArray[np.uint8], edges: Ints) -> tuple[Ints, Ints]:
    """Return where each piece between separators starts and ends, in order."""
    separators = np.flatnonzero(content == PROPERTY_SEPARATOR)
    stops = edges[1:][np.diff(edges) > 0]
    open_ended = stops[content[stops - 1] != PROPERTY_SEPARATOR]
    if not len(open_ended):
        starts = np.concatenate(([0], separators[:-1] + 1)) if len(separators) else separators
        return starts, separators
    # A block without its last separator ends where the next one starts: there, its end comes
    # before a separator at the same place, and no byte lies between it and the next piece.
    ends = np.concatenate((open_ended, separators))
    order = np.argsort(ends, kind="stable")
    width = np.concatenate(
        (np.zeros(len(open_ended), np.int64), np.ones(len(separators), np.int64))
    )
    ends, width = ends[order], width[order]
    return np.concatenate(([0], (ends + width)[:-1])), ends


def _first_separators(content: NDArray[np.uint8], starts: Ints, ends: Ints) -> Ints:
    """Return where the first 0x01 of each piece is; the piece's end where it has none."""
    found = np.flatnonzero(content == NAME_VALUE_SEPARATOR)
    if len(found) == len(starts) and bool(((found > starts) & (found < ends)).all()):
        return found
    padded = np.concatenate((found, [np.iinfo(np.int64).max]))
    return np.minimum(padded[np.searchsorted(found, starts)], ends)
