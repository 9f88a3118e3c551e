"""Settings of the Python worker: errors without a traceback, and cheap garbage collection.

**Errors.** Spark sends an error to the driver as a traceback, with the message below some thirty
lines of pyspark and mqlog. A StoreError names file, position, option and advice itself, so for
one ``named_errors`` requests the message alone, as the session setting
``spark.sql.execution.pyspark.udf.hideTraceback.enabled`` does for all errors. The worker ends
with its error, so the request affects no other. An OSError (permissions, a full disk) becomes a
StoreError; any other error is a bug and keeps its traceback. Below it stands the host, in a
cluster: what a path leads to may differ from host to host. See
pyspark.util#handle_worker_exception.

**Garbage collection.** pyspark's daemon calls ``gc.collect()`` after every task, which visits
all objects that numpy, pyarrow and pyspark created at import: most of the cost of an empty task.
``freeze_once`` excludes the objects that exist after the first task.
"""

import gc
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import pyarrow as pa
from pyspark import TaskContext

from mqstore.errors import StoreError
from pyspark_mqlog.schema import conform


@contextmanager
def named_errors() -> Iterator[None]:
    """Pass a StoreError or an OSError to the user as one message, without a traceback."""
    try:
        yield
    except StoreError as error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        _note_host(error)
        raise
    except OSError as error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        named = StoreError(str(error))
        _note_host(named)
        raise named from error


def _note_host(error: StoreError) -> None:
    """Add the host to an error of a task that runs in a cluster.

    Source: SQLExecution#withSQLConfPropagated, which hands the session's settings on to tasks.
    """
    context = TaskContext.get()
    master = None if context is None else context.getLocalProperty("spark.master")
    if master and not master.startswith("local") and not hasattr(error, "__notes__"):
        error.add_note(f"on host {socket.gethostname()}")


@cache
def freeze_once() -> None:
    """Exclude imported objects from the garbage collections of this worker's later tasks."""
    gc.freeze()


def conformed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task that reads, with the names, types and flags of ``schema``."""
    with named_errors():
        for batch in batches:
            yield conform(batch, schema)
    freeze_once()
