"""What a release leaves on disks: two stores, the ledger of a job, and the checkpoint of a stream.

PYTHONPATH=tests python -m kept.left_behind    # kept/VERSION.tar.gz, of this mqlog
"""

import sys
import tarfile
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import mqstore
from mqlog_jobs.machine.session import LOOPBACK, QUIET, job_session

HERE = Path(__file__).parent
VERSIONS = tuple(sorted(path.name.removesuffix(".tar.gz") for path in HERE.glob("*.tar.gz")))
ROWS = 30
"""Of each version of the job; two versions were committed, and both were streamed."""
SIZES = {"mappedFileSizeCommitLog": "64k", "mappedFileSizeConsumeQueue": "2000"}
SIZES |= {"maxHashSlotNum": "101", "maxIndexNum": "1000"}
SOURCE, TARGET, CHECKPOINT = "source/store", "target/store", "checkpoint"
GROUP = "CG_KEPT"


def commit(spark: SparkSession, folder: Path, version: int) -> None:
    """Commit that version of the job, as often as you like."""
    rows = spark.range(ROWS * (version - 1), ROWS * version, 1, 1)
    messages = rows.selectExpr("CAST(id AS STRING) AS body", "CAST(id % 2 AS INT) AS queueId")
    writer = messages.write.format("mqlog").mode("append").options(**SIZES)
    writer = writer.option("topic", "T").option("createStore", True).option("queueNums", 2)
    writer = writer.option("txnAppId", "kept").option("txnVersion", version)
    writer.save(str(folder / SOURCE))


def stream(spark: SparkSession, folder: Path) -> None:
    """Copy what is new in the source to the target, once, and end."""
    source = spark.readStream.format("mqlog").option("startingOffsets", "earliest")
    source = source.option("columns", "topic,queueId,body").option("commitGroup", GROUP)
    rows = source.load(str(folder / SOURCE))
    sink = rows.writeStream.format("mqlog").options(**SIZES).option("createStore", True)
    sink = sink.option("queueNums", 2).option("checkpointLocation", str(folder / CHECKPOINT))
    sink.option("path", str(folder / TARGET)).trigger(availableNow=True).start().awaitTermination()


def bodies(frame: DataFrame) -> list[int]:
    """The bodies, as the numbers that they are."""
    return sorted(int(row.body) for row in frame.select("body").collect())


def main() -> None:
    """Make the archive of this version. Raises FileExistsError: what was kept is never edited."""
    with tempfile.TemporaryDirectory() as temporary, job_session("kept", QUIET | LOOPBACK) as spark:
        folder = Path(temporary)
        for version in (1, 2):
            commit(spark, folder, version)
        stream(spark, folder)
        with tarfile.open(HERE / f"{mqstore.__version__}.tar.gz", "x:gz") as archive:
            for name in ("source", "target", CHECKPOINT):
                archive.add(folder / name, name)


if __name__ == "__main__":
    sys.exit(main())
