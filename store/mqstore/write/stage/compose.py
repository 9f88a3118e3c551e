"""Rows to the messages a producer and a broker would make of them.

Property blocks with UNIQ_KEY, KEYS, TAGS, WAIT and PGROUP; bodies compressed; delayed messages
turned to SCHEDULE_TOPIC_XXXX, where they wait for the broker with REAL_TOPIC and REAL_QID.

Reference: DefaultMQProducerImpl#sendKernelImpl, MessageClientIDSetter#createUniqID,
HookUtils#transformDelayLevelMessage, IndexService#buildIndex.
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.codec import compute as pc
from mqstore.codec.compression import compress
from mqstore.codec.encode import Messages
from mqstore.codec.hashing import hash_strings, hash_text, key_hashes, tags_codes
from mqstore.codec.hosts import hex_text
from mqstore.codec.properties_encode import join_blocks, join_map, may_hold
from mqstore.format import names
from mqstore.format import properties as p
from mqstore.format.arrays import Int32s, Int64s, Mask, UInt32s
from mqstore.format.index_file import TAG_KEY_PREFIX, TOPIC_KEY_SEPARATOR
from mqstore.format.sys_flag import MULTI_TAGS
from mqstore.write.stage.job import RowJob
from mqstore.write.stage.rows import Rows
from mqstore.write.stage.settings import COMPRESS_OVER, MessageSettings

_UNIQ_BYTES: Final = 16
_ROW_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class Composed:
    """Messages with what the ConsumeQueue and the IndexFile want to know of each."""

    messages: Messages
    unique_keys: pa.Array | None
    delayed: Mask


def compose(rows: Rows, queue_ids: Int64s, job: RowJob, partition: int) -> Composed:
    """Return the messages of ``rows``, in their order; rows that break a rule make nonsense."""
    settings = job.settings
    delayed = rows.delay_levels > 0
    scheduled = delayed & job.schedules
    made_keys = _made_keys(rows, job, partition)
    bodies, flags = _bodies(rows, settings)
    schedule = len(rows.topic_names)
    messages = Messages(
        topic_names=(*(n or "" for n in rows.topic_names), names.SCHEDULE_TOPIC),
        topics=np.where(scheduled, schedule, rows.topics).astype(np.int32),
        queue_ids=np.where(scheduled, rows.delay_levels - 1, queue_ids).astype(np.int32),
        flags=rows.flags.astype(np.int32),
        sys_flags=flags | _topic_flags(rows, job.multi_tag_topics),
        born_timestamps_ms=rows.born_timestamps_ms,
        bodies=bodies,
        properties=_blocks(rows, queue_ids, made_keys, job),
    )
    return Composed(messages, _either(rows.unique_keys, made_keys), delayed)


def tags_codes_of(rows: Rows, delayed: Mask) -> Int64s:
    """Return tagsCode of each row: 0 for a delayed one, whose code the commit makes."""
    return np.where(delayed, 0, tags_codes(rows.tags))


def index_keys(rows: Rows, composed: Composed, order: NDArray[np.intp]) -> tuple[Int64s, Int32s]:
    """Return how many index keys each row has, and all their hashes; rows in ``order``.

    A row's keys are its UNIQ_KEY, KEYS, then tags. The topic in a key is the one the record is
    stored under.
    """
    messages = composed.messages
    topics = np.array(
        [hash_text(f"{n}{TOPIC_KEY_SEPARATOR}") for n in messages.topic_names], np.uint32
    )
    tag_topics = np.array(
        [hash_text(f"{n}{TOPIC_KEY_SEPARATOR}{TAG_KEY_PREFIX}") for n in messages.topic_names],
        np.uint32,
    )
    plain, tagged = topics[messages.topics], tag_topics[messages.topics]
    kinds = [
        (*_present(composed.unique_keys), plain),
        (*_words(rows.keys), plain),
        (*_present(rows.tags), tagged),
    ]
    parts = [
        (owners, hash_strings(strings).after(prefixes[owners]).values)
        for owners, strings, prefixes in kinds
        if len(owners)
    ]
    if not parts:
        return np.zeros(len(order), np.int64), np.zeros(0, np.int32)
    return _by_row(parts, order)


def _by_row(parts: list[tuple[Int64s, UInt32s]], order: NDArray[np.intp]) -> tuple[Int64s, Int32s]:
    count = len(order)
    every = np.arange(count)
    if all(np.array_equal(owners, every) for owners, _ in parts):
        # The usual case: every row has one of each kind.
        table = np.stack([hashes for _, hashes in parts], axis=1)[order]
        return np.full(count, len(parts)), key_hashes(table.ravel())
    place = np.empty(count, np.int64)
    place[order] = every
    owners = place[np.concatenate([owners for owners, _ in parts])]
    hashes = np.concatenate([hashes for _, hashes in parts])
    return (
        np.bincount(owners, minlength=count),
        key_hashes(hashes[np.argsort(owners, kind="stable")]),
    )


def _present(strings: pa.Array | None) -> tuple[Int64s, pa.Array]:
    """Return the rows that have a string, and these strings."""
    if strings is None:
        return np.zeros(0, np.int64), pa.array([], pa.string())
    if not strings.null_count:
        return np.arange(len(strings)), strings
    rows = np.flatnonzero(strings.is_valid().to_numpy(zero_copy_only=False))
    return rows, strings.drop_null()


def _words(keys: pa.Array) -> tuple[Int64s, pa.Array]:
    """Return the row and the text of every key; keys are separated by spaces."""
    rows, present = _present(keys)
    if not may_hold(present, p.KEY_SEPARATOR):
        return rows, present
    lists = pc.split_pattern(present, p.KEY_SEPARATOR)
    words = lists.flatten()
    owners = rows[pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)]
    filled = pc.greater(pc.binary_length(words), 0)
    return owners[filled.to_numpy(zero_copy_only=False)], words.filter(filled)


def _bodies(rows: Rows, settings: MessageSettings) -> tuple[pa.Array, Int32s]:
    """Return the bodies as they are stored, and their sysFlags; none is compressed twice."""
    done = rows.stored_compression.flags != 0
    over = COMPRESS_OVER if settings.compress_over is None else settings.compress_over
    if not done.any():
        return compress(rows.bodies, settings.compression, over)
    mask = pa.array(done)
    rest = pc.if_else(mask, pa.scalar(None, pa.binary()), rows.bodies)
    bodies, flags = compress(rest, settings.compression, over)
    return pc.if_else(mask, rows.bodies, bodies), np.where(
        done, rows.stored_compression.flags, flags
    )


def _topic_flags(rows: Rows, multi_tag_topics: frozenset[str]) -> Int32s:
    """Return the sysFlags that messages have for their topic's sake.

    Reference: SendMessageProcessor#handleRetryAndDLQ, TopicFilterType.
    """
    has_flag = np.array([n in multi_tag_topics for n in rows.topic_names] + [False])
    return np.where(has_flag[rows.topics], MULTI_TAGS, 0).astype(np.int32)


def _made_keys(rows: Rows, job: RowJob, partition: int) -> pa.Array | None:
    """Return the UNIQ_KEY each row is given: 32 hex digits, as of an IPv4 client's id.

    A row that was read keeps its own, or goes without, as it did, unless uniqKey is set.
    Deterministic ones are 10 bytes of a digest of job and task and 6 bytes of the row's number,
    so that a task that is run again gives every row the same id.
    """
    kind = job.settings.uniq_key
    if kind == "none" or (kind is None and rows.carried.all()):
        return None
    if kind is None and rows.carried.any():
        return _masked(_deterministic_keys(rows, job, partition), pa.array(rows.carried))
    if kind == "random":
        source = np.random.default_rng(secrets.randbits(128))
        return hex_text(source.integers(0, 256, (len(rows), _UNIQ_BYTES), np.uint8))
    return _deterministic_keys(rows, job, partition)


def _deterministic_keys(rows: Rows, job: RowJob, partition: int) -> pa.Array:
    ids = np.empty((len(rows), _UNIQ_BYTES), np.uint8)
    digest = hashlib.sha256(f"{job.job_id}/{partition}".encode()).digest()
    ids[:, :-_ROW_BYTES] = list(digest[: _UNIQ_BYTES - _ROW_BYTES])
    shifts = np.arange(8 * (_ROW_BYTES - 1), -1, -8)
    ids[:, -_ROW_BYTES:] = (rows.numbers[:, None] >> shifts) & 0xFF
    return hex_text(ids)


def _blocks(rows: Rows, queue_ids: Int64s, made_keys: pa.Array | None, job: RowJob) -> pa.Array:
    user = None if rows.properties is None else join_map(rows.properties, rows.wanted)
    typed: list[tuple[str, pa.Array | str]] = [
        (p.KEYS, rows.keys),
        (p.TAGS, rows.tags),
        (p.WAIT, rows.wait_texts),
        (p.SHARDING_KEY, rows.sharding_keys),
    ]
    if job.mark is not None:
        typed.append(job.mark)
    if made_keys is not None:  # Last, of what is sent exactly once (codec/client_ids.py).
        typed.append((p.UNIQ_KEY, made_keys))
    if job.group_property:
        typed.append((p.PRODUCER_GROUP, job.group_property))
    if job.cluster_property:
        cluster = pa.repeat(job.cluster_property, len(rows))
        typed.append((p.CLUSTER, _masked(cluster, pa.array(rows.carried))))
    not_delayed = rows.delay_levels <= 0
    if not not_delayed.all():
        hidden = pa.array(not_delayed)
        typed.append((p.DELAY, _masked(pa.array(rows.delay_levels).cast(pa.string()), hidden)))
    if not not_delayed.all() and job.schedules:
        topics = pa.array([*rows.topic_names, None], pa.string()).take(
            pa.array(np.where(rows.topics < 0, len(rows.topic_names), rows.topics))
        )
        typed += [
            (p.REAL_TOPIC, _masked(topics, hidden)),
            (p.REAL_QID, _masked(pa.array(queue_ids).cast(pa.string()), hidden)),
        ]
    return join_blocks(len(rows), user, typed)


def _either(first: pa.Array | None, second: pa.Array | None) -> pa.Array | None:
    if first is None or second is None:
        return second if first is None else first
    return pc.coalesce(first, second)


def _masked(values: pa.Array, hidden: pa.Array) -> pa.Array:
    return pc.if_else(hidden, pa.scalar(None, pa.string()), values)
