"""Diagnoses of an installation, and of a store or a cluster: see also mqstore.check.cluster.

Spark looks for data sources with the interpreter that PYSPARK_DRIVER_PYTHON or PYSPARK_PYTHON
names, else with PATH's ``python3``. If that one has no mqlog, or any of its ``pyspark_*`` modules
fails to import, the format is unknown, and Spark logs one WARN at most.

Reference: Spark's DataSourceManager, pyspark.sql.worker.lookup_data_sources.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mqlog_jobs import java
from mqlog_jobs.exit_codes import reason
from mqlog_jobs.java import JavaNotFoundError
from mqlog_jobs.places import Named
from mqlog_jobs.render import several, size
from mqstore.check.cluster import examine_cluster
from mqstore.check.condition import Condition, look
from mqstore.check.diagnosis import GOOD, Diagnosis
from mqstore.check.finding import ERROR, WARNING
from mqstore.errors import InvalidOptionError, StoreError
from mqstore.native.registry import COMPILED, kernels_in_use
from mqstore.read.directory import take

_ANSWER_SECONDS: Final = 60
_SOURCE: Final = "pyspark_mqlog"  # Not imported here: its import sets PYSPARK_PYTHON.
_VARIABLES: Final = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
# Spark's look-up of data sources, and what the source imports, with the error of each module.
_OF_THIS_MACHINE: Final = (
    "lies in an object store, and doctor looks at locks and processes of this machine: "
    "check its files with mqlog verify"
)
_PROBE: Final = """\
import importlib, json, pkgutil, sys
def problem(name):
    try:
        importlib.import_module(name)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
names = [m.name for m in pkgutil.iter_modules() if m.name.startswith("pyspark_")]
found = {name: problem(name) for name in [*names, "numpy", "pyarrow"]}
json.dump({"python": sys.version_info[:2], "modules": found}, sys.stdout)
"""


def examine(
    *paths: str | Path, commit_log: Sequence[str | Path] = (), options: Sequence[str] = ()
) -> Iterator[Diagnosis]:
    """Yield the diagnoses, also of the stores and the clusters that are given.

    ``commit_log`` names the CommitLog folders of the one store when they are others than commitlog,
    ``options`` are of the live reader. Raises InvalidOptionError for what is wrong on the line, and
    StoreNotFoundError for a glob that matches nothing.
    """
    folders = tuple(map(str, commit_log))
    named = Named(tuple(map(str, paths)), folders, tuple(options)).places()
    named.check_local(_OF_THIS_MACHINE)
    roots = named.roots()
    yield Diagnosis(GOOD, "Python", f"{sys.version.split()[0]}, {sys.executable}")
    yield from _packages()
    yield _kernels()
    yield _java()
    yield from _lookup()
    for root in roots:
        yield from _store(Path(root), folders)
    for settings in named.clusters:
        yield from examine_cluster(settings)


def _packages() -> Iterator[Diagnosis]:
    for package, accepted, advice in (
        ("pyspark", ((4, 0), (5,)), "pip install 'pyspark>=4.0,<5'"),
        ("pandas", ((2, 2), (3,)), "pip install 'pandas>=2.2,<3'"),
        ("pyarrow", ((18,), (1000,)), "pip install 'pyarrow>=18'"),
    ):
        try:
            installed = version(package)
        except PackageNotFoundError:
            yield Diagnosis(ERROR, package, "not installed", advice)
            continue
        numbers = tuple(int(part) for part in installed.split(".")[:2] if part.isdigit())
        low, high = accepted
        fits = low <= numbers < high
        yield Diagnosis(GOOD if fits else ERROR, package, installed, "" if fits else advice)


def _kernels() -> Diagnosis:
    try:
        used = kernels_in_use()
    except InvalidOptionError as error:
        return Diagnosis(ERROR, "Kernels", str(error))
    if used.kind == COMPILED:
        return Diagnosis(GOOD, "Kernels", str(used))
    advice = "the same results, more slowly: install mqlog again where a C compiler is"
    return Diagnosis(WARNING, "Kernels", str(used), advice)


def _java() -> Diagnosis:
    try:
        found = java.find()
    except JavaNotFoundError as error:
        return Diagnosis(ERROR, "Java", "none", str(error))
    return Diagnosis(GOOD, "Java", found.source)


def _lookup() -> Iterator[Diagnosis]:
    variable = next((name for name in _VARIABLES if os.environ.get(name)), None)
    named = os.environ[variable] if variable else "python3"
    subject = variable or "python3 on PATH"
    advice = (
        f"Spark looks for the source with it: export {variable or 'PYSPARK_PYTHON'}="
        f"{sys.executable}"
    )
    if variable is None:
        advice += ", or import pyspark_mqlog before the session starts"
    on_path = shutil.which(named)
    if on_path is None:
        yield Diagnosis(ERROR, subject, "not there", advice)
        return
    interpreter = str(Path(on_path).absolute())
    python, modules = _modules(interpreter)
    if _SOURCE not in modules:
        yield Diagnosis(ERROR, subject, f"{interpreter}: has no {_SOURCE}", advice)
        return
    broken = {name: problem for name, problem in modules.items() if problem}
    for name, problem in broken.items():
        hidden = "one module that cannot be imported hides all sources: repair or remove it"
        repair = hidden if name.startswith("pyspark_") else advice
        yield Diagnosis(ERROR, subject, f"{interpreter}: {name}: {problem}", repair)
    if python != list(sys.version_info[:2]):
        found = f"{interpreter}: Python {'.'.join(map(str, python))}"
        yield Diagnosis(ERROR, subject, found, f"a session of this one cannot use it: {advice}")
    elif not broken:
        yield Diagnosis(GOOD, subject, f"{interpreter}: finds {_SOURCE}")


def _modules(interpreter: str) -> tuple[list[int], dict[str, str | None]]:
    """Return the interpreter's version, and its modules with the error of the import, or None.

    The modules are those in which Spark would look, and those that the source needs.
    """
    try:
        done = subprocess.run(
            [interpreter, "-c", _PROBE],
            capture_output=True,
            check=False,
            cwd=Path(sys.executable).parent,  # The current folder's modules would be found first.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(_spark_path())},
            timeout=_ANSWER_SECONDS,
        )
        found = json.loads(done.stdout)
        return found["python"], found["modules"]
    except (OSError, ValueError, LookupError, TypeError, subprocess.TimeoutExpired):
        return [], {}


def _spark_path() -> Iterator[str]:
    """Yield what Spark's workers have on their path: pyspark comes with Spark, not with Python."""
    spec = find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        yield from map(str, Path(spec.origin).parent.glob("python/lib/*.zip"))
    if "PYTHONPATH" in os.environ:
        yield os.environ["PYTHONPATH"]


def _store(store: Path, commit_log: Sequence[str] = ()) -> Iterator[Diagnosis]:
    try:
        snapshot = take(store, commit_log=commit_log)
        condition = look(store)
    except StoreError as error:
        yield Diagnosis(ERROR, "Store", str(error))
        return
    except OSError as error:
        yield Diagnosis(ERROR, "Store", reason(error))
        return
    messages = sum(queue.high - queue.low for queue in snapshot.queues)
    found = (
        f"{snapshot.broker_name}: {several(messages, 'message')} in "
        f"{several(len(snapshot.queues), 'queue')}, CommitLog {size(snapshot.high - snapshot.low)}"
    )
    if condition.abort == "broker":
        advice = "abort exists: a broker runs, or crashed. It can be read; a write is refused"
        yield Diagnosis(WARNING, "Store", found, advice)
    else:
        yield Diagnosis(GOOD, "Store", found)
    yield from _writing(store, condition)


def _writing(store: Path, condition: Condition) -> Iterator[Diagnosis]:
    """Yield diagnoses of the store's lock and of an unfinished commit."""
    if condition.holders:
        holders = ", ".join(condition.holders)
        if condition.is_being_written:
            yield Diagnosis(GOOD, "Lock", f"held by a write of mqlog: {holders}")
        else:
            advice = "a write waits for it as long as lockTimeout says; it can be read"
            yield Diagnosis(WARNING, "Lock", f"held by {holders}", advice)
    if condition.pending is None:
        if condition.abort == "mqlog" and not condition.is_being_written:
            advice = f"the next write cleans up, or: mqlog recover {store}"
            yield Diagnosis(WARNING, "Commit", "the last one was killed as it ended", advice)
        return
    found = f"{condition.pending} is {condition.pending_state}"
    if condition.is_being_written:
        yield Diagnosis(GOOD, "Commit", f"{found}, and being finished")
    else:
        advice = f"readers see it once it is finished, by the next write, or: mqlog recover {store}"
        yield Diagnosis(WARNING, "Commit", f"{found}, not finished", advice)
