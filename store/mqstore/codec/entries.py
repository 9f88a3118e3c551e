"""Follow the entries of a DLedger log through raw bytes, and check their heads.

Reference: DLedgerMmapFileStore#recover.
"""

from dataclasses import dataclass

import numpy as np

from mqstore.codec.walk import BLANK_RECORD, CUT, NO_RECORD, ZERO, Walked
from mqstore.format.arrays import Int64s, Structs
from mqstore.format.dledger import (
    BLANK_MAGIC,
    BODY_OFFSET,
    ENTRY,
    ENTRY_MAGIC,
    HARD_ENTRY_BYTES,
    MIN_BLANK_BYTES,
    MIN_ENTRY_BYTES,
)


@dataclass(frozen=True, slots=True)
class WalkedEntries:
    """The records of entries that follow each other, and ``heads`` of ENTRY, one for each."""

    walked: Walked
    heads: Structs


def follow_entries(data: bytes) -> WalkedEntries:
    """Walk from the start of ``data`` for as long as there are whole entries.

    Only sizes and magics are looked at; ``broken_rules`` checks the rest.
    """
    starts, at, end = [], 0, len(data)
    while at + BODY_OFFSET <= end:
        magic, size = _magic_and_size(data, at)
        is_entry = magic == ENTRY_MAGIC and MIN_ENTRY_BYTES <= size <= HARD_ENTRY_BYTES
        if not is_entry or at + size > end:
            break
        starts.append(at)
        at += size
    places = np.array(starts, np.int64)
    buffer = np.frombuffer(data, np.uint8)
    heads = heads_before(data, places + BODY_OFFSET)
    sizes = heads["size"].astype(np.int64) - BODY_OFFSET
    return WalkedEntries(Walked(buffer, places + BODY_OFFSET, sizes, at, _why(data, at)), heads)


def heads_before(data: bytes, positions: Int64s) -> Structs:
    """Return ENTRY of what lies in front of records at ``positions``; zeros where nothing does."""
    heads = np.zeros(len(positions), ENTRY)
    rows = np.flatnonzero(positions >= BODY_OFFSET)
    buffer = np.frombuffer(data, np.uint8)
    found = buffer[(positions[rows] - BODY_OFFSET)[:, None] + np.arange(BODY_OFFSET)]
    heads[rows] = found.reshape(-1).view(ENTRY)
    return heads


def broken_rules(
    heads: Structs, positions: Int64s, before: tuple[int, int] | None
) -> dict[int, str]:
    """Return the first rule that a head breaks, by row; ``positions`` are where entries start.

    ``before`` are index and term of the entry before the first; None if that is not known.
    """
    found: dict[int, str] = {}
    if not len(heads):
        return found
    index, term = heads["index"].astype(np.int64), heads["term"].astype(np.int64)
    first, since = (index[:1] - 1, term[:1]) if before is None else before
    steps, turns = np.diff(index, prepend=first), np.diff(term, prepend=since)
    for mask, reason in (
        (heads["body_length"] != heads["size"] - BODY_OFFSET, "lengths of the entry do not add up"),
        (heads["position"] != positions, "the entry's position is not its own place"),
        (steps != 1, "the entry's index does not follow that of the entry before"),
        (turns < 0, "the entry's term is lower than that of the entry before"),
    ):
        for row in np.flatnonzero(mask).tolist():
            found.setdefault(row, reason)
    return found


def _why(data: bytes, at: int) -> str:
    """Return what is at ``at``, as ``walk.follow`` tells it."""
    if at + MIN_BLANK_BYTES > len(data):
        return CUT
    magic, size = _magic_and_size(data, at)
    if magic == ENTRY_MAGIC and MIN_ENTRY_BYTES <= size <= HARD_ENTRY_BYTES:
        return CUT
    if magic == BLANK_MAGIC:
        return BLANK_RECORD
    return ZERO if (magic, size) == (0, 0) else NO_RECORD


def _magic_and_size(data: bytes, at: int) -> tuple[int, int]:
    magic = int.from_bytes(data[at : at + 4], "big", signed=True)
    return magic, int.from_bytes(data[at + 4 : at + 8], "big", signed=True)
