"""Which files of queues a broker loads: all of one length, none empty, none missing between two.

A broker refuses to start on a file of another length. An empty last one is deleted by brokers from
5.1.3 on, and what it had is in no queue then.

Reference: MappedFileQueue#doLoad, ConsumeQueue#load;
MessageStoreConfig#getMappedFileSizeConsumeQueue (a whole number of units).
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from mqstore.errors import CorruptStoreError
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.base.store_dir import BY_LOG
from mqstore.files.queue.batch_queue import BatchQueue
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.files.queue.units import Units
from mqstore.format.batch_consume_queue import BATCH_UNIT
from mqstore.format.consume_queue import UNIT

_ANEW: Final = f"{BY_LOG}; mqlog recover --rebuild writes the queues anew"
_ANEW_IN_BATCHES: Final = (
    "onCorrupt=skip reads what the other units name; mqlog salvage writes the queues anew"
)
_MADE_S: Final = 1.0
"""So long a running broker may take from making a file to giving it its length."""
_MADE_LOOK_S: Final = 0.02


def not_loaded(
    queues: Sequence[Units], others: Sequence[Units], *, is_unclean: bool
) -> Iterator[CorruptStoreError]:
    """Yield an error for each file of ``queues`` that no broker loads, and each that is missing.

    ``others`` are more queues of the store: the length that most files have is the right one.
    ``is_unclean``: a broker may run, which makes files empty and lengthens them then.
    """
    for kind, width in ((ConsumeQueue, UNIT.itemsize), (BatchQueue, BATCH_UNIT.itemsize)):
        of_kind = [queue for queue in queues if isinstance(queue, kind)]
        beside = [queue for queue in others if isinstance(queue, kind)]
        usual = _usual_size([*of_kind, *beside], width)
        for queue in of_kind:
            yield from _odd_files(queue, usual, width)
            yield from _empty_files(queue, is_unclean=is_unclean)
            yield from _missing_files(queue)


def remedy(queue: Units) -> str:
    """Return what an error about a queue that is not whole advises."""
    return _ANEW_IN_BATCHES if isinstance(queue, BatchQueue) else _ANEW


def _usual_size(queues: Sequence[Units], width: int) -> int:
    """Return the length that most queues' files have, if it is a whole number of units."""
    sizes: Counter[int] = Counter()
    for queue in queues:
        listed = () if _has_only_file(queue) else queue.files.files
        sizes.update([file.size for file in listed] or queue.file_sizes)
    return max(sizes, key=lambda size: (size % width == 0, sizes[size], size), default=0)


def _odd_files(queue: Units, usual: int, width: int) -> Iterator[CorruptStoreError]:
    if queue.file_sizes <= {usual} and usual % width == 0:
        return
    for file in queue.files.files:
        if file.size > usual:
            reason = f"the file is {file.size} bytes long, the others {usual}. {BY_LOG}"
        elif file.size < usual:
            told = f"the file is {file.size} bytes long, the others {usual}: truncated?"
            reason = f"{told} {remedy(queue)}"
        elif usual % width:
            told = f"{file.size} bytes are not a whole number of units: truncated?"
            reason = f"{told} {remedy(queue)}"
        else:
            continue
        yield CorruptStoreError(file.name, file.size, reason)


def _empty_files(queue: Units, *, is_unclean: bool) -> Iterator[CorruptStoreError]:
    """Yield an error for empty files, but for one that a broker is making, or was as it ended."""
    empty = _empty_of(queue)
    if is_unclean and queue.file_sizes:  # Behind others it is only begun.
        empty = [file for file in empty if file.start < queue.files.high]
    deadline = time.monotonic() + _MADE_S
    while empty and is_unclean and time.monotonic() < deadline:
        time.sleep(_MADE_LOOK_S)
        empty = [file for file in _empty_of(replace(queue)) if file in empty]
    for file in empty:
        reason = f"an empty file: the units that were in it are lost. {remedy(queue)}"
        yield CorruptStoreError(file.name, 0, reason)


def _empty_of(queue: Units) -> Sequence[MappedFile]:
    return () if _has_only_file(queue) else queue.files.empty


def _missing_files(queue: Units) -> Iterator[CorruptStoreError]:
    if _has_only_file(queue):
        return
    for before, after in pairwise(queue.files.files):
        if before.end != after.start:
            reason = f"the next file of the queue is missing. {remedy(queue)}"
            yield CorruptStoreError(before.name, before.size, reason)


def _has_only_file(queue: Units) -> bool:
    """Tell whether a look came upon one file and nothing else: then nothing was listed."""
    return isinstance(queue, ConsumeQueue) and queue.only_file is not None
