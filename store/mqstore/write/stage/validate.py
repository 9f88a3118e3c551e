"""Check rows by the rules of RocketMQ's producer and broker, before anything is staged.

Reference: Validators#checkMessage, #checkTopic; TopicValidator#validateTopic;
HookUtils#checkBeforePutMessage; MessageExtEncoder (property and record sizes);
AbstractSendMessageProcessor#msgCheck (queue id); Message#putUserProperty (reserved names).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from mqstore.codec.encode import binary_lengths
from mqstore.codec.properties_encode import entries, has_separator
from mqstore.codec.schema import FIRST_MS, LAST_MS
from mqstore.errors import InvalidMessageError, MessageTooLargeError, shown
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.config import DELAY_LEVELS_MS
from mqstore.format.message import MAX_PROPERTIES_BYTES, MIN_BLANK_BYTES
from mqstore.format.names import MAX_QUEUE_ID, MAX_TOPIC_LENGTH, is_system_topic, is_writable_topic
from mqstore.write.stage.job import TopicQueues
from mqstore.write.stage.rows import NULL_MOMENT, NULL_QUEUE, Rows

Rule: TypeAlias = tuple[Mask, Callable[[int], str]]
"""Which rows break it, and what to say about one of them."""

SHOWN_REASONS: Final = 10
_KEYS_CHARS: Final = 60
_BODY_BYTES: Final = 24
_FORBIDDEN: Final = "holds the character U+0001 or U+0002, which RocketMQ uses as separators"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLimits:
    """What a job allows. ``queue_counts`` are those of the topics the store knows."""

    queue_counts: Mapping[str, TopicQueues]
    new_topic_queues: int
    """Queues of a topic the store does not know; 0 if it may not be made."""
    extends_new_topics: bool
    """A topic the store does not know gets as many queues as the rows' queueIds need."""
    max_message_size: int
    record_room: int
    """Bytes by which a record may exceed max_message_size."""
    commit_log_file_size: int
    allow_system_topics: bool
    max_properties: int = MAX_PROPERTIES_BYTES
    for_broker: bool = False
    """The messages are sent to a broker, which has rules that a store has not."""
    takes_delayed: bool = True
    """False: the messages are read back where they were sent to, where a delayed one is not."""

    def queues(self, topic: str) -> int:
        """Return how many queues a partitioner chooses from; 0 if the topic takes no messages."""
        return self._of(topic).write

    def queue_ids(self, topic: str) -> int:
        """Return the first queueId that a row may not name."""
        extends = self.extends_new_topics and topic not in self.queue_counts
        return MAX_QUEUE_ID + 1 if extends else min(self._of(topic).named, MAX_QUEUE_ID + 1)

    def _of(self, topic: str) -> TopicQueues:
        new = TopicQueues(self.new_topic_queues, self.new_topic_queues)
        return self.queue_counts.get(topic, new)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is refused: its number in the task and in its batch, its topic, and why."""

    number: int
    row: int
    topic: str | None
    reason: str
    too_large: bool


def topic_problem(topic: str, limits: RowLimits) -> str | None:
    """Return why no row may be written to ``topic``, or None."""
    problem = _name_problem(topic, is_there=not limits.for_broker and topic in limits.queue_counts)
    if problem:
        return problem
    if is_system_topic(topic) and not limits.allow_system_topics:
        return "topic is one of RocketMQ's own; set allowSystemTopics=true to write to it"
    if topic not in limits.queue_counts and not limits.new_topic_queues:
        where = "cluster" if limits.for_broker else "store"
        return f"the {where} has no such topic; set createTopic=true to add it"
    if not limits.queues(topic):
        return "the topic takes no messages: its perm has no write bit, or writeQueueNums is 0"
    return None


def find_bad_rows(
    rows: Rows, blocks: pa.Array, record_sizes: Int64s, limits: RowLimits
) -> list[BadRow]:
    """Return the rows that break a rule, in their order, each with the first rule it breaks.

    ``blocks`` are the property blocks of the rows and ``record_sizes`` the bytes of their
    records, both as they would be stored.
    """
    found: dict[int, BadRow] = {}
    for too_large, rules in (
        (False, _utf8_rules(rows)),
        (False, [*_topic_rules(rows, limits), *_field_rules(rows), *_text_rules(rows)]),
        (False, _broker_rules(rows, limits) if limits.for_broker else []),
        (False, _property_rules(rows)),
        (True, _size_rules(rows, blocks, record_sizes, limits)),
    ):
        for broken, reason in rules:
            for row in np.flatnonzero(broken).tolist():
                if row not in found:
                    topic = rows.topic_names[rows.topics[row]] if rows.topics[row] >= 0 else None
                    found[row] = BadRow(int(rows.numbers[row]), row, topic, reason(row), too_large)
    return [found[row] for row in sorted(found)]


def refuse(
    bad: list[BadRow], rows: Rows, partition: int, written: str = "Nothing was written"
) -> InvalidMessageError:
    """Return the error that names the first ten reasons, each with its first row and a count.

    ``written`` says what became of the other rows.
    """
    kind = MessageTooLargeError if bad[0].too_large else InvalidMessageError
    by_reason: dict[str, list[BadRow]] = {}
    for row in bad:
        by_reason.setdefault(row.reason, []).append(row)
    lines = [
        f"partition {partition}, row {same[0].number}, {_shown_row(same[0], rows)}: {reason}"
        f"{f' (and {len(same) - 1} more)' if len(same) > 1 else ''}"
        for reason, same in islice(by_reason.items(), SHOWN_REASONS)
    ]
    others = len(by_reason) - SHOWN_REASONS
    more = f" (and {others} more reasons)" if others > 0 else ""
    advice = "set onInvalid=skip or onInvalid=side:PATH to write the other rows"
    return kind(f"{'; '.join(lines)}{more}. {written}; {advice}")


def _shown_row(bad: BadRow, rows: Rows) -> str:
    """Return the topic of a row, its keys and the first bytes of its body."""
    keys, body = (column[bad.row].as_py() for column in (rows.keys, rows.bodies))
    text = f"topic {shown(repr(bad.topic))}"
    if keys is not None:
        text += f", keys {shown(repr(keys), _KEYS_CHARS)}"
    if body is not None:
        text += f", body {body[:_BODY_BYTES]!r}{'…' if len(body) > _BODY_BYTES else ''}"
    return text


def _name_problem(topic: str, *, is_there: bool) -> str | None:
    """Return what is wrong with a name; a topic that a store has keeps the name that it has."""
    if not topic:
        return "topic is empty"
    size = len(topic.encode(errors="surrogatepass"))  # What a person typed may hold half a pair.
    if size > MAX_TOPIC_LENGTH:
        return f"topic has {size} bytes, more than {MAX_TOPIC_LENGTH}"
    # A line end separates topics in a staged frame.
    if not is_writable_topic(topic) and not (is_there and "\n" not in topic):
        return "topic has a character other than letters, digits and % | _ -"
    return None


def _topic_rules(rows: Rows, limits: RowLimits) -> list[Rule]:
    problems = [topic_problem(name, limits) for name in rows.topic_names]
    broken = np.array([p is not None for p in problems] + [True])[rows.topics]
    counts = np.array([limits.queue_ids(name) for name in rows.topic_names] + [0])[rows.topics]
    outside = (rows.queue_ids < 0) | (rows.queue_ids >= counts)
    return [
        (rows.topics < 0, lambda _: "topic is null"),
        (broken, lambda row: str(problems[rows.topics[row]])),
        (
            outside & (rows.queue_ids != NULL_QUEUE),
            lambda row: (
                f"queueId {rows.queue_ids[row]} is not one of the topic's {counts[row]} queues"
            ),
        ),
    ]


def _field_rules(rows: Rows) -> list[Rule]:
    flags, levels, moments = rows.flags, rows.delay_levels, rows.store_timestamps_ms
    born, highest = rows.born_timestamps_ms, len(DELAY_LEVELS_MS)
    return [
        (_nulls(rows.bodies), lambda _: "body is null"),
        (
            (levels < 0) | (levels > highest),
            lambda row: f"delayTimeLevel {levels[row]} is not one of 0 to {highest}",
        ),
        (
            (flags < -(2**31)) | (flags >= 2**31),
            lambda row: f"flag {flags[row]} does not fit an int",
        ),
        (
            (moments <= 0) & (moments != NULL_MOMENT),
            lambda row: f"storeTimestamp is {moments[row]} ms, not after 1970",
        ),
        (
            (born < FIRST_MS) | (born > LAST_MS),
            lambda row: f"bornTimestamp is {born[row]} ms, not in the years 1 to 9999",
        ),
        (
            rows.stored_compression.broken,
            lambda _: "sysFlag says that the body is compressed, and it does not begin so",
        ),
        (
            rows.stored_compression.doubtful,
            lambda _: (
                "sysFlag says that the body was stored compressed, and it may be so still: add the "
                "column bodyCRC (columns=full), which tells, or leave out sysFlag for plain bodies"
            ),
        ),
        (rows.broken_keys, lambda _: "keys has an element that is null, empty or holds a space"),
    ]


def _broker_rules(rows: Rows, limits: RowLimits) -> list[Rule]:
    delayed = rows.delay_levels > 0
    return [
        (
            delayed & (not limits.takes_delayed),
            lambda _: "a delayed message cannot be sent exactly once: set delivery=atLeastOnce",
        ),
        (
            delayed & (binary_lengths(rows.bodies) == 0),
            lambda _: "an empty body cannot be delayed: 5.x brokers fail on a single empty message",
        ),
    ]


def _utf8_rules(rows: Rows) -> list[Rule]:
    return [
        (broken, lambda _, name=name: f"{name} holds bytes that are not UTF-8")  # type: ignore[misc]
        for name, broken in rows.not_utf8.items()
    ]


def _text_rules(rows: Rows) -> list[Rule]:
    texts = (("tags", rows.tags), ("keys", rows.keys), ("shardingKey", rows.sharding_keys))
    return [
        (has_separator(column), lambda _, name=name: f"{name} {_FORBIDDEN}")  # type: ignore[misc]
        for name, column in texts
    ]


def _property_rules(rows: Rows) -> list[Rule]:
    if rows.properties is None:
        return []
    starts, entry_names, values = entries(rows.properties)
    parents = np.repeat(np.arange(len(rows)), np.diff(starts))

    def of_rows(bad: Mask, text: str) -> Rule:
        mask = np.zeros(len(rows), np.bool_)
        mask[parents[bad]] = True

        def reason(row: int) -> str:
            entry = np.flatnonzero(bad & (parents == row))[0]
            return f"property {shown(repr(entry_names[int(entry)].as_py()))} {text}"

        return mask, reason

    empty = (binary_lengths(entry_names) == 0) | (binary_lengths(values) == 0)
    split = has_separator(entry_names) | has_separator(values)
    reserved = (
        "is a name RocketMQ keeps for itself: use the column or option made for it; to write "
        "messages that were read, keep a column that only a read has (msgId) beside properties"
    )
    return [
        of_rows(rows.reserved, reserved),
        of_rows(split & rows.wanted, _FORBIDDEN),
        of_rows(empty & rows.wanted, "has an empty name or value, which RocketMQ would drop"),
    ]


def _size_rules(
    rows: Rows, blocks: pa.Array, record_sizes: Int64s, limits: RowLimits
) -> list[Rule]:
    bodies, properties = binary_lengths(rows.bodies), binary_lengths(blocks)
    room = limits.commit_log_file_size - MIN_BLANK_BYTES
    most = limits.max_message_size + limits.record_room
    return [
        (
            bodies > limits.max_message_size,
            lambda row: (
                f"body has {bodies[row]} bytes, maxMessageSize is {limits.max_message_size}"
            ),
        ),
        (
            properties > limits.max_properties,
            lambda row: (
                f"properties take {properties[row]} bytes, more than {limits.max_properties}"
            ),
        ),
        (
            record_sizes > most,
            lambda row: (
                f"record has {record_sizes[row]} bytes, more than {most}: brokers of this "
                f"version bound a record by maxMessageSize ({limits.max_message_size})"
                f"{f' and {limits.record_room} bytes' if limits.record_room else ''}"
            ),
        ),
        (
            record_sizes > room,
            lambda row: (
                f"record has {record_sizes[row]} bytes, a CommitLog file takes "
                f"{room} at most (mappedFileSizeCommitLog)"
            ),
        ),
    ]


def _nulls(column: pa.Array) -> Mask:
    found: Mask = column.is_null().to_numpy(zero_copy_only=False)
    return found
