"""What config/tieredStoreMetadata.json says of the messages that tiered storage has.

Of a queue the segments of its CONSUME_QUEUE tell: each has a base offset and a size in bytes, 20
for a message. The offsets of ``queueMetadataTable`` are -1 while a broker works, and say nothing.
While a broker works the size of the last segment is behind; the first base offset is exact, unless
the first record of COMMIT_LOG lies behind it, which the file does not tell.

Reference: org.apache.rocketmq.tieredstore.metadata.DefaultMetadataStore, FileSegmentMetadata;
FlatMessageFile#getConsumeQueueMinOffset.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mqstore.errors import CorruptConfigError
from mqstore.files.base.folder import Folder
from mqstore.files.config.config_text import parse_object
from mqstore.format import names
from mqstore.format.arrays import Span, TopicQueue
from mqstore.format.config import MAX_CONFIG_BYTES
from mqstore.format.consume_queue import UNIT

TIER_METADATA: Final = "config/tieredStoreMetadata.json"
QUEUE_SEGMENTS: Final = "consumeQueueFileSegmentTable"
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TierMetadata:
    """The broker that tiered storage knows a store by, and queue offsets [low, high) by queue.

    ``broker`` is empty where no queue is tiered.
    """

    broker: str
    queues: Mapping[TopicQueue, Span]


def load(folder: Folder) -> TierMetadata | None:
    """Return the metadata of the store in ``folder``; None if its broker has no tiered storage.

    A missing, empty or unreadable file gives way to its .bak, as in the broker. Raises
    CorruptConfigError, UnsafePathError.
    """
    problem: CorruptConfigError | None = None
    for path in (TIER_METADATA, f"{TIER_METADATA}.bak"):
        if not folder.exists(path):
            continue
        data = folder.read_small(path, MAX_CONFIG_BYTES + 1)
        if not data:
            continue
        try:
            return _parse(data, f"{folder}/{path}")
        except CorruptConfigError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return None


def _parse(data: bytes, path: str) -> TierMetadata:
    if len(data) > MAX_CONFIG_BYTES:
        raise CorruptConfigError(path, MAX_CONFIG_BYTES, "larger than any such file")
    try:
        document = parse_object(data.decode(), path)
    except UnicodeDecodeError as error:
        raise CorruptConfigError(path, error.start, "not UTF-8") from None
    queues: dict[TopicQueue, Span] = {}
    brokers: set[str] = set()
    for name, segments in _table(document.get(QUEUE_SEGMENTS, {}), path).items():
        broker, topic, queue_id = _queue_of(name, path)
        span = _span(_table(segments, path), name, path)
        brokers.add(broker)
        if span is not None:
            queues[topic, queue_id] = span
    if len(brokers) > 1:
        shown = ", ".join(sorted(brokers)[:3])
        raise CorruptConfigError(path, 0, f"segments of several brokers: {shown}")
    return TierMetadata(next(iter(brokers), ""), queues)


def _table(found: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise CorruptConfigError(path, 0, f"{QUEUE_SEGMENTS} is no table of segments")
    return found


def _queue_of(name: str, path: str) -> tuple[str, str, int]:
    """Return broker, topic and queue of BROKER/TOPIC/QUEUE."""
    broker, _, rest = name.partition("/")
    topic, _, number = rest.rpartition("/")
    queue_id = names.parse_queue_id(number)
    if not broker or broker in (".", "..") or queue_id is None or not names.is_topic(topic):
        raise CorruptConfigError(path, 0, f"{name!r} is no BROKER/TOPIC/QUEUE")
    return broker, topic, queue_id


def _span(segments: Mapping[str, Any], name: str, path: str) -> Span | None:
    """Return the queue offsets of segments; None if they have no message."""
    edges = []
    for segment in segments.values():
        fields = segment if isinstance(segment, dict) else {}
        base, size = (_count(fields.get(key)) for key in ("baseOffset", "size"))
        if base is None or size is None or base + size > _LARGEST:
            raise CorruptConfigError(path, 0, f"a segment of {name!r} has no offset and size")
        edges.append((base // UNIT.itemsize, (base + size) // UNIT.itemsize))
    low, high = min(edges, default=(0, 0))[0], max((end for _, end in edges), default=0)
    return (low, high) if low < high else None


def _count(value: Any) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value <= _LARGEST else None
