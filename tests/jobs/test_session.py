"""Sessions that mqlog starts have the settings that conf/ recommends."""

from pathlib import Path

from mqlog_jobs.machine.session import SETTINGS

CONF = Path(__file__).parents[2] / "conf" / "spark-defaults.conf"
LEFT_TO_SPARK = {
    # Stated in conf/ for the reader: Spark's own defaults.
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}


def test_a_session_has_all_that_is_recommended_and_nothing_else() -> None:
    lines = [line.split() for line in CONF.read_text().splitlines()]
    recommended = dict(words for words in lines if words and not words[0].startswith("#"))
    assert recommended == SETTINGS | LEFT_TO_SPARK
