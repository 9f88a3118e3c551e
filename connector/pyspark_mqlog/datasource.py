"""The data source ``mqlog``: the methods that Spark calls on the driver.

Every Spark session imports this module, so its own imports are inside the methods. A user's
mistakes are raised here, before a task runs: by ``schema`` at ``load()``, by ``reader`` at the
first action if the user gave the schema (Spark then never calls ``schema``), by ``writer`` at
``save()``.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
    )
    from pyspark.sql.types import StructType

    from mqstore.request.plan import ReadPlan


class MqlogDataSource(DataSource):
    """Reads and writes RocketMQ store directories and running clusters.

    ``spark.read.format("mqlog").option("subscribe", "orders").load("/data/broker-a/store")``
    ``df.write.format("mqlog").mode("append").option("topic", "orders").save("/data/store")``
    """

    _plan: "ReadPlan | None" = None
    _was_pickled = False
    _is_sampled = False

    @classmethod
    def name(cls) -> str:
        return "mqlog"

    def schema(self) -> "StructType":
        from mqstore.errors import InvalidOptionError, StoreError
        from mqstore.request.body_schema import is_sampled, with_schema
        from mqstore.request.plan import plan_read, read_schema
        from pyspark_mqlog.batch_reader import is_of_start
        from pyspark_mqlog.options import is_create_table, names_stream, parse_read, parse_stream
        from pyspark_mqlog.schema import to_struct
        from pyspark_mqlog.worker import named_errors

        with named_errors():
            try:
                options = parse_read(self.options)
            except InvalidOptionError:
                # Spark does not say here whether it reads a batch or a stream.
                try:
                    stream = parse_stream(self.options)
                except InvalidOptionError:
                    if names_stream(self.options):
                        raise
                else:
                    return to_struct(read_schema(stream.read))
                raise
            self._is_sampled = is_sampled(options)
            options = with_schema(options)
            schema = read_schema(options)
            if not is_create_table(self.options):
                # Spark pickles the source after this call: reader() finds the plan.
                try:
                    self._plan = plan_read(options, schema.names)
                except StoreError as error:
                    # No error for a stream with a checkpoint; reader() raises it for a batch.
                    if not is_of_start(options, error):
                        raise
            return to_struct(schema)

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from mqstore.request.plan import plan_read
        from pyspark_mqlog.batch_reader import MqlogReader
        from pyspark_mqlog.options import parse_read
        from pyspark_mqlog.schema import check_projection, with_body_of
        from pyspark_mqlog.worker import named_errors

        with named_errors():
            options = with_body_of(schema, parse_read(self.options))
            columns = check_projection(schema, options)
            # Removed from the source, which Spark pickles to every task.
            plan, self._plan = self._plan, None
            if plan is None or plan.columns != columns:
                plan = plan_read(options, columns)
            return MqlogReader(schema, plan)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
        from mqstore.write.stage.settings import WriteSettings
        from pyspark_mqlog.batch_writer import MqlogWriter
        from pyspark_mqlog.cluster_writer import ClusterWriter
        from pyspark_mqlog.options import parse_write
        from pyspark_mqlog.worker import named_errors

        with named_errors():
            settings = parse_write(self.options)
            if isinstance(settings, WriteSettings):
                return MqlogWriter(settings, schema, overwrite=overwrite)
            return ClusterWriter(settings, schema, overwrite=overwrite)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802
        from dataclasses import replace

        from mqstore.errors import StoreError
        from mqstore.request.body_schema import check_known
        from pyspark_mqlog.options import parse_stream
        from pyspark_mqlog.schema import check_projection, with_body_of
        from pyspark_mqlog.start_keeping import stream_reader
        from pyspark_mqlog.stream_reader import MqlogStreamReader, RefusingStreamReader

        self._plan = None
        try:
            options = parse_stream(self.options)
            if self._is_sampled:
                check_known(options.read)  # Raises: each start of a stream has the same columns.
            options = replace(options, read=with_body_of(schema, options.read))
            columns = check_projection(schema, options.read)
        except StoreError as error:
            return RefusingStreamReader(error)
        return stream_reader(MqlogStreamReader(options, schema, columns))

    def streamWriter(  # noqa: N802
        self, schema: "StructType", overwrite: bool
    ) -> "DataSourceStreamWriter":
        from mqstore.deliver.prepare import prepare
        from mqstore.write.stage.settings import WriteSettings
        from pyspark_mqlog.cluster_writer import ClusterStreamWriter
        from pyspark_mqlog.options import parse_stream_write, stream_name
        from pyspark_mqlog.schema import write_schema
        from pyspark_mqlog.stream_writer import (
            MqlogStreamWriter,
            StreamSettings,
            plan_batch,
            refuse_complete,
        )
        from pyspark_mqlog.worker import named_errors

        with named_errors():
            if overwrite:
                raise refuse_complete()
            parsed = parse_stream_write(self.options)
            if not isinstance(parsed, WriteSettings):
                planned = (
                    None
                    if self._was_pickled
                    else prepare(parsed, write_schema(schema), is_stream=True)
                )
                return ClusterStreamWriter(planned)
            settings = StreamSettings(parsed, stream_name(self.options))
            job = None if self._was_pickled else plan_batch(settings, schema)
            return MqlogStreamWriter(settings, job)

    def __getstate__(self) -> dict[str, object]:
        # Spark plans a micro-batch with a new source, and commits it with one that was pickled.
        return {**self.__dict__, "_was_pickled": True}
