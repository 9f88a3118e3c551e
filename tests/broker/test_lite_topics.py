"""Lite topics of 5.5.0: sessions in light queues, by the broker's own numbers."""

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest

from broker.harness import Cluster
from broker.pop.remote import SEND, SUCCESS, Remote
from mqstore.errors import UnsupportedTopicError
from support import oracle, planned
from support.processes import until

pytestmark = pytest.mark.broker

UPDATE_GROUP, POP_LITE, SUBSCRIBE_LITE, ACK, GROUP_INFO = 200, 200070, 200071, 200051, 200078
SETTINGS: Final = {"enableLmq": "true", "enableMultiDispatch": "true", "timerWheelEnable": "true"}
PARENT, GROUP, CLIENT = "LiteParent", "LiteGroup", "client-1"
SESSIONS: Final = ("s0", "s1", "s2")
ACKNOWLEDGED: Final = (0, 1, 3)
"""The third is in the broker's memory alone, as the second message was not acknowledged."""


@pytest.fixture(autouse=True)
def _of_this_version(cluster: Cluster) -> None:
    if cluster.version != "5.5.0":
        pytest.skip("lite topics are new in 5.5")


def send(client: Remote, session: str, key: str) -> None:
    """Send a message as a client does that names a lite topic."""
    properties = {"UNIQ_KEY": key, "KEYS": key, "WAIT": "true", "__LITE_TOPIC": session}
    code, remark, _, _ = client.ask(
        SEND, key.encode(), a="PG", b=PARENT, c="TBW102", d=4, e=0, f=0,
        g=int(time.time() * 1000), h=0, j=0, k=False, m=False,
        i=oracle.join_properties(properties, trailing=False).decode(),
    )  # fmt: skip
    assert code == SUCCESS, remark


def configure(client: Remote) -> None:
    """Bind the group to the parent topic, and its client to two sessions."""
    bound = {"groupName": GROUP, "attributes": {"+lite.bind.topic": PARENT}}
    told = {"clientId": CLIENT, "group": GROUP, "topic": PARENT, "version": 1}
    told |= {"action": "COMPLETE_ADD", "liteTopicSet": SESSIONS[:2]}
    asked = {UPDATE_GROUP: bound, SUBSCRIBE_LITE: {"subscriptionSet": [told]}}
    for code, body in asked.items():
        answer, remark, _, _ = client.ask(code, json.dumps(body).encode())
        assert answer == SUCCESS, remark


def pop(client: Remote) -> tuple[list[oracle.Message], dict[str, str]]:
    """Pop from one session."""
    code, _, fields, body = client.ask(
        POP_LITE, clientId=CLIENT, consumerGroup=GROUP, topic=PARENT, maxMsgNum=8,
        invisibleTime=600_000, pollTime=0, bornTime=int(time.time() * 1000),
        attemptId=f"attempt-{time.time_ns()}",
    )  # fmt: skip
    return ([m for _, m in oracle.walk(body)], fields) if code == SUCCESS else ([], {})


def consume(client: Remote) -> set[str]:
    """Pop from both sessions, and acknowledge some messages of each."""
    consumed: set[str] = set()

    def are_popped() -> bool:
        found, fields = pop(client)
        for number in ACKNOWLEDGED if found else ():
            m = found[number].properties_map
            offset = m["INNER_MULTI_QUEUE_OFFSET"]
            times = fields["popTime"], fields["invisibleTime"]
            extra = " ".join((offset, *times, "999", "0", "broker-a", "0", offset))
            answer, remark, _, _ = client.ask(
                ACK, consumerGroup=GROUP, topic=PARENT, queueId=0, extraInfo=extra,
                offset=offset, liteTopic=m["__LITE_TOPIC"],
            )  # fmt: skip
            assert answer == SUCCESS, remark
        consumed.update(m.properties_map["__LITE_TOPIC"] for m in found)
        return consumed == set(SESSIONS[:2])

    until(are_popped)
    return consumed


def info(client: Remote, session: str) -> tuple[int, int]:
    """The broker's own lag of a session, and when its first message in it was stored."""
    _, _, _, body = client.ask(GROUP_INFO, group=GROUP, liteTopic=session, topK=10)
    found: dict[str, Any] = json.loads(body)
    return found["totalLagCount"], found["earliestUnconsumedTimestamp"]


def test_each_session_has_a_backlog_with_the_brokers_own_numbers(
    cluster: Cluster, tmp_path: Path
) -> None:
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    with cluster.broker(root, SETTINGS) as broker, Remote(broker.address) as client:
        broker.mqadmin(
            "updateTopic", "-b", broker.address, "-t", PARENT, "-a", "+message.type=LITE"
        )
        configure(client)
        for number in range(60):
            send(client, SESSIONS[number % 3], f"key-{number:02}")
        consume(client)
        told = {session: info(client, session) for session in SESSIONS[:2]}
        # A cluster lists no light queues, so nothing is said of them, by name.
        with pytest.raises(UnsupportedTopicError, match=r"LIGHT_QUEUE\].*%LMQ%\$LiteParent\$s0"):
            planned.rows(f"rocketmq://{cluster.name_server}", table="backlog", groups=GROUP)
        broker.stop()
    rows = {row["topic"]: row for row in planned.rows(str(root), table="backlog", groups=GROUP)}
    assert set(rows) == {f"%LMQ%${PARENT}${session}" for session in SESSIONS[:2]}
    for session, (lag, first_ms) in told.items():
        row = rows[f"%LMQ%${PARENT}${session}"]
        assert (row["lag"], row["consumerOffset"], row["status"]) == (lag, 2, "OK")
        assert round(row["firstUnconsumedStoreTimestamp"].timestamp() * 1000) == first_ms
        assert row["lagMs"] > 0
    for number, session in enumerate(SESSIONS):
        found = planned.rows(str(root), subscribe=f"%LMQ%${PARENT}${session}")
        keys = {row["queueOffset"]: row["keys"] for row in found}
        assert keys == {place: f"key-{number + 3 * place:02}" for place in range(20)}
