"""Faults of consumer groups on real brokers of both versions: each has its verdict and no other."""

import json
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from broker.harness import BROKER_NAME, Broker, Cluster
from mqstore.request.plan import plan_read, read_schema
from mqstore.verdicts import rules
from pyspark_mqlog.options import parse_read
from support.expectations import rows

pytestmark = pytest.mark.broker
TOPIC = "Why"
LOCK_BATCH_MQ = 41
SECONDS = 60
HOURS = ";".join(f"{hour:02}" for hour in range(24))


def table(place: str, name: str, **options: str) -> list[dict[str, Any]]:
    """The rows of a table, as Spark would plan and read them."""
    parsed = parse_read({"path": f"{place}#{name}", **options})
    work = plan_read(parsed, read_schema(parsed).names).work()
    return [row for part in work for batch in part.batches() for row in rows(batch)]


def lock_all(broker: Broker, group: str, queues: int) -> None:
    """Lock all queues of the topic for a client that is not a member, as one that was killed."""
    named = [
        {"brokerName": BROKER_NAME, "queueId": number, "topic": TOPIC} for number in range(queues)
    ]
    body = json.dumps({"consumerGroup": group, "clientId": "gone", "mqSet": named}).encode()
    header = {"code": LOCK_BATCH_MQ, "language": "JAVA", "opaque": 1, "version": 355}
    head = json.dumps(header | {"flag": 0, "serializeTypeCurrentRPC": "JSON"}).encode()
    host, _, port = broker.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as peer:
        peer.sendall(struct.pack(">ii", 4 + len(head) + len(body), len(head)) + head + body)
        length, mark = struct.unpack(">ii", peer.recv(8, socket.MSG_WAITALL))
        answer = peer.recv(length - 4, socket.MSG_WAITALL)
    found = json.loads(answer[mark & 0xFFFFFF :])
    assert len(found["lockOKMQSet"]) == queues


def wait_for_words(place: str, group: str, words: list[str]) -> list[dict[str, Any]]:
    """The verdicts about a group when they are those words; members join by and by."""
    end, pause = time.monotonic() + SECONDS, threading.Event()
    while True:
        found = table(place, "verdicts", groups=group)
        if [row["verdict"] for row in found] == words:
            return found
        told = [f"{row['verdict']}: {row['evidence']}" for row in found]
        assert time.monotonic() < end, told
        pause.wait(0.5)


def wait_until_consumed(place: str, group: str) -> None:
    end, pause = time.monotonic() + SECONDS, threading.Event()
    while True:
        found = table(place, "backlog", groups=group, subscribe=TOPIC)
        if found and all(row["lag"] == 0 and row["consumerOffset"] for row in found):
            return
        assert time.monotonic() < end, found
        pause.wait(0.5)


def test_faults_of_real_groups_have_their_verdicts_and_a_group_that_works_has_none(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "WAITING_MS", 0)  # A minute of waiting is not what is tried here.
    root = tmp_path / "store"
    with cluster.broker(root, {"mappedFileSizeCommitLog": "65536"}) as broker:
        place = f"rocketmq://{cluster.name_server}"
        broker.produce(TOPIC, "Single", 120)
        queues = len(broker.topic_status(TOPIC))
        broker.commit(TOPIC, "CG_AWAY", 1)
        broker.commit(TOPIC, "CG_AHEAD", 10_000)
        broker.commit(TOPIC, "CG_ORDER", 1)
        lock_all(broker, "CG_ORDER", queues)
        broker.join("CG_ORDER", TOPIC, ordered=True)
        broker.join("CG_MIX", TOPIC, "TagA || TagB")
        broker.join("CG_MIX", TOPIC, "TagA")
        broker.join("CG_WORKS", TOPIC)
        try:
            (away,) = wait_for_words(place, "CG_AWAY", ["NO_MEMBERS"])
            ahead = wait_for_words(place, "CG_AHEAD", ["AHEAD"] * queues)
            order = wait_for_words(place, "CG_ORDER", ["PAUSED_BY_ORDER"] * queues)
            (mix,) = wait_for_words(place, "CG_MIX", ["INCONSISTENT_SUBSCRIPTION"])
            wait_until_consumed(place, "CG_WORKS")
            assert table(place, "verdicts", groups="CG_WORKS") == []
            assert table(place, "verdicts", groups="CG_WORKS", lookAgain="1s") == []
            broker.produce("Filler", "Single", 300)
            for name, value in (("deleteWhen", HOURS), ("fileReservedTime", "1")):
                broker.mqadmin(
                    "updateBrokerConfig", "-n", cluster.name_server, "-b", broker.address,
                    "-k", name, "-v", value,
                )  # fmt: skip
            lost = wait_for_words(place, "CG_AWAY", ["NO_MEMBERS", *["EXPIRING"] * queues])
        finally:
            broker.leave()
        broker.stop()
    assert json.loads(away["numbers"]) == {"consumers": 0, "lagMatching": 120 - queues}
    left_ms = json.loads(lost[1]["numbers"])["leftMs"]
    assert 3_600_000 - SECONDS * 10_000 < left_ms < 3_600_000
    assert json.loads(mix["numbers"]) == {"members": 2, "expressions": 2}
    assert " take TagA; " in mix["evidence"]
    assert " take TagA || TagB:" in mix["evidence"]
    assert "no member was given the queue, and none of 1 holds its lock" in order[0]["evidence"]
    # Of the store that the broker left, what needs its consumers is not known.
    kept = [(row["group"], row["verdict"], row["numbers"]) for row in table(str(root), "verdicts")]
    assert kept == [(row["group"], row["verdict"], row["numbers"]) for row in ahead]
