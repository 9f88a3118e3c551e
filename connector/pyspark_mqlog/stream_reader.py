"""The stream reader: it gives offsets in one process beside the driver, and reads in tasks.

Spark makes one reader for offsets, and another for the tasks, of which only ``read`` is used; so
stores are opened when an offset is needed. The checkpoint's offsets are authoritative:
``partitions`` of a restarted query gets offsets that another process computed.

If a query is restarted before its first batch is done, Spark requests the initial offset again,
and keeps the end of that batch. With a start that depends on the moment (``latest``, a time, a
group), messages between the two starts would be lost. So the first batch of such a query is
empty: it makes Spark record where the query started. Reference:
MicroBatchExecution#constructNextBatch; Spark's Kafka source has a file of its own for this
(KafkaSourceInitialOffsetWriter).
"""

import time
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from mqstore.errors import StoreError
from mqstore.read.follow import Follower
from mqstore.read.group_progress import PublishedProgress
from mqstore.read.progress import Progress, brokers_in, from_json, packed, to_json, unpacked
from mqstore.read.selection import OpenStores
from mqstore.request.chosen_queues import open_stores, starting_progress, takes_topics_of_group
from mqstore.request.plan import Work, empty_work, followed_work
from mqstore.request.read_options import StreamOptions
from mqstore.request.sharing import SharedWork, of_task
from pyspark_mqlog.batch_reader import read_work
from pyspark_mqlog.compat import (
    Json,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark_mqlog.same_version import SameVersion
from pyspark_mqlog.worker import named_errors

_PACKED_FROM: Final = 10_000  # Queues, whose offsets are 200 KB of JSON.
_MUCH_S: Final = 0.0005  # A twentieth of the 10 ms after which Spark asks again.
_REST_SHARE: Final = 19
_LONGEST_REST_S: Final = 1.0
_START: Final = "/start"  # In the end of a first batch, see first_end. No topic has a slash.


class MqlogStreamReader(SameVersion, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows stores: every message once, in the order of its queue."""

    def __init__(
        self, options: StreamOptions, schema: StructType, columns: tuple[str, ...]
    ) -> None:
        self._options = options
        self._schema = schema
        self._columns = columns
        self._task: Work = empty_work(options.read, columns)
        self._group: PublishedProgress | None = None
        self._initial: Json | None = None
        self._marks_start = False
        self._is_idle = self._ends = False
        self._spent_s = 0.0
        self._known: tuple[Json, Progress] = ({}, {})
        self._written: tuple[Progress, Json] = ({}, {})

    def __getstate__(self) -> dict[str, object]:
        # All that a task needs beside its partition: the reader is pickled before a batch is known.
        return {"_schema": self._schema, "_task": self._task}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark has no limit of two kinds, and passes this one back; the options have them all.
        limits = self._options
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with named_errors():
            self._ends = True
            self._follower.aim()

    def initialOffset(self) -> Json:  # noqa: N802
        with named_errors():
            if self._initial is None:
                self._follower.await_all()
                options, snapshots = self._options.read, self._follower.snapshots
                stores = self._stores
                stores.check_chosen(snapshots)  # A new query: none of them was read before.
                self._initial = self._json(starting_progress(options, stores, snapshots))
                self._marks_start = not self._options.has_fixed_start
            return self._initial

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        with named_errors():
            self._publish(start)  # Spark does not commit the last batch of AvailableNow.
            marks, self._marks_start = self._marks_start, False
            if marks and start == self._initial:
                return start
            progress = self._progress(start)
            end = self._follower.next(progress, limited=not isinstance(limit, ReadAllAvailable))
            if end == progress:
                self._rest()
                return start  # Spark compares JSON text, and would run an empty batch.
            self._is_idle = False
            return self._json(end)

    def first_end(self, limit: ReadLimit) -> Json:
        """Return the end of a query's first batch; a start that moves is part of it.

        For Spark before 4.2, whose AvailableNow is one batch, which therefore may not be empty.
        """
        start = self.initialOffset()
        self._marks_start = False
        end = self.latestOffset(start, limit)
        return end if self._options.has_fixed_start else {**end, _START: start}

    def leaves_some(self, end: Json) -> bool:
        """Tell whether messages wait behind a batch that ends there."""
        with named_errors():
            at = self._progress(end)
            return any(high > at.get(queue, 0) for queue, high in self._follower.latest().items())

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        with named_errors():
            latest = self._follower.latest()
            # Spark's progress shows it, in each trigger: of very many queues nobody reads it.
            return None if len(latest) > _PACKED_FROM else self._json(latest)

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        with named_errors():
            self._marks_start = False
            begin = self._progress(end.get(_START, start))
            slices = self._follower.slices(begin, self._progress(end))
            work = followed_work(self._options.read, slices, self._columns)
            return [InputPartition(of_task(one)) for one in work]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_work(self.work(partition), self._schema)

    def work(self, partition: InputPartition) -> Work:
        """Return the work of a partition's task."""
        places, row = partition.value
        return SharedWork(self._task, places).of(row)

    def commit(self, end: Json) -> None:
        with named_errors():
            self._publish(end)

    def stop(self) -> None:
        for name in ("_follower", "_stores"):
            if name in vars(self):  # It was opened.
                getattr(self, name).close()
        if self._group is not None:
            self._group.close()

    @cached_property
    def _stores(self) -> OpenStores:
        return open_stores(self._options.read)

    @cached_property
    def _follower(self) -> Follower:
        options = self._options.read
        loss = options.fail_on_data_loss
        return Follower(
            self._stores.tails(fail_on_data_loss=loss),
            self._options,
            fail_on_data_loss=loss,
            same_topics=takes_topics_of_group(options),
            find=self._stores.tails_beside,
        )

    def _rest(self) -> None:
        """Sleep a moment in a query that is idle, if looks at very many queues cost much.

        Spark asks again after 10 ms; a twentieth of a core is enough. Its share of the processor
        since the last such moment decides, the JSON among it.
        """
        spent_s = time.process_time() - self._spent_s
        if self._is_idle and not self._ends and spent_s > _MUCH_S:
            time.sleep(min(_REST_SHARE * spent_s, _LONGEST_REST_S))
        self._is_idle, self._spent_s = True, time.process_time()

    def _publish(self, done: Json) -> None:
        """Publish the progress as commitGroup's, if it is set."""
        name = self._options.commit_group
        if name is None:
            return
        if self._group is None:
            self._group = PublishedProgress(name, self._follower.origins)
        self._group.publish(self._progress(done))

    def _progress(self, document: Json) -> Progress:
        # An idle query passes the same offsets dozens of times a second.
        if self._known[0] != document:
            given = {topic: queues for topic, queues in document.items() if topic != _START}
            places = unpacked(given)
            self._follower.meet(brokers_in(places))
            self._known = document, from_json(places, self._follower.brokers)
        return self._known[1]

    def _json(self, progress: Progress) -> Json:
        if self._written[0] is not progress:
            many = self._stores.has_many_brokers
            found = to_json(progress, by_broker=many)
            self._written = progress, packed(found) if len(progress) > _PACKED_FROM else found
        return self._written[1]


class RefusingStreamReader(DataSourceStreamReader):
    """Raises an error at Spark's first call, for a new query or a restarted one.

    If ``streamReader`` itself raises, Spark 4.3 tries to stop the missing reader and shows that
    failure instead (python_streaming_source_runner).
    """

    def __init__(self, error: StoreError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802
        self._refuse()

    def latestOffset(self, *_asked: object) -> NoReturn:  # noqa: N802
        self._refuse()

    def partitions(self, start: Json, end: Json) -> NoReturn:
        self._refuse()

    def read(self, partition: object) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        with named_errors():
            raise self._error
