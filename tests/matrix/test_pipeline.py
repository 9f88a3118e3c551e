"""The declarative pipeline of examples/ runs on each line of Spark that has spark-pipelines."""

import os
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import mqlog
from matrix.environments import LINES
from matrix.test_lines import MATRIX, PATHS, ROOT, SECONDS, interpreter
from mqlog_jobs.machine import java

EXAMPLE = ROOT / "examples" / "pipeline"
FIRST = "4.1"
WITH_PIPELINES = LINES[LINES.index(FIRST) :]

CATALOG = "spark.sql.catalogImplementation=hive"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not MATRIX, reason="for `make matrix`: a run takes a minute and a half"),
]


def filled(folder: Path) -> Path:
    """Return a copy of the example with places below a folder."""
    made = folder / "pipeline"
    shutil.copytree(EXAMPLE, made)
    spec = made / "spark-pipeline.yml"
    text = spec.read_text(encoding="utf-8")
    for there, here in (
        ("/tmp/orders-pipeline", "storage"),
        ("/data/broker-a/store", "old/store"),
        ("/data/new/store", "new/store"),
    ):
        assert there in text
        text = text.replace(there, str(folder / here))
    # A JVM beside musl's loader takes the wrong native library of Snappy.
    own = "configuration:\n  spark.sql.parquet.compression.codec: gzip"
    spec.write_text(text.replace("configuration:", own), encoding="utf-8")
    return spec


def run(python: str, spec: Path, folder: Path) -> None:
    home = subprocess.run(
        [python, "-c", "import os, pyspark; print(os.path.dirname(pyspark.__file__))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    ).stdout.strip()
    java.prepare()
    done = subprocess.run(
        [f"{home}/bin/spark-pipelines", "run", "--conf", CATALOG, "--spec", str(spec)],
        env={
            **{name: value for name, value in os.environ.items() if "SPARK" not in name},
            "SPARK_HOME": home,
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "PYTHONPATH": PATHS,
        },
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@pytest.mark.parametrize("line", WITH_PIPELINES)
def test_the_example_of_a_pipeline_copies_each_paid_order_once(line: str, tmp_path: Path) -> None:
    python = interpreter(line)
    spec = filled(tmp_path)
    rows = pa.table({"body": ["a", "b", "c"], "tags": ["paid", "sent", "paid"]})

    for times in (1, 2):
        mqlog.write(rows, tmp_path / "old" / "store", topic="SHOP_ORDERS", create_store=True)
        run(python, spec, tmp_path)

        found = mqlog.open(tmp_path / "new" / "store").scan("PAID_ORDERS").to_table()
        assert sorted(found["body"].to_pylist()) == sorted([b"a", b"c"] * times)
