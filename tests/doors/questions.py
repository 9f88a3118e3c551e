"""The questions of the contract of doors: options of a read, and the messages that answer them.

The options have the names of the Spark source. An answer is a function of the messages held: it
returns the messages of the read, or the condition of an error.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from places.kinds import START_MS, TOPIC
from support.oracle import Message

Answer: TypeAlias = Sequence[Message] | str
DATA_LOSS: Final = "MQLOG_DATA_LOSS"
INVALID_OPTION: Final = "MQLOG_INVALID_OPTION"
UNKNOWN_TOPIC: Final = "MQLOG_UNKNOWN_TOPIC"
CORRUPT_STORE: Final = "MQLOG_CORRUPT_STORE"


@dataclass(frozen=True)
class Question:
    """One question; ``queue`` and ``offset`` choose a queue of the topic."""

    answer: Callable[[Sequence[Message]], Answer]
    options: Mapping[str, str] = field(default_factory=dict)
    topic: str = TOPIC
    queue: int | None = None
    offset: int | None = None

    @property
    def texts(self) -> dict[str, str]:
        """All options, with the choice of the topic and the queue."""
        texts = dict(self.options)
        if self.queue is None:
            texts["subscribe"] = json.dumps([self.topic])
        else:
            texts["assign"] = json.dumps({self.topic: [self.queue]})
        if self.offset is not None and self.offset < 0:
            texts["startingOffsets"] = str(self.offset)
        elif self.offset is not None:
            texts["startingOffsets"] = _each({self.queue: self.offset})
        return texts


def _each(values: Mapping[int | None, int]) -> str:
    """Return the JSON of a value for each queue of the topic."""
    return json.dumps({TOPIC: {str(queue_id): value for queue_id, value in values.items()}})


def _all(messages: Sequence[Message]) -> Answer:
    return messages


def _where(passes: Callable[[Message], bool]) -> Callable[[Sequence[Message]], Answer]:
    return lambda messages: [m for m in messages if passes(m)]


def _last(queue_id: int | None, count: int) -> Callable[[Sequence[Message]], Answer]:
    def answer(messages: Sequence[Message]) -> Answer:
        queues = {m.queue_id for m in messages} if queue_id is None else {queue_id}
        of_queues = ([m for m in messages if m.queue_id == q] for q in sorted(queues))
        return [m for of_queue in of_queues for m in of_queue[-count:]]

    return answer


def _fails(condition: str) -> Callable[[Sequence[Message]], Answer]:
    return lambda _: condition


_TIME: Final = START_MS + 70

QUESTIONS: Final[Mapping[str, Question]] = {
    "a topic": Question(_all),
    "a topic that is not there": Question(_fails(UNKNOWN_TOPIC), topic="Tee"),
    "a queue": Question(_where(lambda m: m.queue_id == 1), queue=1),
    "a queue that is not there": Question(_fails(UNKNOWN_TOPIC), queue=9),
    "from an offset": Question(
        _where(lambda m: m.queue_id == 1 and m.queue_offset >= 30), queue=1, offset=30
    ),
    "from behind the end": Question(_fails(DATA_LOSS), queue=1, offset=500),
    "from behind the end, if it may be": Question(
        _where(lambda _: False), {"failOnDataLoss": "false"}, queue=1, offset=500
    ),
    "the last of a queue": Question(_last(0, 5), queue=0, offset=-5),
    "the last of each queue": Question(_last(None, 3), {"startingOffsets": "-3"}),
    "offsets of several queues": Question(
        _where(lambda m: m.queue_offset >= (40, 10)[m.queue_id]),
        {"startingOffsets": _each({0: 40, 1: 10})},
    ),
    "to an offset": Question(
        _where(lambda m: m.queue_offset < (7, 9)[m.queue_id]),
        {"endingOffsets": _each({0: 7, 1: 9})},
    ),
    "to an offset behind the end": Question(
        _fails(DATA_LOSS), {"endingOffsets": _each({0: 7, 1: 900})}
    ),
    "since a time": Question(
        _where(lambda m: m.store_timestamp_ms >= _TIME), {"startingTimestamp": str(_TIME)}
    ),
    "until a time": Question(
        _where(lambda m: m.store_timestamp_ms < _TIME), {"endingTimestamp": str(_TIME)}
    ),
    "since a time of each queue": Question(
        _where(lambda m: m.store_timestamp_ms >= _TIME + 30 * m.queue_id),
        {"startingOffsetsByTimestamp": _each({0: _TIME, 1: _TIME + 30})},
    ),
    "a naive time": Question(_fails(INVALID_OPTION), {"startingTimestamp": "2026-11-21T03:00:00"}),
    "a tag": Question(_where(lambda m: m.properties_map["TAGS"] == "B"), {"tags": "B"}),
    "two tags": Question(_all, {"tags": "A || B"}),
    "a tag that no message has": Question(_where(lambda _: False), {"tags": "Z"}),
    "an expression without a tag": Question(_fails(INVALID_OPTION), {"tags": "||"}),
    "SQL92": Question(_where(lambda m: m.properties_map["TAGS"] == "A"), {"sql": "TAGS = 'A'"}),
    "wrong SQL92": Question(_fails(INVALID_OPTION), {"sql": "TAGS ="}),
    "a tag since a time": Question(
        _where(lambda m: m.properties_map["TAGS"] == "B" and m.store_timestamp_ms >= _TIME),
        {"tags": "B", "startingTimestamp": str(_TIME)},
    ),
    "a key that no message has": Question(_where(lambda _: False), {"keys": "nobody"}),
    "an option that is not there": Question(_fails(INVALID_OPTION), {"startingOffset": "-3"}),
    "a value that is none": Question(_fails(INVALID_OPTION), {"failOnDataLoss": "perhaps"}),
    "an option of a table": Question(_fails(INVALID_OPTION), {"byTag": "true"}),
}
