"""What runs an archive on a line of Spark: its environment, the package of a format, spark-submit.

The jars come by Maven, those that the job names for the line and what they cannot do without. mqlog
itself downloads nothing.
"""

import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from broker.toolchain import Toolchain, made_once
from matrix.environments import HERE
from matrix.test_lines import PATHS, ROOT, interpreter
from mqlog_jobs.spark.lake.packages import PACKAGES

ARCHIVE: Final = ROOT / "jobs" / "mqlog_jobs" / "spark" / "archive.py"
STEPS: Final = HERE / "lake_steps.py"
BESIDE: Final = {"delta": ("io.delta:delta-storage",), "iceberg": ()}
"""What a package needs beside its own jar, of the same version."""


def jars(kind: str, line: str) -> str:
    """Return the jars of a format for a line of Spark, as ``--jars`` takes them."""
    toolchain = Toolchain.find()
    if toolchain is None:
        pytest.skip("needs Maven and a JDK on PATH")
    own = PACKAGES[kind].tried[line]
    version = own.rpartition(":")[2]
    wanted = [own, *(f"{name}:{version}" for name in BESIDE[kind])]
    name = f"lake-{kind}-{line}-{version}"
    fill = partial(_fill, toolchain, wanted)
    made = made_once(name, [HERE / "pom-lake.xml"], fill, _has_its_jars)
    return (made / "jars.txt").read_text()


def _has_its_jars(made: Path) -> bool:
    return all(Path(jar).is_file() for jar in (made / "jars.txt").read_text().split(","))


def _fill(toolchain: Toolchain, wanted: list[str], folder: Path) -> None:
    form = (HERE / "pom-lake.xml").read_text(encoding="utf-8")
    start, _, rest = form.partition("<!-- dependency -->")
    one, _, end = rest.partition("<!-- end -->")
    made = "".join(
        one.replace("GROUP", name[0]).replace("ARTIFACT", name[1]).replace("VERSION", name[2])
        for name in (each.split(":") for each in wanted)
    )
    pom = folder / "pom.xml"
    pom.write_text(f"{start}{made}{end}", encoding="utf-8")
    listing = toolchain.resolved(pom, folder)
    (folder / "jars.txt").write_text(listing.replace(os.pathsep, ","))


def environment(python: str) -> dict[str, str]:
    """Return the variables of a process that runs with that Python and its Spark."""
    given = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    given.pop("PYTHONDONTWRITEBYTECODE", None)  # Ten processes of an archive compile pyspark.
    given |= {
        "PYTHONPYCACHEPREFIX": str(Path(python).parents[1] / "bytecode"),
        "PYTHONPATH": PATHS,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_HOME": home(python),
        "SPARK_CONF_DIR": str(ROOT / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    }
    return given


def run_steps(kind: str, line: str, folder: Path, *names: object, seconds: float) -> str:
    """Run ``lake_steps`` on a line of Spark with the jars of a format; return what it printed."""
    python = interpreter(line)
    variables = environment(python)
    with_jars = f"--jars {jars(kind, line)} " if kind in PACKAGES else ""
    variables["PYSPARK_SUBMIT_ARGS"] = f"{with_jars}pyspark-shell"
    ran = subprocess.run(
        [python, str(STEPS), kind, str(folder), *map(str, names)],
        env=variables,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-6000:]
    return ran.stdout


def home(python: str) -> str:
    """Return the folder of the Spark that a Python has."""
    command = [python, "-c", "import os, pyspark; print(os.path.dirname(pyspark.__file__))"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def submitted(line: str, with_jars: str, *arguments: object) -> tuple[list[str], dict[str, str]]:
    """Return the command of an archive by spark-submit on a line of Spark, and its variables."""
    variables = environment(interpreter(line))
    command = [f"{variables['SPARK_HOME']}/bin/spark-submit", "--master", "local[2]"]
    if with_jars:
        command += ["--jars", with_jars]
    for name, value in SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    return [*command, str(ARCHIVE), *map(str, arguments)], variables
