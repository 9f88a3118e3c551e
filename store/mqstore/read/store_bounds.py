"""A store in a directory as an origin of messages.

Reference: DefaultMessageStore#getOffsetInQueueByTime, ConsumeQueue#getOffsetInQueueByTime.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

import numpy as np

from mqstore.errors import CorruptStoreError, InvalidOptionError, StoreError
from mqstore.files.base.store_dir import StoreDir, open_dir
from mqstore.files.config import stream_groups
from mqstore.files.config.broker_config import BrokerConfig, TopicConfig
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.rocksdb.timeline import read_timeline
from mqstore.files.store import Store
from mqstore.format.arrays import TopicQueue
from mqstore.format.names import TIMER_TOPIC
from mqstore.read.broker_state import BrokerFacts
from mqstore.read.capabilities import COMMIT_GROUP
from mqstore.read.compaction import compaction_topics, not_of, warn_of
from mqstore.read.errors import StoreNotSharedError
from mqstore.read.log_files import file_written_ms, log_state
from mqstore.read.lookup import narrow
from mqstore.read.queues import QueueBounds, QueueFilter
from mqstore.read.retention import LogState, RetentionPolicy
from mqstore.read.snapshot import configured, name_of, take_snapshot
from mqstore.read.source import QueueSlice, Snapshot, Weighed
from mqstore.read.store_records import StoreRecords
from mqstore.read.tail import StoreTail
from mqstore.read.tier_bounds import noted, tiered_queues, widened
from mqstore.read.weights import weigh_slice
from mqstore.read.witness import LogWitness, witness_of

_LOG = logging.getLogger(__name__)
_LOOKED_AT_MESSAGES: Final = 4096
_LOOKED_AT_OF_QUEUE: Final = 64


@dataclass(frozen=True, slots=True)
class StoreOrigin(StoreDir):
    """A store's root and its CommitLog folders, which tasks must see under the same names.

    ``witness`` is of the log as the driver saw it; it says nothing of what the origin is.
    """

    witness: LogWitness | None = field(default=None, compare=False, repr=False, kw_only=True)

    @property
    def name(self) -> str:
        """The root."""
        return self.root

    def bounds(self, broker_name: str | None = None) -> "StoreBounds":
        """Open the store to plan a read; without a name, it is asked for when first needed."""
        return GrowingBounds(self, broker_name)

    def records(self, read_mode: str = "pread") -> StoreRecords:
        """Open the store to read records. Raises as ``open_origin``, StoreNotSharedError."""
        place = open_dir(self.folder, self.commit_log, in_batches=True)
        return StoreRecords(self.witnessed(Store(place, read_mode)))

    def witnessed(self, store: Store) -> Store:
        """Return a store that a task opened; StoreNotSharedError if it is another one."""
        if self.witness is not None:
            self.witness.check(store.log, self.root)
        return store

    def check_planned(self) -> None:
        """Raise StoreNotSharedError if another store, or none, is under the path here."""
        try:
            with Store(self) as store:
                self.witnessed(store)
        except FileNotFoundError:
            raise StoreNotSharedError(self.root, "there is no CommitLog here") from None


class StoreBounds:
    """A BoundsSource over a store. What is listed stays as it was at the last ``snapshot``."""

    def __init__(self, origin: StoreOrigin, broker_name: str | None = None) -> None:
        self.origin = origin
        self.store = self.open_store()
        self._given_name = broker_name
        self._reads_records = True
        self._left_out: set[str] = set()

    @cached_property
    def broker_name(self) -> str:
        """The name given, else the store's own."""
        return self._given_name or name_of(self.store)

    @property
    def planned(self) -> StoreOrigin | None:
        """The origin with the witness of its log; None of a store that needs none."""
        if self.origin.witness is not None:
            return self.origin
        if not self.origin.folder.is_by_path:
            return None
        try:
            witness = witness_of(self.store.log)
        except (OSError, StoreError):  # What is wrong with it, those say who read it.
            return None
        return None if witness is None else replace(self.origin, witness=witness)

    @property
    def config(self) -> BrokerConfig:
        """The files of config/."""
        return self.store.config

    def open_store(self) -> Store:
        """Return the store, of which nothing is listed yet."""
        return Store(self.origin)

    def close(self) -> None:
        """Close the store's CommitLog."""
        self.store.close()

    def topics(self) -> set[str]:
        """Return the topics with a ConsumeQueue and those in topics.json."""
        return {topic for topic, _ in self.store.queues} | set(configured(self.store))

    def topic_configs(self) -> Mapping[str, TopicConfig]:
        """Return topics.json; empty where the broker keeps it in RocksDB."""
        return configured(self.store)

    def broker(self, snapshot: Snapshot) -> BrokerFacts:
        """Return the root and the CommitLog's bounds."""
        return BrokerFacts(self.origin.root, None, snapshot.low, snapshot.high)

    def retention_policy(self) -> RetentionPolicy | None:
        """Return None: a broker's settings are not in its store."""

    def log_state(self) -> LogState | None:
        """Return what the file system says of the files; None where there is none."""
        return log_state(self.store)

    def file_written_ms(self, physical_offset: int) -> int | None:
        """Return what the file system says of the file."""
        return file_written_ms(self.store, physical_offset)

    def timers_delivered_ms(self) -> int:
        """Return what config/timercheck says, or RocksDB where it took up more than the wheel.

        Of a broker that runs or was killed RocksDB lags: there it is the clock of the wheel.
        """
        found = self.store.timer_checkpoint()
        by_wheel = 0 if found is None else int(found["last_read_time_ms"])
        taken_up = 0 if found is None else int(found["last_timer_queue_offset"])
        high = self.store.queue(TIMER_TOPIC, 0).bounds(self.store.log.low)[1]
        if self.store.is_unclean or taken_up >= high:
            return by_wheel
        try:
            timeline = read_timeline(self.store.place.folder)
        except (StoreError, OSError) as error:
            _LOG.warning("timers are told by the clock of the wheel: %s", error)
            return by_wheel
        if timeline is None or timeline.taken_up <= taken_up:
            return by_wheel
        return timeline.delivered_ms + 1

    def snapshot(
        self, topics: Callable[[str], bool] | None = None, *, strict: bool = True
    ) -> Snapshot:
        """Return the bounds of the store's queues, which are listed again for it.

        Compaction topics are among ``refused``, with a warning.
        """
        compacted = compaction_topics(self.store)
        found = self.every(not_of(compacted, topics), strict=strict)
        chosen = {t: error for t, error in compacted.items() if topics is None or topics(t)}
        if not chosen:
            return found
        if not chosen.keys() <= self._left_out:
            self._left_out |= chosen.keys()
            warn_of(self.origin.name, chosen)
        return replace(found, refused=(*found.refused, *chosen.items()))

    def every(
        self, topics: Callable[[str], bool] | None = None, *, strict: bool = True
    ) -> Snapshot:
        """Return the snapshot, of compaction topics the ordinary queues: as copies need them."""
        self.close()
        self.store = self.open_store()
        found = take_snapshot(
            self.store,
            self.origin,
            self._given_name,
            topics,
            strict=strict,
            reads_records=self._reads_records,
        )
        self.origin = replace(self.origin, witness=witness_of(self.store.log))
        found = replace(found, origin=self.origin)
        return noted(found, tiered_queues(self.origin.folder))

    def held(self, topics: Callable[[str], bool] | None = None, *, strict: bool = True) -> Snapshot:
        """Return the snapshot; files that the CommitLog lacks are a warning: units tell of it.

        Of a broker with tiered storage, queues begin where that does.
        """
        self._reads_records = False
        try:
            return widened(self.snapshot(topics, strict=strict))
        finally:
            self._reads_records = True

    def first_at(self, queues: Sequence[QueueBounds], times_ms: Sequence[int]) -> list[int]:
        """Bisect: store timestamps do not go back within a queue (format rule §5.8.3)."""
        held = [replace(queue, low=queue.readable_low) for queue in queues]
        return [self._first(queue, ms) for queue, ms in zip(held, times_ms, strict=True)]

    def went_back(self, queues: Sequence[QueueBounds]) -> list[bool]:
        """Look at 2 to 64 messages of each queue, spread evenly, the first and the last of them."""
        most = (
            _LOOKED_AT_MESSAGES // max(1, len(queues))
            if not self.store.place.folder.is_remote
            else 0
        )
        return [self._goes_back(queue, min(max(most, 2), _LOOKED_AT_OF_QUEUE)) for queue in queues]

    def _goes_back(self, queue: QueueBounds, most: int) -> bool:
        if queue.high - queue.low < 2:
            return False
        units, before = self.store.queue(queue.topic, queue.queue_id), 0
        for number in np.linspace(queue.low, queue.high - 1, most).astype(np.int64).tolist():
            with suppress(CorruptStoreError, FileNotFoundError):  # Reads of it tell.
                unit = units.read(number, number + 1)[0]
                header = self.store.log.header(int(unit["physical_offset"]))
                if header is None or int(header["total_size"]) != int(unit["size"]):
                    continue
                stored_ms = int(header["store_timestamp_ms"])
                if stored_ms < before:
                    return True
                before = stored_ms
        return False

    def weigh(self, slices: Sequence[QueueSlice], *, strict: bool = True) -> list[Weighed]:
        """Return bytes from the sizes in the ConsumeQueues; exact up to a million messages."""
        among = partial(weigh_slice, self.store, strict=strict, among=len(slices))
        if not self.store.has_queue_files:
            return list(map(among, slices))
        return self.store.place.folder.each(among, slices)

    def narrow(
        self, slices: Sequence[QueueSlice], keys: Sequence[str], msg_ids: Sequence[str]
    ) -> list[QueueSlice]:
        """Return what the IndexFiles leave of the slices, and what they do not cover."""
        return narrow(self.store, slices, keys, msg_ids)

    def _first(self, queue: QueueBounds, ms: int) -> int:
        units = self.store.queue(queue.topic, queue.queue_id)
        is_late = late_test(self.store.log, ms, "the ConsumeQueue points outside the CommitLog")
        return units.first(queue.low, queue.high, is_late)


def late_test(log: CommitLog, ms: int, reason: str) -> Callable[[np.void], bool]:
    """Return the test whether the record of a unit was stored at ``ms`` (epoch) or later.

    It raises CorruptStoreError with ``reason`` where the log has no record at the unit's place.
    """

    def is_late(unit: np.void) -> bool:
        physical_offset = int(unit["physical_offset"])
        header = log.header(physical_offset)
        if header is None:
            raise log.corrupt(physical_offset, reason)
        return int(header["store_timestamp_ms"]) >= ms

    return is_late


class GrowingBounds(StoreBounds):
    """StoreBounds of a store in a directory, which a broker may append to and we may write to."""

    def tail(
        self, chosen: QueueFilter, *, strict: bool = True, fail_on_data_loss: bool = True
    ) -> StoreTail:
        """Return the store's moving bounds."""
        return StoreTail(
            self.origin,
            lambda: self.snapshot(chosen.topics, strict=strict),
            chosen,
            fail_on_data_loss=fail_on_data_loss,
        )

    def claim_group(self, group: str) -> None:
        """Refuse a name that the broker knows: two would write the same offsets; make the folder.

        Streams' groups are files below .mqlog.
        """
        root, committed = self.store.root, self.config.committed()
        known = {name for (_, name), found in committed.items() if found.is_brokers}
        if group in known | self.config.groups():
            expected = f"is a consumer group of the broker of {root}: choose another name"
            raise InvalidOptionError(COMMIT_GROUP, group, expected)
        try:
            stream_groups.make_folder(self.origin)
        except OSError as error:
            expected = (
                f"progress is kept in {root}/.mqlog, which cannot be written to ({error}); "
                "leave the option out, or let this user write there"
            )
            raise InvalidOptionError(COMMIT_GROUP, group, expected) from error

    def publish_group(self, group: str, queues: Mapping[TopicQueue, int]) -> bool:
        """Write the group's file."""
        stream_groups.publish(self.origin, group, queues)
        return True
