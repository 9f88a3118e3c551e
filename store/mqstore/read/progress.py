"""The offsets of a stream: the next queue offset of each queue, and their JSON.

    {"TopicA":{"0":23,"1":7}}                one store, as Spark's Kafka source writes it
    {"TopicA":{"broker-a":{"0":23}}}         several stores
    {"/packed":"eAGr…"}                      either, of very many queues: see ``packed``

Spark keeps the JSON in the checkpoint and compares it as text, so keys are in one order:
topics and brokers by name, queues by number. The JSON holds nothing else, no mark of the store
it is from either: see ``follow`` for what can be told from offsets alone.

Reference: org.apache.spark.sql.kafka010.JsonUtils#partitionOffsets.
"""

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias

from mqstore.errors import InvalidOptionError, StoreReplacedError
from mqstore.format.arrays import byte_planes, of_byte_planes
from mqstore.format.names import parse_queue_id

BrokerQueue: TypeAlias = tuple[str, str, int]
"""A topic, a broker's name and a queue id."""

Progress: TypeAlias = dict[BrokerQueue, int]
"""The next queue offset to read of each queue."""

_MAX_LONG: Final = 2**63 - 1
_PACKED_KEY: Final = "/packed"  # No topic has a slash.
_MOST_UNPACKED_BYTES: Final = 1 << 30


def to_json(progress: Mapping[BrokerQueue, int], *, by_broker: bool) -> dict[str, Any]:
    """Return the JSON object of ``progress``, its keys in order."""
    found: dict[str, Any] = {}
    for (topic, broker, queue_id), queue_offset in sorted(progress.items()):
        queues = found.setdefault(topic, {})
        if by_broker:
            queues = queues.setdefault(broker, {})
        queues[str(queue_id)] = queue_offset
    return found


def packed(document: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of very many queues as one text, a fifth as long.

    Spark passes offsets between processes several times a trigger, and each passing costs by the
    values in the JSON. The text is base64 of zlib of: the same JSON with zeros, a zero byte, and
    the offsets as int64 in its order, all their lowest bytes first, then the next ones.
    """
    names = json.dumps(_with_values(document, repeat(0)), separators=(",", ":")).encode()
    planes = byte_planes(_values(document))
    return {_PACKED_KEY: base64.b64encode(zlib.compress(names + b"\0" + planes, 1)).decode()}


def unpacked(document: dict[str, Any]) -> dict[str, Any]:
    """Return what was ``packed``, or the document itself.

    Raises InvalidOptionError for what is no such text, or has more than a gigabyte.
    """
    text = document.get(_PACKED_KEY)
    if text is None:
        return document
    rest = {name: value for name, value in document.items() if name != _PACKED_KEY}
    try:
        opened = zlib.decompressobj()
        data = opened.decompress(base64.b64decode(text, validate=True), _MOST_UNPACKED_BYTES)
        names, _, planes = data.partition(b"\0")
        inner = json.loads(names)
        values = of_byte_planes(planes)
        if not opened.eof or len(values) != sum(1 for _ in _values(inner)):
            raise _malformed(_PACKED_KEY)
        return _with_values(inner, iter(values)) | rest
    except (AttributeError, TypeError, ValueError, RecursionError, zlib.error):
        raise _malformed(_PACKED_KEY) from None


def _values(document: Any) -> Iterator[int]:
    """Yield the offsets of the JSON in its order."""
    for value in document.values():
        if isinstance(value, dict):
            yield from _values(value)
        else:
            yield value


def _with_values(document: dict[str, Any], values: Iterator[int]) -> dict[str, Any]:
    """Return the JSON with other offsets, in its order."""
    return {
        name: _with_values(value, values) if isinstance(value, dict) else next(values)
        for name, value in document.items()
    }


def from_json(document: object, brokers: Sequence[str]) -> Progress:
    """Return the progress that the JSON object tells, of stores with these brokers' names.

    Raises StoreReplacedError for offsets of other brokers, or of one store where there are
    several; InvalidOptionError for what is no such JSON.
    """
    found: Progress = {}
    for topic, inner in _items(document):
        for name, value in _items(inner):
            if isinstance(value, Mapping):
                _check_broker(name, brokers)
                found |= {(topic, name, _queue_id(q)): _offset(v) for q, v in value.items()}
            else:
                if len(brokers) != 1:
                    raise StoreReplacedError(
                        f"the checkpoint has offsets of one store, the query reads {len(brokers)}: "
                        f"{', '.join(brokers)}"
                    )
                found[topic, brokers[0], _queue_id(name)] = _offset(value)
    return found


def brokers_in(document: object) -> set[str]:
    """Return the names of brokers in the JSON; InvalidOptionError for what is no such JSON."""
    return {
        name
        for _, inner in _items(document)
        for name, value in _items(inner)
        if isinstance(value, Mapping)
    }


def _check_broker(name: str, brokers: Sequence[str]) -> None:
    if name not in brokers:
        raise StoreReplacedError(
            f"the checkpoint has offsets of broker {name}, the query reads {', '.join(brokers)}"
        )


def _items(value: object) -> Iterator[tuple[str, object]]:
    if not isinstance(value, Mapping):
        raise _malformed(value)
    yield from value.items()


def _queue_id(name: str) -> int:
    queue_id = parse_queue_id(name)
    if queue_id is None:
        raise _malformed(name)
    return queue_id


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_LONG:
        raise _malformed(value)
    return value


def _malformed(value: object) -> InvalidOptionError:
    expected = (
        'the offsets in it are not of mqlog, which writes {"TopicA":{"0":23}}: start the query '
        "with a checkpointLocation of its own"
    )
    return InvalidOptionError("checkpointLocation", value, expected)
