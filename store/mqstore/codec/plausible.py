"""Checks the fields of records for values no broker stores; no checksum covers these fields.

BODYCRC covers the body alone. Where zeros or garbage fell into a header or into properties, a
record may be of the right lengths, and its body whole, and still not be the one that was stored.

Reference: TopicValidator, MessageDecoder#messageProperties2String.
"""

import re
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec.decode import topics_on_disk
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.schema import FIRST_MS
from mqstore.codec.slices import slices
from mqstore.format import names
from mqstore.format.arrays import Bytes, Int64s, Mask
from mqstore.format.consume_queue import HIGHEST_QUEUE_OFFSET

_NO_CHARACTER: Final = re.compile(r"[\0-\x1f\x7f-\x9f\ufffd]")
"""Control characters, and what stands for bytes that are no UTF-8: no checksum covers a topic."""
_MOST_PORT: Final = 65_535
_MOST_PLACE: Final = 2**61  # No log is so long, and files behind it could have no name.


def implausible(headers: RecordHeaders) -> dict[int, str]:
    """Return the rows of records with a field that no broker would have stored, and which.

    The records' lengths add up; they ascend in the buffer and do not overlap.
    """
    found: dict[int, str] = {}
    for name, low, high in (
        ("queue_id", 0, names.MAX_QUEUE_ID),
        ("queue_offset", 0, HIGHEST_QUEUE_OFFSET),
        ("physical_offset", 0, _MOST_PLACE),
        ("born_timestamp_ms", FIRST_MS, None),  # A producer chooses it.
        ("store_timestamp_ms", 1, None),
        ("born_port", 0, _MOST_PORT),
        ("store_port", 0, _MOST_PORT),
        ("reconsume_times", 0, None),
    ):
        values = headers.field(name)
        wrong = values < low
        if high is not None:
            wrong |= values > high
        _add(found, wrong, f"{name} cannot be right")
    _add(found, _wrong_topics(headers), "no topic has such a name")
    _add(found, _wrong_properties(headers), "its properties are no text")
    return found


def _add(found: dict[int, str], wrong: Mask, reason: str) -> None:
    for row in np.flatnonzero(wrong).tolist():
        found.setdefault(row, reason)


def _wrong_topics(headers: RecordHeaders) -> Mask:
    topics = topics_on_disk(headers).dictionary_encode()
    wrong = np.array([_is_damaged(str(one)) for one in topics.dictionary.to_pylist()])
    if not wrong.any():
        return np.zeros(len(headers), np.bool_)
    found: Mask = wrong[topics.indices.to_numpy(zero_copy_only=False)]
    return found


def _is_damaged(topic: str) -> bool:
    """Tell whether a record's topic is rather a damaged one than a name that somebody chose."""
    return _NO_CHARACTER.search(topic) is not None or not names.is_topic(topic)


def _wrong_properties(headers: RecordHeaders) -> Mask:
    blocks = slices(headers.buffer, headers.properties_starts, headers.properties_lengths)
    wrong = np.zeros(len(headers), np.bool_)
    if not len(blocks):
        return wrong
    _, edges_buffer, content_buffer = blocks.buffers()
    edges = np.frombuffer(edges_buffer, np.int32)[: len(blocks) + 1].astype(np.int64)
    content = np.frombuffer(content_buffer or b"", np.uint8)[: int(edges[-1])]
    zeros = _zeros_of_a_hole(content, edges)
    wrong[np.searchsorted(edges, zeros, side="right") - 1] = True
    if len(content) and int(content.max()) >= 0x80:
        wrong |= _not_utf8(blocks, content, edges)
    return wrong


def _zeros_of_a_hole(content: Bytes, edges: Int64s) -> Int64s:
    """Return where a zero byte is the first or last of its block, or beside another one.

    A hole of zeros reaches over an edge of the block or is a run of zeros in it. A single zero in
    a value, and other control characters, are text to a producer.
    """
    zeros = np.flatnonzero(content == 0)
    together = (np.diff(zeros, prepend=-2) == 1) | (np.diff(zeros, append=-2) == 1)
    at_edge = np.isin(zeros, edges[:-1]) | np.isin(zeros + 1, edges[1:])
    found: Int64s = zeros[together | at_edge]
    return found


def _not_utf8(blocks: pa.BinaryArray, content: Bytes, edges: Int64s) -> Mask:
    """Tell which blocks are no UTF-8. Most often all are: then one check of all bytes is enough."""
    wrong = np.zeros(len(blocks), np.bool_)
    high = np.flatnonzero(content >= 0x80)
    for row in np.unique(np.searchsorted(edges, high, side="right") - 1).tolist():
        try:
            content[int(edges[row]) : int(edges[row + 1])].tobytes().decode()
        except UnicodeDecodeError:
            wrong[row] = True
    return wrong
