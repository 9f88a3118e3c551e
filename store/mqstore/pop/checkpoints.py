"""Checkpoints and acknowledgements of one broker in columns, and what they leave open.

A message of a checkpoint takes 56 bytes, an acknowledgement 16, a finished checkpoint 8; names of
queues, topics and groups are kept once.
"""

import hashlib
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from mqstore.errors import InvalidOptionError
from mqstore.format.arrays import Int64s, Mask, TopicGroup, TopicQueue
from mqstore.format.names import is_topic
from mqstore.format.pop import Acks, Checkpoint, PopKey
from mqstore.pop.gone import ABSENT, NO_LOG_PLACE, QueueStarts

MAX_OPEN: Final = 10_000_000
"""How many messages of checkpoints, acknowledgements and finished checkpoints are kept."""
_NAME_ROWS: Final = 8
"""A name takes the memory of so many of them."""


@dataclass(frozen=True, slots=True)
class OpenOffsets:
    """n messages that were popped and not acknowledged, by queue and queue offset: int64[n] each.

    ``names[queue[i]]`` is (topic, group, queueId). A message is there once: ``visible_ms`` is the
    latest of its checkpoints, ``pop_ms`` the pop time of that one. ``ends`` has for each queue the
    offset behind the last message that any of its checkpoints names, acknowledged or not, and
    ``newest`` the time of its last pop; ``named_offsets`` are all those messages, once each, of
    queue ``named_queue``.
    """

    names: list[tuple[str, str, int]]
    queue: Int64s
    queue_offsets: Int64s
    visible_ms: Int64s
    pop_ms: Int64s
    ends: Int64s
    newest: Int64s
    named_queue: Int64s
    named_offsets: Int64s

    def newest_ms(self, name: tuple[str, str, int]) -> int:
        """Return when a queue of ``names`` was popped last, epoch ms."""
        return int(self.newest[self.names.index(name)])


class CheckpointLog:
    """Collects checkpoints and acknowledgements in any order; the same ones may come again."""

    def __init__(self, broker: str, groups: str | None = None) -> None:
        """``broker`` is the name that acknowledgements without one belong to.

        ``groups`` is the option that chose the groups, for the error where memory is not for all.
        """
        self._broker = broker
        self._groups = groups
        self._queues: dict[tuple[str, str, int], int] = {}
        self.pairs: set[TopicGroup] = set()
        """The (topic, group) that any checkpoint names, also those that are not kept."""
        # A row for each message of each checkpoint.
        self._columns = {name: array("q") for name in ("cell", "key", "queue", "place", "log")}
        self._times = {name: array("q") for name in ("pop", "visible")}
        self._acks = array("q"), array("q")
        self._done = array("q")

    def add_pair(self, topic: str, group: str) -> None:
        """Note that a group pops a topic. Raises InvalidOptionError where there are too many."""
        if (topic, group) not in self.pairs and is_topic(topic) and group:
            self.pairs.add((topic, group))
            self._check_room()

    def add(self, found: Checkpoint, log_place: int = NO_LOG_PLACE) -> None:
        """Note a checkpoint, and where its pop wrote it into the CommitLog, if that is known.

        Raises InvalidOptionError where there are too many.
        """
        key = found.key
        name = key.topic, key.group, key.queue_id
        queue = self._queues.setdefault(name, len(self._queues))
        hashed, itself = self._hash(key), self._identity(found)
        count = len(found.queue_offsets)
        self._columns["cell"].extend([itself] * count)
        self._columns["key"].extend([hashed] * count)
        self._columns["queue"].extend([queue] * count)
        self._columns["place"].extend(found.queue_offsets)
        self._columns["log"].extend([log_place] * count)
        self._times["pop"].extend([key.pop_ms] * count)
        self._times["visible"].extend([key.pop_ms + found.invisible_ms] * count)
        self._check_room()

    def add_acks(self, found: Acks) -> None:
        """Note acknowledgements. Raises InvalidOptionError where there are too many."""
        hashed = self._hash(found.key)
        keys, places = self._acks
        for place in found.queue_offsets:
            keys.append(hashed)
            places.append(place)
        self._check_room()

    def add_done(self, found: Checkpoint) -> None:
        """Note that the broker is done with that checkpoint: its messages were revived."""
        self._done.append(self._identity(found))
        self._check_room()

    @property
    def bytes(self) -> int:
        """How much memory the columns take."""
        columns = (*self._columns.values(), *self._times.values(), *self._acks, self._done)
        return sum(len(column) * column.itemsize for column in columns)

    @property
    def queues(self) -> set[TopicQueue]:
        """The queues of topics that checkpoints name."""
        return {(topic, queue_id) for topic, _, queue_id in self._queues}

    def open_offsets(self, starts: QueueStarts | None = None) -> OpenOffsets:
        """Return what no acknowledgement names, of the checkpoints that are not done.

        What was popped from a topic that is gone by ``starts`` is left out.
        """
        rows = self._of_queues_now(starts)
        cells, keys, queues, places, _ = (np.array(c)[rows] for c in self._columns.values())
        pops, visible = (np.array(column, np.int64)[rows] for column in self._times.values())
        ends = np.zeros(len(self._queues), np.int64)
        # What was popped, was popped, though a broker that was killed begins at an earlier offset.
        np.maximum.at(ends, queues, places + 1)
        newest = np.zeros_like(ends)
        np.maximum.at(newest, queues, pops)
        named = np.lexsort((places, queues))
        named = named[_lasts(queues[named], places[named])]
        named_queue, named_offsets = queues[named], places[named]
        live = ~np.isin(cells, np.array(self._done, np.int64))
        ack_keys, ack_places = (np.array(column, np.int64) for column in self._acks)
        open_ = np.flatnonzero(live & ~_among(keys, places, ack_keys, ack_places))
        # The latest checkpoint of a message comes last of those with its queue and offset.
        order = open_[np.lexsort((visible[open_], places[open_], queues[open_]))]
        queues, places = queues[order], places[order]
        last = _lasts(queues, places)
        chosen = order[last]
        return OpenOffsets(
            list(self._queues),
            queues[last],
            places[last],
            visible[chosen],
            pops[chosen],
            ends,
            newest,
            named_queue,
            named_offsets,
        )

    def _of_queues_now(self, starts: QueueStarts | None) -> Mask:
        """Tell which rows are of messages of the queues as they are now."""
        cells, _, queues, places, log = (np.array(c, np.int64) for c in self._columns.values())
        if starts is None:
            return np.ones(len(cells), np.bool_)
        # The timer topic may have a checkpoint several times, and the revive topic again.
        _, cell = np.unique(cells, return_inverse=True)
        first = np.full(int(cell.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        is_in_log = log != NO_LOG_PLACE
        np.minimum.at(first, cell[is_in_log], log[is_in_log])
        log = np.where(first[cell] == np.iinfo(np.int64).max, NO_LOG_PLACE, first[cell])
        its = [starts.get((topic, queue_id), ABSENT) for topic, _, queue_id in self._queues]
        columns = [(s.low, s.high, s.first_ms, s.first_place) for s in its]
        low, high, first_ms, first_place = np.array(columns, np.int64).reshape(-1, 4).T[:, queues]
        by_place = (log != NO_LOG_PLACE) & (first_place != NO_LOG_PLACE)
        pops = np.array(self._times["pop"], np.int64)
        is_old = np.where(by_place, log < first_place, pops < first_ms)
        now: Mask = (places < high) & ~((places >= low) & is_old)
        return now

    def _hash(self, key: PopKey) -> int:
        return _hash_of_key(key, self._broker)

    def _identity(self, found: Checkpoint) -> int:
        # A checkpoint that is put again has the key of the one before and another time.
        return hash_of(*found.key[:-1], found.key.broker or self._broker, found.invisible_ms)

    def _check_room(self) -> None:
        rows = len(self._columns["key"]) + len(self._acks[0]) + len(self._done)
        if rows + _NAME_ROWS * (len(self._queues) + len(self.pairs)) > MAX_OPEN:
            expected = f"broker {self._broker} has more than {MAX_OPEN:,} popped messages open"
            raise InvalidOptionError("groups", self._groups or "", f"{expected}: name fewer groups")


def _lasts(queues: Int64s, places: Int64s) -> Mask:
    """Tell which are the last of equal ones; they are sorted."""
    last = np.ones(len(queues), np.bool_)
    last[:-1] = (queues[1:] != queues[:-1]) | (places[1:] != places[:-1])
    return last


def hash_of(*parts: str | int) -> int:
    """Return a number of 64 bits, signed, that is one only by chance with that of other parts."""
    data = "\0".join(map(str, parts)).encode(errors="replace")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), signed=True)


@lru_cache(maxsize=4096)  # Acknowledgements of a checkpoint, which have its key, lie near it.
def _hash_of_key(key: PopKey, broker: str) -> int:
    return hash_of(*key[:-1], key.broker or broker)


def _among(keys: Int64s, places: Int64s, ack_keys: Int64s, ack_places: Int64s) -> Mask:
    """Tell which (key, place) are among the acknowledged ones."""
    all_keys = np.concatenate((keys, ack_keys))
    all_places = np.concatenate((places, ack_places))
    is_ack = np.arange(len(all_keys)) >= len(keys)
    order = np.lexsort((~is_ack, all_places, all_keys))
    by_key, by_place = all_keys[order], all_places[order]
    starts = np.ones(len(order), np.bool_)
    starts[1:] = (by_key[1:] != by_key[:-1]) | (by_place[1:] != by_place[:-1])
    # Acknowledgements come first of what is equal.
    group = np.cumsum(starts) - 1
    acked = is_ack[order][starts][group] if len(order) else np.empty(0, np.bool_)
    found = np.empty(len(order), np.bool_)
    found[order] = acked
    return found[: len(keys)]
