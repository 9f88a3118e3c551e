"""Imports mqlog in a daemon of Spark's Python workers, before it forks them.

The folder is on the path of programs whose workers a test kills: each new one would import all of
it again. Other sessions have the workers of ``fork_server``, which have other parents.
"""

import gc
import importlib
import sys

WORKERS = {
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
}
MODULES = ("batch_reader", "batch_writer", "cluster_writer", "stream_reader", "stream_writer")

if "pyspark.daemon" in sys.orig_argv and sys.orig_argv[-1] in WORKERS:
    importlib.import_module("pandas")
    for module in MODULES:
        importlib.import_module(f"pyspark_mqlog.{module}")
    gc.collect()
    gc.freeze()
