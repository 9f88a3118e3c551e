"""Keys and message ids to the few messages that have them, through the IndexFiles.

What the index does not cover (it starts later, ends earlier, or cannot be read) stays a range
to scan. Every message found is checked again by the scan: hashes collide.

Reference: DefaultMessageStore#queryMessage, MQAdminImpl#queryMessage,
MessageDecoder#decodeMessageId.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from mqstore.derive.index_epochs import IndexEpochs
from mqstore.derive.records import WHOLE
from mqstore.errors import CorruptStoreError
from mqstore.files.config.epochs import load_epochs
from mqstore.files.index.index_file import IndexFile
from mqstore.files.log.log_end import next_record
from mqstore.files.store import Store
from mqstore.format.arrays import Span, TopicQueue
from mqstore.format.hashing import key_hash
from mqstore.format.index_file import TOPIC_KEY_SEPARATOR
from mqstore.format.names import LMQ_PREFIX
from mqstore.read.heads import locate
from mqstore.read.index_gaps import divide_by_index
from mqstore.read.source import QueueSlice

_LOG = logging.getLogger(__name__)
# ip, port and physical offset of an IPv4 or IPv6 store host, in hex.
_OFFSET_MSG_ID: Final = re.compile(r"(?:[0-9A-Fa-f]{16}|[0-9A-Fa-f]{40})([0-9A-Fa-f]{16})")


def narrow(
    store: Store, slices: Sequence[QueueSlice], keys: Sequence[str], msg_ids: Sequence[str]
) -> list[QueueSlice]:
    """Return the parts of ``slices`` that can hold a message with one of the keys or ids.

    ``slices`` are of ``store``. Logs a warning with the number of messages left to scan where
    the index does not cover them all.
    """
    if not slices:
        return []
    hashes = hashes_of({piece.topic for piece in slices}, _named(keys, msg_ids))
    files, candidates = _trusted(store, hashes)
    replica = _replica(store)
    spans = [] if replica is None else _spans(store, replica, files)
    covered = _joined(spans)
    inside: list[QueueSlice] = []
    scanned: list[QueueSlice] = []
    for piece in slices:
        # The index knows what a light queue (LMQ) shows by the topic it was sent to only, and of
        # a batch of messages no key but that of the batch.
        is_unknown = piece.topic.startswith(LMQ_PREFIX) or piece.topic in store.batch_topics
        ours, rest = _divide(store, piece, () if is_unknown else covered)
        inside += ours
        scanned += rest
    if replica is not None and replica.epochs:
        inside, passed_by = divide_by_index(store, inside, spans)
        scanned += passed_by
    candidates |= {place for text in msg_ids if (place := offset_of(text)) is not None}
    found = list(_found(store, inside, candidates))
    count = sum(part.end - part.start for part in scanned)
    if count > 1:  # The one record at the index's end is looked at again as a matter of course.
        _LOG.warning(
            "the IndexFiles of %s do not cover %d messages of what is read; they are scanned",
            store.root,
            count,
        )
    return sorted((*found, *scanned), key=lambda part: (part.topic, part.queue_id, part.start))


def hashes_of(topics: Iterable[str], keys: Iterable[str]) -> list[int]:
    """Return the hashes under which an index has any of the keys in any of the topics."""
    named = (f"{topic}{TOPIC_KEY_SEPARATOR}{key}" for topic in topics for key in keys)
    return sorted(set(map(key_hash, named)))


def offset_of(msg_id: str) -> int | None:
    """Return the physical offset in an offsetMsgId; None for any other text.

    Reference: MessageDecoder#decodeMessageId.
    """
    match = _OFFSET_MSG_ID.fullmatch(msg_id)
    return int(match.group(1), 16) if match else None


def _replica(store: Store) -> IndexEpochs | None:
    """Return what epochs tell of the index; None, with a warning, where they cannot be known."""
    try:
        return IndexEpochs(store.log, load_epochs(store.place))
    except CorruptStoreError as error:
        _LOG.warning("%s; so its IndexFiles are not used", error)
        return None


def _spans(
    store: Store, replica: IndexEpochs, files: Sequence[IndexFile]
) -> list[tuple[IndexFile, Span]]:
    """Return files with the physical offsets [low, high) that each covers: first to last record.

    Of all but the newest up to the next record, where the next file should begin. The very last
    record may have been put with only some of its keys.
    """
    spans = []
    for number, file in enumerate(files):
        span = replica.covered(file)
        if span is None:
            continue
        low, high = span
        if number < len(files) - 1:
            high = next_record(store.log, high)
        spans.append((file, (low, high)))
    return spans


def _joined(spans: Sequence[tuple[IndexFile, Span]]) -> list[Span]:
    """Return ranges [low, high) of physical offsets whose keys are all in the index.

    Two files follow each other if the next record after the end of one is the first of the other.
    Where a file is missing or broken there is a gap.
    """
    ranges: list[Span] = []
    for _, (low, high) in spans:
        follows = bool(ranges) and ranges[-1][1] >= low
        ranges.append((ranges.pop()[0] if follows else low, high))
    return ranges


def _divide(
    store: Store, piece: QueueSlice, covered: Sequence[Span]
) -> tuple[list[QueueSlice], list[QueueSlice]]:
    """Cut a slice into the parts that the index covers and those that it does not."""
    queue = store.queue(piece.topic, piece.queue_id)
    inside, outside = [], []
    start = piece.start
    for low, high in covered:
        first = queue.first_behind(start, piece.end, low)
        last = queue.first_behind(first, piece.end, high)
        outside.append(replace(piece, start=start, end=first))
        inside.append(replace(piece, start=first, end=last))
        start = last
    outside.append(replace(piece, start=start))
    return [p for p in inside if p.end > p.start], [p for p in outside if p.end > p.start]


def _found(
    store: Store, slices: Sequence[QueueSlice], candidates: Iterable[int]
) -> Iterator[QueueSlice]:
    by_queue: dict[TopicQueue, list[QueueSlice]] = {}
    for piece in slices:
        by_queue.setdefault((piece.topic, piece.queue_id), []).append(piece)
    # Several slices of one queue, several keys of one message: each message once.
    for physical_offset, record in locate(store.log, candidates, WHOLE).items():
        queue_offset = record.queue_offset
        for piece in by_queue.get((record.topic, record.queue_id), []):
            if piece.start <= queue_offset < piece.end and (
                _place_of(store, piece, queue_offset) == physical_offset
            ):
                yield replace(piece, start=queue_offset, end=queue_offset + 1)
                break


def _named(keys: Sequence[str], msg_ids: Sequence[str]) -> list[str]:
    return [*keys, *msg_ids, *(text.upper() for text in msg_ids)]


def _trusted(store: Store, hashes: Sequence[int]) -> tuple[list[IndexFile], set[int]]:
    """Return the files that can be believed about these hashes, and the places that they name.

    The others have a broken unit on the way to one of them, or lead to where no record is.
    """
    trusted: list[tuple[IndexFile, set[int]]] = []
    for file in store.index_files:
        if file.layout is None:
            continue
        searches = [file.search(key_hash) for key_hash in hashes]
        if all(is_sound for _, is_sound in searches):
            trusted.append((file, {place for places, _ in searches for place in places}))
    low, named = store.log.low, set().union(*(places for _, places in trusted))
    lost = {place for place in named if place >= low} - locate(store.log, named, WHOLE).keys()
    files = [file for file, places in trusted if not places & lost]
    return files, named


def _place_of(store: Store, piece: QueueSlice, queue_offset: int) -> int:
    queue = store.queue(piece.topic, piece.queue_id)
    return int(queue.read(queue_offset, queue_offset + 1)[0]["physical_offset"])
