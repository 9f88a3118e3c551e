"""The stream reader: asked for offsets in one process beside the driver, read in tasks.

Spark builds one for the driver's questions and another, of which only ``read`` is used, for the
tasks; so stores are opened at the first question. What Spark's checkpoint says is the truth:
``partitions`` of a restarted query gets offsets that another process gave, and nothing else.

Spark asks for the initial offset again when a query is restarted before its first batch is
done, but keeps where that batch ended. A start that moves (``latest``, a time, a group) would
then lose what lay between. So the first batch of such a query is empty: it only makes Spark
write down where the query started. Reference: MicroBatchExecution#constructNextBatch; Spark's
Kafka source keeps a file of its own for this (KafkaSourceInitialOffsetWriter).
"""

from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mqstore.errors import StoreError
from mqstore.read.follow import Follower
from mqstore.read.group_progress import GroupProgress
from mqstore.read.progress import Progress, from_json, to_json
from mqstore.read.selection import OpenStores
from pyspark_mqlog.batch_reader import MessageWork, read_work, scan_settings
from pyspark_mqlog.pruning import (
    in_partitions,
    open_stores,
    starting_progress,
    takes_topics_of_group,
)
from pyspark_mqlog.read_options import StreamOptions
from pyspark_mqlog.worker import named_errors

Json = dict[str, Any]


class MqlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows stores: every message once, in the order of its queue."""

    def __init__(
        self, options: StreamOptions, schema: StructType, columns: tuple[str, ...]
    ) -> None:
        self._options = options
        self._schema = schema
        self._columns = columns
        self._stores: OpenStores | None = None
        self._follower: Follower | None = None
        self._group: GroupProgress | None = None
        self._initial: Json | None = None
        self._marks_start = False
        self._known: tuple[Json, Progress] = ({}, {})
        self._told: tuple[Progress, Json] = ({}, {})

    def __getstate__(self) -> dict[str, object]:
        return {"_schema": self._schema}  # All that a task needs.

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark has no limit of two kinds; it gives this one back, and we know them all.
        admission = self._options.admission
        if admission.max_offsets is not None:
            return ReadMaxRows(admission.max_offsets)
        if admission.max_bytes is not None:
            return ReadMaxBytes(admission.max_bytes)
        if admission.min_offsets is not None:
            return ReadMinRows(admission.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with named_errors():
            self._follow().aim()

    def initialOffset(self) -> Json:  # noqa: N802
        with named_errors():
            if self._initial is None:
                options, snapshots = self._options.read, self._follow().snapshots
                stores = self._opened()
                stores.check_chosen(snapshots)  # Nothing was read that is gone now.
                self._initial = self._json(starting_progress(options, stores, snapshots))
                self._marks_start = not self._options.has_fixed_start
            return self._initial

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        with named_errors():
            self._publish(start)  # A batch that ends an AvailableNow is not committed otherwise.
            marks, self._marks_start = self._marks_start, False
            if marks and start == self._initial:
                return start
            progress = self._progress(start)
            end = self._follow().next(progress, limited=not isinstance(limit, ReadAllAvailable))
            if end == progress:
                return start  # Spark compares text, and would run an empty batch.
            return self._json(end)

    def reportLatestOffset(self) -> Json:  # noqa: N802
        with named_errors():
            return self._json(self._follow().latest())

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        with named_errors():
            self._marks_start = False
            slices = self._follow().slices(self._progress(start), self._progress(end))
            settings = scan_settings(self._options.read, self._columns)
            shares = in_partitions(self._options.read, slices)
            return [InputPartition(MessageWork(share, settings)) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_work(partition, self._schema)

    def commit(self, end: Json) -> None:
        with named_errors():
            self._publish(end)

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.close()
        if self._stores is not None:
            self._stores.close()

    def _opened(self) -> OpenStores:
        if self._stores is None:
            self._stores = open_stores(self._options.read)
        return self._stores

    def _follow(self) -> Follower:
        if self._follower is None:
            options = self._options.read
            loss = options.fail_on_data_loss
            self._follower = Follower(
                self._opened().tails(fail_on_data_loss=loss),
                self._options.admission,
                fail_on_data_loss=loss,
                same_topics=takes_topics_of_group(options),
            )
        return self._follower

    def _publish(self, done: Json) -> None:
        """Tell the group's progress; the checkpoint is the stream's own."""
        name, follower = self._options.commit_group, self._follow()
        if name is None:
            return
        if self._group is None:
            self._group = GroupProgress(name, follower.origins)
        self._group.publish(self._progress(done))

    def _progress(self, document: Json) -> Progress:
        # Idle, Spark gives the same offsets dozens of times a second.
        if self._known[0] != document:
            self._known = document, from_json(document, self._follow().brokers)
        return self._known[1]

    def _json(self, progress: Progress) -> Json:
        if self._told[0] is not progress:
            self._told = progress, to_json(progress, by_broker=len(self._follow().brokers) > 1)
        return self._told[1]


class RefusingStreamReader(DataSourceStreamReader):
    """Raises an error at what Spark asks first, of a new query or a restarted one.

    Spark 4.3 stops the reader it did not get if ``streamReader`` itself raises, and shows that
    failure instead of ours (python_streaming_source_runner).
    """

    def __init__(self, error: StoreError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802
        self._refuse()

    def latestOffset(self, start: Json, limit: ReadLimit) -> NoReturn:  # noqa: N802
        self._refuse()

    def partitions(self, start: Json, end: Json) -> NoReturn:
        self._refuse()

    def read(self, partition: object) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        with named_errors():
            raise self._error
