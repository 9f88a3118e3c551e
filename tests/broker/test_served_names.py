"""Brokers serve all topics of a copied and of a salvaged store, whatever their names."""

from pathlib import Path

import pytest

import mqlog
from broker.harness import SMALL_FILES, Cluster
from mqstore.copy.copy_store import copy_store
from mqstore.copy.salvage import salvage
from support import oracle
from support.oracle import Message
from support.stores import Layout, lay_out

pytestmark = pytest.mark.broker

GROUP = "com.shop.app"
TOPICS = (f"%RETRY%{GROUP}", f"%DLQ%{GROUP}", "shop.orders", "订单", "a b")


def test_a_broker_has_the_topics_of_a_copy_whatever_their_names(
    cluster: Cluster, tmp_path: Path
) -> None:
    sent = [
        Message(
            topic=topic,
            body=b"%d" % n,
            properties=oracle.join_properties({"TAGS": "A"}),
            store_timestamp_ms=1_700_000_000_000 + n,
            queue_id=0,
        )
        for topic in TOPICS
        for n in range(20)
    ]
    layout = Layout(
        commit_log_bytes=int(SMALL_FILES["mappedFileSizeCommitLog"]),
        queue_units=int(SMALL_FILES["mappedFileSizeConsumeQueue"]) // 20,
        group_offsets={(topic, GROUP): {0: 7} for topic in TOPICS},
    )
    laid = lay_out(tmp_path / "store", sent, layout)
    copy_store(laid.root, tmp_path / "copy")
    assert salvage(laid.root, tmp_path / "salvaged").is_complete
    for root in (tmp_path / "copy", tmp_path / "salvaged"):
        with cluster.broker(root, {"fileReservedTime": "1000000"}) as broker:
            dump = broker.dump()
            assert {q: dump.queues[q] for q in dump.queues if q[0] in TOPICS} == {
                (topic, 0): (0, 20) for topic in TOPICS
            }
            live = mqlog.open(f"rocketmq://{cluster.name_server}")
            for topic in TOPICS:
                assert live.scan([topic]).to_table()["body"].to_pylist() == [
                    b"%d" % n for n in range(20)
                ]
            lags = live.table("backlog", groups=GROUP, include_system_topics=True).to_table()
            assert set(lags["lag"].to_pylist()) == {13}
            broker.stop()
