"""What we do to the Python worker that Spark runs us in: two things, both here.

**Errors.** Spark sends an error to the driver as a traceback, so its message stands below
thirty lines of pyspark and of us. A named error tells file, position, option and advice by
itself; while one passes, ``named_errors`` asks the worker for the message alone, as the
session setting ``spark.sql.execution.pyspark.udf.hideTraceback.enabled`` would for all. The
worker ends with its error, so the request does not outlive it. What the system refuses
(permissions, a full disk) becomes such an error; any other is a mistake of ours and keeps its
traceback. See pyspark.util#handle_worker_exception.

**Garbage collection.** pyspark's daemon calls ``gc.collect()`` after every task, which walks
all that numpy, pyarrow and pyspark imported: most of what an empty task costs. ``freeze_once``
takes the objects that are there after the first task out of the walk.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from mqstore.errors import StoreError


@contextmanager
def named_errors() -> Iterator[None]:
    """Let a StoreError or an OSError reach the user as one message, without a traceback."""
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
    """Spare this worker's later tasks the walk over everything imported."""
    gc.freeze()
