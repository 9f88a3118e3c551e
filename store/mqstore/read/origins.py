"""Records by their place in the CommitLog alone: whose they are, and when they were stored.

For messages that point at another one: a retry at what was consumed first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mqstore.codec.decode import topics_on_disk
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.properties import PropertyBlocks
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.properties import UNIQ_KEY

_BATCH_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Origin:
    """A record: its queue, its place there, its id if it has one, its storeTimestamp in ms."""

    topic: str
    queue_id: int
    queue_offset: int
    uniq_key: str | None
    store_timestamp_ms: int


def look_up(log: CommitLog, physical_offsets: Sequence[int]) -> dict[int, Origin]:
    """Return the records that start there; places where none does are left out.

    About 8 MiB are read at a time, or one record that is larger. Raises FileNotFoundError if a
    running broker deletes a file meanwhile.
    """
    found: dict[int, Origin] = {}
    pending: list[tuple[int, int]] = []
    held = 0
    for physical_offset in sorted(set(physical_offsets)):
        header = log.header(physical_offset) if 0 <= physical_offset < log.high else None
        if header is None or int(header["physical_offset"]) != physical_offset:
            continue
        size = int(header["total_size"])
        if not log.holds(np.array([physical_offset]), np.array([size]))[0]:
            continue
        pending.append((physical_offset, size))
        held += size
        if held >= _BATCH_BYTES:
            found |= _read(log, pending)
            pending, held = [], 0
    return found | _read(log, pending)


def _read(log: CommitLog, places: Sequence[tuple[int, int]]) -> dict[int, Origin]:
    if not places:
        return {}
    starts, sizes = np.array(places, np.int64).T.copy()
    gathered = log.gather(starts, sizes)
    headers = RecordHeaders(gathered.buffer, gathered.starts, sizes)
    sound = np.delete(np.arange(len(places)), list(headers.problems()))
    headers = headers.take(sound)
    blocks = PropertyBlocks(headers.buffer, headers.properties_starts, headers.properties_lengths)
    columns = zip(
        starts[sound].tolist(),
        topics_on_disk(headers).to_pylist(),
        headers.field("queue_id").tolist(),
        headers.field("queue_offset").tolist(),
        blocks.column(UNIQ_KEY).to_pylist(),
        headers.field("store_timestamp_ms").tolist(),
        strict=True,
    )
    return {place: Origin(*rest) for place, *rest in columns}
