"""Spark on an object store: options reach the executors, and show nowhere."""

from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from support.event_log import event_log
from support.s3_server import KEYS, S3Server

pytestmark = pytest.mark.spark


def test_tasks_read_with_the_options_of_the_query_which_show_nowhere(
    spark: SparkSession,
    golden_550: Path,
    server: S3Server,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    address = server.upload(golden_550, "spark/broker-a/store")
    columns = {"columns": "topic,queueId,queueOffset,body,tags,brokerName", "minPartitions": "4"}
    events = tmp_path / "events"
    events.mkdir()
    with event_log(spark, events) as text:
        found = spark.read.format("mqlog").options(**server.options, **columns).load(address)
        found.explain("extended")
        found.explain("formatted")
        assert found.rdd.getNumPartitions() >= 4
        whole = spark.read.format("mqlog").options(**columns).load(str(golden_550))
        assert_df_equality(found, whole, ignore_row_order=True)
        with pytest.raises(Exception, match="MQLOG_STORE_NOT_FOUND") as caught:
            spark.read.format("mqlog").options(**server.options).load(f"{address}/none")
        shown = [text(), str(caught.value), *capfd.readouterr()]
    assert "SparkListenerTaskEnd" in shown[0]
    assert not [text for text in shown for secret in KEYS.values() if secret in text]
