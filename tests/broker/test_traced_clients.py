"""Traces that real clients write now: as rows, what RocketMQ's decoder says of them."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from broker.harness import FAST_DELAYS, Cluster
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


def test_traces_of_real_clients_are_the_same_from_the_cluster_and_from_the_store(
    cluster: Cluster, tmp_path: Path
) -> None:
    """In a trace topic of another name, which the clients name."""
    root = tmp_path / "store"
    with cluster.broker(root, FAST_DELAYS) as broker:
        measured = broker.traced("Traced", "CG_T", TRACE_TOPIC)
        decoded = broker.decoded_traces(TRACE_TOPIC)
        address = f"rocketmq://{cluster.name_server}"
        live = table(address, "traces", traceTopic=TRACE_TOPIC)
        one = table(address, "traces", traceTopic=TRACE_TOPIC, keys="t5")
        broker.stop()
    found = table(str(root), "traces", traceTopic=TRACE_TOPIC)
    assert sorted(map(str, live)) == sorted(map(str, found))
    assert Counter(row["event"] for row in one) == {"Pub": 1, "SubBefore": 4, "SubAfter": 4}
    contexts = [context for line in decoded for context in line["contexts"]]
    expected = Counter(context["type"] for context in contexts)
    expected["Pub"] += 1  # The send of a batch is a row for each of its two messages.
    assert Counter(row["event"] for row in found) == expected
    assert all(row["problem"] is None for row in found)
    failed = {(row["msgId"], row["result"]) for row in found if row["success"] is False}
    assert failed == {
        (row["msgId"], row["result"])
        for row in measured
        if row["event"] == "consumed" and row["result"] != "SUCCESS"
    }
