"""Property blocks of many records to a map column and to single properties.

All blocks lie in one buffer; separators are found once for all of them.

Reference: org.apache.rocketmq.common.message.MessageDecoder#string2messageProperties.
"""

from functools import cached_property

import numpy as np
import pyarrow as pa

from mqstore.codec.gather import RecordHeaders
from mqstore.codec.schema import KAFKA_HEADERS, PROPERTIES_MAP
from mqstore.codec.slices import as_text, pairs, slices
from mqstore.format.arrays import Bytes, Int32s, Int64s, Mask
from mqstore.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR


class PropertyBlocks:
    """The properties of n records, given their blocks in one buffer.

    Entry j of row r is ``name[j] → value[j]`` for j in [edges[r], edges[r + 1]).
    """

    def __init__(self, buffer: Bytes, starts: Int64s, lengths: Int64s) -> None:
        blocks = slices(buffer, starts, lengths)
        self._count = len(starts)
        content, block_edges = _contents(blocks)
        piece_starts, separators, piece_ends = _split(content, block_edges)
        kept = (separators > piece_starts) & (separators < piece_ends - 1)
        if not kept.all():
            piece_starts, piece_ends = piece_starts[kept], piece_ends[kept]
            separators = separators[kept]
        self._edges = _rows(piece_starts, block_edges)
        self._raw_names, self._values = pairs(content, piece_starts, separators, piece_ends)
        self._layouts = _Layouts(self._raw_names, self._edges)
        overwritten = self._layouts.overwritten
        if overwritten is not None:
            self._drop(overwritten)

    @classmethod
    def of(cls, headers: RecordHeaders) -> "PropertyBlocks":
        """Return the properties of whole records."""
        return cls(headers.buffer, headers.properties_starts, headers.properties_lengths)

    def column(self, name: str) -> pa.StringArray:
        """Return the value of one property for every row; null where there is none."""
        places = self._layouts.places(name)
        missing = places < 0
        return self._texts.take(pa.array(self._edges[:-1] + places, mask=missing))

    def as_map(self) -> pa.MapArray:
        """Return all properties as map<string, string>, names in the order of the record."""
        return pa.MapArray.from_arrays(self._arrow_edges, self._names, self._texts).cast(
            PROPERTIES_MAP
        )

    def as_headers(self) -> pa.ListArray:
        """Return all properties as Kafka headers: list<struct<key: string, value: binary>>."""
        element = KAFKA_HEADERS.value_type
        entries = pa.StructArray.from_arrays([self._names, self._values], fields=list(element))
        return pa.ListArray.from_arrays(self._arrow_edges, entries).cast(KAFKA_HEADERS)

    def _drop(self, entries: Mask) -> None:
        """Of entries with one name in a row keep the last, as the broker's map does."""
        kept = pa.array(~entries)
        self._raw_names, self._values = self._raw_names.filter(kept), self._values.filter(kept)
        self._edges = np.concatenate(([0], np.cumsum(~entries)))[self._edges]
        self._layouts = _Layouts(self._raw_names, self._edges)

    @property
    def _arrow_edges(self) -> pa.Array:
        return pa.array(self._edges.astype(np.int32))

    @cached_property
    def _names(self) -> pa.StringArray:
        return as_text(self._raw_names)

    @cached_property
    def _texts(self) -> pa.StringArray:
        return as_text(self._values)


class _Layouts:
    """Which names n rows have, and in what order: row r has entries [edges[r], edges[r + 1]).

    Records of one producer have the same names in the same order: one layout. So names are looked
    at once for each layout, of which there are few, and a property is found by its place there.

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


def _contents(blocks: pa.BinaryArray) -> tuple[Bytes, Int64s]:
    """Return the bytes of all blocks and the n + 1 edges between them."""
    if len(blocks) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, edges, data = blocks.buffers()
    edges_array = np.frombuffer(edges, np.int32, len(blocks) + 1, blocks.offset * 4)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return content, edges_array.astype(np.int64)


def _split(content: Bytes, edges: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return where each piece starts, where its first 0x01 is, and where it ends, in order.

    A piece without 0x01 has it at its end.
    """
    marks = np.flatnonzero(content <= PROPERTY_SEPARATOR)
    kinds = content[marks]
    stops = edges[1:][edges[1:] > edges[:-1]]
    alternate = (
        len(marks) % 2 == 0
        and bool((kinds[::2] == NAME_VALUE_SEPARATOR).all())
        and bool((kinds[1::2] == PROPERTY_SEPARATOR).all())
        and bool((content[stops - 1] == PROPERTY_SEPARATOR).all())
    )
    if alternate:
        ends = marks[1::2]
        return np.concatenate(([0], ends[:-1] + 1))[: len(ends)], marks[::2], ends
    starts, ends = _pieces(content, stops, marks[kinds == PROPERTY_SEPARATOR])
    return starts, _first_of(marks[kinds == NAME_VALUE_SEPARATOR], starts, ends), ends


def _pieces(content: Bytes, stops: Int64s, separators: Int64s) -> tuple[Int64s, Int64s]:
    """Return where each piece between separators starts and ends, in order."""
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


def _first_of(found: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
    """Return the first of ``found`` in each piece; the piece's end where there is none."""
    if len(found) == len(starts) and bool(((found > starts) & (found < ends)).all()):
        return found
    padded = np.concatenate((found, [np.iinfo(np.int64).max]))
    return np.minimum(padded[np.searchsorted(found, starts)], ends)


def _rows(starts: Int64s, edges: Int64s) -> Int64s:
    """Return which entries each block has: n + 1 edges, given where entries and blocks start."""
    count = len(edges) - 1
    each = len(starts) // max(count, 1)
    if each and len(starts) == each * count and bool((starts[::each] == edges[:-1]).all()):
        return np.arange(0, len(starts) + 1, each)
    return np.searchsorted(starts, edges)


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
