"""The interpreter that Spark looks for data sources with, and runs them in.

Spark takes the one that PYSPARK_DRIVER_PYTHON names, else PYSPARK_PYTHON, else ``python3`` of
PATH, whatever interpreter the program runs in: ``.venv/bin/python job.py`` without activating
.venv would be looked at with another Python, which has no mqlog, and ``format("mqlog")`` would
be unknown (DATA_SOURCE_NOT_FOUND). The JVM takes the names from the environment it is started
with, so they have to be there before the session.

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
    """Let a Spark that is started later use this interpreter, unless one is named.

    Not where PATH leads to it anyway: its plain name is then good for other machines as well.
    """
    if not any(os.environ.get(name) for name in NAMES) and not _is_on_path():
        os.environ["PYSPARK_PYTHON"] = sys.executable


def use_this(spark: "SparkSession") -> None:
    """Let a local session that was started before ``name_this`` run our source here, too.

    Only one that was named no interpreter. On a cluster this one may not be there.
    """
    context = getattr(spark, "_sc", None)  # A session of Spark Connect has none.
    if context is None or context.pythonExec != DEFAULT or _is_on_path():
        return
    if context.master.startswith("local"):
        context.pythonExec = sys.executable


def is_found(spark: "SparkSession", name: str) -> bool:
    """Tell whether Spark has found the source by itself, in the place this code is from.

    What travels with ``--py-files`` comes as a zip; what the look-up found is then another.
    """
    java = getattr(spark, "_jsparkSession", None)  # A session of Spark Connect has none.
    if java is None or not Path(__file__).is_file():
        return False
    try:
        return bool(java.sessionState().dataSourceManager().dataSourceExists(name))
    except Py4JError:  # A cluster that lets nobody look into its JVM.
        return False


def _is_on_path() -> bool:
    """Tell whether PATH's python3 is of this environment: it may be another name of it."""
    found = shutil.which(DEFAULT)
    return found is not None and Path(found).absolute().parent == Path(sys.executable).parent
