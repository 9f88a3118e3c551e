"""One archive at a time works with a checkpoint.

Two can lose messages: the table knows a micro-batch by its number alone, and takes it from the
first. The checkpoint may then have the offsets of the other one, of which the table has no rows.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from mqlog_jobs.spark.spark_paths import local_path
from mqstore.errors import InvalidOptionError

IN_USE: Final = "another archive works with it: each needs a checkpoint of its own"


@contextmanager
def only_run(spark: SparkSession, checkpoint: str) -> Iterator[None]:
    """Hold a checkpoint, which is made if it is not there, until the end of a run.

    The hold ends with its process. A checkpoint that is not on the driver's own file system is not
    held. Raises InvalidOptionError if another process holds it.
    """
    folder = local_path(spark, checkpoint)
    if folder is None:
        yield
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidOptionError("--checkpoint", checkpoint, IN_USE) from None
        yield
    finally:
        os.close(held)
