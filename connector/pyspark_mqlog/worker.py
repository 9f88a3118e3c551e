"""Settings of the Python worker: errors without a traceback, and cheap garbage collection.

**Errors.** Spark sends an error to the driver as a traceback, with the message below some thirty
lines of pyspark and mqlog. A StoreError names file, position, option and advice itself, so for
one ``named_errors`` requests the message alone, as the session setting
``spark.sql.execution.pyspark.udf.hideTraceback.enabled`` does for all errors. The worker ends
with its error, so the request affects no other. An OSError (permissions, a full disk) becomes a
StoreError; any other error is a bug and keeps its traceback. See
pyspark.util#handle_worker_exception.

**Garbage collection.** pyspark's daemon calls ``gc.collect()`` after every task, which visits
all objects that numpy, pyarrow and pyspark created at import: most of the cost of an empty task.
``freeze_once`` excludes the objects that exist after the first task.
"""

import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import pyarrow as pa

from mqstore.errors import StoreError
from pyspark_mqlog.schema import conform


@contextmanager
def named_errors() -> Iterator[None]:
    """Pass a StoreError or an OSError to the user as one message, without a traceback."""
    try:
        yield
    except StoreError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
    except OSError as error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise StoreError(str(error)) from error


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
