"""Spark through a real proxy: rows are those of the broker's directory, each once."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from broker.harness import BROKER_NAME
from live import test_spark_brokers as direct
from live.real import NAMES, Live
from live.test_through_proxy import cluster, live
from mqstore.live.origin.groups import committed_by

__all__ = ["cluster", "live"]

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.soak,
]

test_options = direct.test_options_choose_the_rows_that_they_choose_of_a_directory


def test_a_stream_has_every_row_and_commits_to_a_group_that_is_there(
    spark: SparkSession, live: Live, tmp_path: Path
) -> None:
    path, group = f"{live.address}/{NAMES.topic}", "ThroughTheProxy"
    count = direct.of_disk(spark, live, subscribe=NAMES.topic).count()
    with pytest.raises(PySparkException, match="a proxy makes none: mqadmin updateSubGroup"):
        direct.follow(spark, path, tmp_path / "refused", commitGroup=group)
    live.broker.mqadmin("updateSubGroup", "-b", live.broker.address, "-g", group)
    assert len(direct.follow(spark, path, tmp_path / "told", commitGroup=group)) == count
    queues = [queue for queue in live.bounds() if queue.topic == NAMES.topic]
    names = [(queue.topic, queue.queue_id) for queue in queues]
    told = committed_by(live.cluster, BROKER_NAME, group, names)
    assert told == {name: queue.high for name, queue in zip(names, queues, strict=True)}


def test_a_pattern_is_refused(spark: SparkSession, live: Live) -> None:
    with pytest.raises(PySparkException, match="lists no topics and no groups"):
        direct.load(spark, live.address, subscribePattern=".*").collect()
