"""Diagnoses of an installation: Python, its packages, Java, and Spark's look-up of the source.

The standard library alone, so that ``mqlog doctor`` can name a package that is missing.

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
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mqlog_jobs.machine import java
from mqlog_jobs.machine.codes import FOUND
from mqlog_jobs.machine.java import JavaNotFoundError
from mqstore.diagnosis import ERROR, GOOD, REMARK, WARNING, Diagnosis, labels
from mqstore.errors import printable, shown

_ANSWER_SECONDS: Final = 60
_SOURCE: Final = "pyspark_mqlog"  # Not imported here: its import sets PYSPARK_PYTHON.
_VARIABLES: Final = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
# Spark's look-up of data sources, and what the source imports, with the error of each module.
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


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that pyproject.toml names: its versions, and what needs it."""

    name: str
    low: tuple[int, ...]
    high: tuple[int, ...] | None = None
    """The first version that does not fit any more; None: none is known."""
    of_spark: bool = False
    """Of the extra ``spark``: nothing but Spark needs it."""
    of_command: bool = False
    """The command needs it, and the source does not."""
    of_speed: bool = False
    """Without it the results are the same, more slowly."""

    @property
    def module(self) -> str:
        """Return the name that a program imports."""
        return self.name.replace("-", "_")

    def __str__(self) -> str:
        """Return the words for pip."""
        low = ".".join(map(str, self.low))
        high = f",<{'.'.join(map(str, self.high))}" if self.high else ""
        return f"{self.name}>={low}{high}"


REQUIREMENTS: Final = (
    Requirement("pyspark", (4, 0), (5,), of_spark=True),
    Requirement("pandas", (2, 2), (3,), of_spark=True),
    Requirement("numpy", (2,)),
    Requirement("pyarrow", (18,)),
    Requirement("rich", (13, 7), of_command=True),
    Requirement("typer", (0, 15, 4), of_command=True),
    Requirement("zlib-ng", (1, 0), of_speed=True),
)


def examine(*, spark: bool = True) -> Iterator[Diagnosis]:
    """Yield the diagnoses of Python, its packages, Java and the look-up.

    Without ``spark`` an error of what only Spark needs is a note, and without pyspark too nothing
    is said of Java and the look-up.
    """
    yield Diagnosis(GOOD, "Python", f"{sys.version.split()[0]}, {sys.executable}")
    for requirement in REQUIREMENTS:
        diagnosis = _package(requirement)
        yield diagnosis if spark or not requirement.of_spark else _noted(diagnosis)
    if not spark and not has_spark():
        return
    for diagnosis in (_java(), *_lookup()):
        yield diagnosis if spark else _noted(diagnosis)


def has_spark() -> bool:
    """Tell whether this Python has a pyspark: what only Spark needs is else no error."""
    return find_spec("pyspark") is not None


def missing(error: ModuleNotFoundError) -> str | None:
    """Return the line that names the packages to install; None for a module of mqlog's own."""
    name = (error.name or "").partition(".")[0]
    if not name or name in {"mqstore", "mqlog_jobs", _SOURCE}:
        return None
    of_spark = any(one.of_spark and one.module == name for one in REQUIREMENTS)
    absent = [one for one in REQUIREMENTS if _is_needed(one, name, of_spark)]
    if not absent:
        return f"{printable(str(error))}: a package lacks what it needs; pip check names it"
    names = ", ".join(one.name for one in absent)
    install = " ".join(f"'{one}'" for one in absent)
    return f"not installed for {sys.executable}: {names}; pip install {install}"


def examine_alone(words: Sequence[str]) -> int:
    """Print what ``doctor`` finds by the standard library alone; return its exit code.

    ``words`` are those behind ``doctor``. Stores and clusters are not examined.
    """
    has_places = not set(words) <= {"--json", "--spark"}
    found = list(examine(spark="--spark" in words or (has_spark() and not has_places)))
    if has_places:
        found.append(Diagnosis(ERROR, "Places", "not examined", "install what is missing first"))
    if "--json" in words:
        lines = [json.dumps(asdict(diagnosis)) for diagnosis in found]
    else:
        lines = [
            line
            for one, label in zip(found, labels(found), strict=True)
            for line in _lines(one, label)
        ]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return FOUND


def _is_needed(requirement: Requirement, name: str, of_spark: bool) -> bool:
    if requirement.module == name:
        return True
    is_optional = requirement.of_speed or (requirement.of_spark and not of_spark)
    return not is_optional and find_spec(requirement.module) is None


def _lines(diagnosis: Diagnosis, label: str) -> Iterator[str]:
    yield f"{diagnosis.severity:<7}  {label}  {shown(diagnosis.found)}"
    if diagnosis.advice:
        yield f"   {printable(diagnosis.advice)}"


def _noted(diagnosis: Diagnosis) -> Diagnosis:
    return replace(diagnosis, severity=REMARK) if diagnosis.severity == ERROR else diagnosis


def _package(requirement: Requirement) -> Diagnosis:
    name, advice = requirement.name, f"pip install '{requirement}'"
    if requirement.of_command:
        advice = f"the command needs it, and the source does not: {advice}"
    elif requirement.of_spark:
        advice = f"Spark needs it, and the command does not: {advice}"
    elif requirement.of_speed:
        advice = f"the same results, more slowly: {advice}"
    severity = WARNING if requirement.of_speed else ERROR
    try:
        installed = version(name)
    except PackageNotFoundError:
        return Diagnosis(severity, name, "not installed", advice)
    numbers = tuple(int(part) for part in installed.split(".") if part.isdigit())
    fits = requirement.low <= numbers and (not requirement.high or numbers < requirement.high)
    return Diagnosis(GOOD if fits else severity, name, installed, "" if fits else advice)


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

    Spark would look into these modules, or the source needs them.
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
