"""epochFileCheckpoint: where the epochs of a replica's log begin, in a group with a controller.

Lines of text: how many entries there are; the lower 31 bits of the CRC-32 of the entries' lines,
with their line ends, decimal (0: not checked); then one ``EPOCH-STARTOFFSET`` a line, ascending. An
epoch ends where the next one begins, the last one has no end. ``.bak`` is the file before the last
change, so it lacks the newest epoch.

Reference: CheckpointFile#read, UtilAll#crc32, EpochFileCache.EpochEntrySerializer.
"""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

EPOCH_FILE: Final = "epochFileCheckpoint"
IDENTITY_FILE: Final = "brokerIdentity"
"""Names a replica: ``CLUSTER#BROKERNAME#BROKERID`` (BrokerMetadata)."""
MAX_EPOCH_BYTES: Final = 1 << 20
"""A longer file is no broker's: it has room for 30,000 epochs and more."""

_HEAD_LINE: Final = re.compile(r"-?\d{1,10}")
_ENTRY: Final = re.compile(r"(\d{1,10})-(\d{1,19})")
_HIGHEST: Final = 2**63 - 1
_CRC_BITS: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch: a master's time. ``start`` is the physical offset of its first record."""

    number: int
    start: int


def parse_epochs(data: bytes) -> tuple[Epoch, ...]:
    """Return the epochs of a file, ascending. Raises ValueError with the rule that it breaks."""
    if len(data) > MAX_EPOCH_BYTES:
        raise ValueError(f"more than {MAX_EPOCH_BYTES} bytes")
    lines = data.decode("ascii", "replace").splitlines()
    if len(lines) < 2 or not all(map(_HEAD_LINE.fullmatch, lines[:2])):
        raise ValueError("its first two lines are not a count and a CRC-32")
    entries = lines[2:]
    if len(entries) != int(lines[0]):
        raise ValueError(f"{len(entries)} lines of epochs, its first line says {lines[0]}")
    text = "".join(f"{line}\n" for line in entries).encode()
    if int(lines[1]) and int(lines[1]) != zlib.crc32(text) & _CRC_BITS:
        raise ValueError("its CRC-32 differs")
    matches = [_ENTRY.fullmatch(line) for line in entries]
    epochs = tuple(Epoch(int(m[1]), int(m[2])) for m in matches if m is not None)
    if len(epochs) < len(entries) or any(epoch.start > _HIGHEST for epoch in epochs):
        raise ValueError("a line is not EPOCH-STARTOFFSET")
    for before, after in pairwise(epochs):
        if before.number >= after.number or before.start > after.start:
            raise ValueError(f"epoch {after.number} does not follow epoch {before.number}")
    return epochs


def divergence(ours: Sequence[Epoch], theirs: Sequence[Epoch]) -> Epoch | None:
    """Return the epoch of ``theirs`` from whose start on a log of ``ours`` is stale; None if none.

    The two agree up to the newest epoch that begins at the same place in both; where it ends
    there, a newer master began, and what this log has behind is not the group's.
    Reference: EpochFileCache#findConsistentPoint, AutoSwitchHAClient#doTruncate.
    """
    starts = {epoch.number: epoch.start for epoch in ours}
    common = [n for n, epoch in enumerate(theirs) if starts.get(epoch.number) == epoch.start]
    if not common or common[-1] + 1 == len(theirs):
        return None
    return theirs[common[-1] + 1]
