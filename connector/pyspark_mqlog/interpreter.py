"""The interpreter that Spark looks for data sources with, and runs them in.

Spark takes PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, else ``python3`` of PATH, whatever
interpreter the program runs in. ``.venv/bin/python job.py`` without an activated .venv would look
with another Python, which has no mqlog, and fail with DATA_SOURCE_NOT_FOUND. The JVM reads the
variables from its environment, so they have to be set before the session starts.

Reference: org.apache.spark.api.python.PythonUtils#defaultPythonExec, pyspark.SparkContext.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES: Final = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
"""The environment variables that name it, in Spark's order."""
DEFAULT: Final = "python3"


def name_this() -> None:
    """Set PYSPARK_PYTHON to this interpreter for a later session, unless a variable names one.

    If ``python3`` of PATH is this one nothing is set: that name is valid on other machines too.
    """
    if _named() == DEFAULT and not _is_on_path():
        os.environ["PYSPARK_PYTHON"] = sys.executable


def use_this(spark: "SparkSession") -> None:
    """Let a local session that was started before ``name_this`` run the source in this interpreter.

    Changes no session with a named interpreter, and none on a cluster, which may not have this one.
    """
    context = getattr(spark, "_sc", None)  # A session of Spark Connect has none.
    if context is None or context.pythonExec != DEFAULT or _is_on_path():
        return
    if context.master.startswith("local"):
        context.pythonExec = sys.executable


def is_found(spark: "SparkSession", name: str) -> bool:
    """Tell whether Spark's look-up has found the source, to run it in the session's interpreter.

    A package sent with ``--py-files`` is a zip; a source that the look-up found is then another.
    """
    java = getattr(spark, "_jsparkSession", None)  # A session of Spark Connect has none.
    if java is None or not Path(__file__).is_file() or spark.sparkContext.pythonExec != _named():
        return False
    try:
        return bool(java.sessionState().dataSourceManager().dataSourceExists(name))
    except Py4JError:  # A cluster that gives no access to its JVM.
        return False


def _named() -> str:
    """Return the interpreter of the look-up, which also runs the tasks of a source it found."""
    return next((os.environ[name] for name in NAMES if os.environ.get(name)), DEFAULT)


def _is_on_path() -> bool:
    """Tell whether ``python3`` of PATH belongs to this environment."""
    found = shutil.which(DEFAULT)
    return found is not None and Path(found).absolute().parent == Path(sys.executable).parent
