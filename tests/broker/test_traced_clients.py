"""Traces that real clients write now: as rows, what RocketMQ's decoder says of them."""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from broker.harness import FAST_DELAYS, Cluster
from mqlog_jobs.places import Named
from mqlog_jobs.report.facts import Latencies
from mqlog_jobs.report.gather import ReportRequest, gather
from mqstore.request.plan import plan_read, read_schema
from pyspark_mqlog.options import parse_read
from support.expectations import rows

pytestmark = pytest.mark.broker
TRACE_TOPIC = "OwnTraces"


def table(place: str, name: str, **options: str) -> list[dict[str, Any]]:
    """The rows of a table, as Spark would plan and read them."""
    parsed = parse_read({"path": f"{place}#{name}", **options})
    work = plan_read(parsed, read_schema(parsed).names).work()
    return [row for part in work for batch in part.batches() for row in rows(batch)]


def reported(place: str) -> list[str]:
    """The rows of ``latency`` in a report."""
    with Named.of([place]).opened(damaged=True) as stores:
        found = gather(stores, ReportRequest(trace_topic=TRACE_TOPIC)).latency
    assert isinstance(found, Latencies)
    return sorted(map(str, found.rows))


def failures(rows: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(row["msgId"], row["result"]) for row in rows if row["success"] is False}


def test_traces_of_real_clients_are_the_same_from_the_cluster_and_from_the_store(
    cluster: Cluster, tmp_path: Path
) -> None:
    """In a trace topic of another name, which the clients name."""
    root = tmp_path / "store"
    with cluster.broker(root, FAST_DELAYS) as broker:
        measured = broker.traced("Traced", "CG_T", TRACE_TOPIC)
        failed = {
            (row["msgId"], row["result"])
            for row in measured
            if row["event"] == "consumed" and row["result"] != "SUCCESS"
        }
        address = f"rocketmq://{cluster.name_server}"
        end, pause = time.monotonic() + 60, threading.Event()
        while True:  # Clients send their last traces while they shut down, and do not wait.
            one = table(address, "traces", traceTopic=TRACE_TOPIC, keys="t5")
            live = table(address, "traces", traceTopic=TRACE_TOPIC)
            events = Counter(row["event"] for row in one)
            del events["Pub"]  # A producer that shuts down may lose what it has not sent.
            if events == {"SubBefore": 4, "SubAfter": 4} and failures(live) == failed:
                break
            assert time.monotonic() < end, (events, failures(live))
            pause.wait(0.2)
        decoded = broker.decoded_traces(TRACE_TOPIC)
        while (seen := reported(address)) != (
            wanted := sorted(map(str, table(address, "latency", traceTopic=TRACE_TOPIC)))
        ):
            assert time.monotonic() < end, (seen, wanted)
            pause.wait(0.2)
        broker.stop()
    assert len(wanted) > 4
    found = table(str(root), "traces", traceTopic=TRACE_TOPIC)
    assert set(map(str, live)) <= set(map(str, found))
    assert all(row["problem"] is None for row in found)
    places = {(line["queueId"], line["queueOffset"]) for line in decoded}
    expected = Counter(context["type"] for line in decoded for context in line["contexts"])
    # The send of a batch is a row for each of its messages.
    ids = (context["msgId"] for line in decoded for context in line["contexts"])
    expected["Pub"] += sum(joined.count(",") for joined in ids)
    of_decoded = [row for row in found if (row["queueId"], row["queueOffset"]) in places]
    assert Counter(row["event"] for row in of_decoded) == expected
