"""Looks at many queues together: most of a store's queues are short, and have one file.

The beginnings of their files are read first, then looked at side by side. Of a queue that its
beginning does not tell all about, as it is long, has several files, or something is odd about it,
the queue's own ``look`` tells.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Final

import numpy as np

from mqstore.errors import CorruptStoreError
from mqstore.files.base.folder import Folder
from mqstore.files.base.mapped_file_queue import mapped_file
from mqstore.files.queue.batch_queue import BatchQueue
from mqstore.files.queue.consume_queue import ConsumeQueue, is_live
from mqstore.files.queue.unit_blocks import PROBED_UNITS
from mqstore.files.queue.units import QueueExtent, Units
from mqstore.format.arrays import Int64s, Structs
from mqstore.format.consume_queue import UNIT
from mqstore.format.message import HARD_RECORD_BYTES

_BEGINNING_BYTES: Final = PROBED_UNITS * UNIT.itemsize
_TOGETHER: Final = 256  # of 1 MiB
_FAR: Final = 2**62  # Behind it the end of a record may be no number of 64 bits.


def look_at_each(folder: Folder, queues: Sequence[Units], commit_log_low: int) -> list[QueueExtent]:
    """Return what ``look`` of each queue returns, of a store whose root is ``folder``.

    Of none of them a file was listed yet. Raises what they raise.
    """
    found: dict[int, QueueExtent] = {}
    plain = [(n, queue) for n, queue in enumerate(queues) if isinstance(queue, ConsumeQueue)]
    for start in range(0, len(plain), _TOGETHER):
        found |= _short(folder, plain[start : start + _TOGETHER], commit_log_low)
    others = [number for number in range(len(queues)) if number not in found]
    apart = [n for n in others if not isinstance(queues[n], ConsumeQueue | BatchQueue)]
    found |= {number: queues[number].look(commit_log_low) for number in apart}
    others = [number for number in others if number not in found]
    looks = folder.each(lambda number: queues[number].look(commit_log_low), others)
    found |= zip(others, looks, strict=True)
    return [found[number] for number in range(len(queues))]


def _short(
    folder: Folder, queues: Sequence[tuple[int, ConsumeQueue]], commit_log_low: int
) -> dict[int, QueueExtent]:
    """Return the looks at those of numbered queues that are short; they know their files then."""
    heads = folder.only_files([queue.path for _, queue in queues], _BEGINNING_BYTES)
    start_of = cache(partial(_start_of, folder))
    read = [
        (number, queue, head, start)
        for (number, queue), head in zip(queues, heads, strict=True)
        if head is not None and (start := start_of(head.name, head.size)) is not None
    ]
    bounds = np.array([(start, head.size) for _, _, head, start in read], np.int64).reshape(-1, 2)
    data = b"".join(head.head.ljust(_BEGINNING_BYTES, b"\0") for _, _, head, _ in read)
    units = np.frombuffer(data, UNIT).reshape(-1, PROBED_UNITS)
    starts, counts = bounds.T // UNIT.itemsize
    looks = _looks(starts, counts, units, commit_log_low)
    found = {}
    for (number, queue, head, _), look in zip(read, looks, strict=True):
        if look is not None:
            queue.know(head.name, head.size)
            found[number] = look
    return found


def _start_of(folder: Folder, name: str, size: int) -> int | None:
    """Return where a queue's file begins; None for one that a listing leaves out or refuses."""
    try:
        file = mapped_file(folder, name, size)
    except CorruptStoreError:
        return None
    return file.start if file is not None and file.size else None


def _looks(
    starts: Int64s, counts: Int64s, units: Structs, commit_log_low: int
) -> list[QueueExtent | None]:
    """Return the look at each queue of one file, whose first units are a row of ``units``.

    The files begin at the queue offsets ``starts`` and have room for ``counts`` units. None where
    the row does not tell what ``ConsumeQueue.look`` finds.
    """
    rows, within = np.arange(len(units)), np.minimum(counts, PROBED_UNITS)
    empty = units["size"] == 0
    is_full = ~empty[rows, within - 1]
    ends = np.where(is_full, within, np.minimum(empty.argmax(axis=1), within))
    units = units[:, : max(1, ends.max(initial=0))]
    sizes, places = units["size"].astype(np.int64), units["physical_offset"].astype(np.int64)
    last, live = np.maximum(ends - 1, 0), is_live(units, commit_log_low)
    has_live, first = (ends > 0) & live[rows, last], live.argmax(axis=1)
    columns = np.arange(units.shape[1])
    held = (columns >= first[:, None]) & (columns < ends[:, None]) & has_live[:, None]
    odd = (sizes <= 0) | (sizes > HARD_RECORD_BYTES) | (places < 0) | (places > _FAR)
    is_told = ~(is_full & (counts > PROBED_UNITS)) & ~(held & odd).any(axis=1)
    looks = (
        starts + first,
        starts + ends,
        places[rows, last] + sizes[rows, last],
        np.where(held, sizes, 0).sum(axis=1),
        places[rows, first],
    )
    return [
        None if not told else QueueExtent(*look) if has else QueueExtent(look[1], look[1])
        for told, has, *look in zip(
            is_told.tolist(), has_live.tolist(), *(one.tolist() for one in looks), strict=True
        )
    ]
