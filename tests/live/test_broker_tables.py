"""Tables of real brokers of both versions: what they tell is what their directories hold."""

import json
import threading
import time
from typing import Any, Final

import pytest

from broker.harness import BROKER_NAME
from live.real import NAMES, Live
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.format.names import HALF_TOPIC, OP_HALF_TOPIC
from mqstore.live.origin.state import ClusterState
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.request.plan import plan_read, read_schema
from pyspark_mqlog.options import parse_read
from support.expectations import rows

pytestmark = pytest.mark.broker

TAGS: Final = " || ".join(NAMES.tags)
# When the table was read; what is an estimate of a cluster; where offsets are written.
APART: Final = {
    "asOf",
    "lagMs",
    "metricLatencyMs",
    "bytes",
    "bytesBehind",
    "bytesMatching",
    "source",
    "consumers",
}
HALVES: Final = {HALF_TOPIC, OP_HALF_TOPIC}
SUBSCRIBED: Final = json.dumps({NAMES.push_group: {NAMES.topic: TAGS}})
Row = dict[str, Any]


def table(place: str, name: str, **options: str) -> list[Row]:
    """The rows of a table, as Spark would plan and read them."""
    parsed = parse_read({"path": f"{place}#{name}", **options})
    work = plan_read(parsed, read_schema(parsed).names).work()
    return [row for part in work for batch in part.batches() for row in rows(batch)]


def comparable(found: list[Row]) -> list[Row]:
    """Rows of either kind of place, in one order, without what differs by nature."""
    kept = [{name: value for name, value in row.items() if name not in APART} for row in found]
    for row in kept:
        if row.get("status") == "NO_CONSUMERS":  # Only a cluster knows that.
            row["status"] = "OK"
    return sorted(kept, key=lambda row: json.dumps(row, default=str))


def written(live: Live) -> None:
    """Wait until the broker wrote its offsets: each five or ten seconds."""
    told, deadline = ClusterState(BROKER_NAME, live.cluster), time.monotonic() + 60
    disk = BrokerConfig(StoreDir.at(live.root))
    while (disk.consumer_offsets(), disk.delay_offsets()) != (
        told.consumer_offsets(),
        told.delay_offsets(),
    ):
        assert time.monotonic() < deadline, "the broker never wrote its offsets"
        threading.Event().wait(0.5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("backlog", {}),
        ("backlog", {"subscriptions": SUBSCRIBED}),
        ("backlog", {"subscriptions": SUBSCRIBED, "lagmode": "hash"}),
        ("backlog", {"subscriptions": SUBSCRIBED, "bytag": "true"}),
        ("lagcompare", {"subscriptions": SUBSCRIBED}),
        ("queues", {"includesystemtopics": "true"}),
        ("topics", {"includesystemtopics": "true"}),
        ("offsets", {"includesystemtopics": "true"}),
        ("tags", {}),
        ("scheduled", {}),
        ("retries", {}),
        ("halfmessages", {}),
    ],
)
def test_a_table_is_that_of_the_brokers_directory(
    live: Live, name: str, options: dict[str, str]
) -> None:
    written(live)
    ours = comparable(table(live.address, name, **options))
    theirs = comparable(table(str(live.root), name, **options))
    if live.broker.version.startswith("4."):
        # It does not serve half messages before its first check of transactions.
        theirs = [row for row in theirs if name != "halfmessages" and row["topic"] not in HALVES]
    if name == "queues":  # A broker also tells of queues that never had a message.
        ours = [row for row in ours if row["maxOffset"]]
    assert ours == theirs
    assert ours or name == "halfmessages"


def test_the_backlog_is_what_consumer_progress_says(live: Live) -> None:
    for group in (NAMES.push_group, NAMES.pull_group):
        ours = {
            (row["topic"], row["queueId"]): (row["brokerOffset"], row["diff"])
            for row in table(live.address, "backlog", groups=group)
        }
        told = {
            (row["topic"], row["queueId"]): (
                row["brokerOffset"],
                row["brokerOffset"] - row["consumerOffset"],
            )
            for row in live.broker.consumer_progress(group)
        }
        assert ours.items() <= told.items()
        assert any(diff for _, diff in ours.values())


def heartbeat(group: str, topic: str, expression: str) -> Request:
    """A client's HEART_BEAT: the group is online as long as the connection is."""
    tags = expression.split(" || ")
    subscription = {"topic": topic, "subString": expression, "tagsSet": tags, "codeSet": []}
    subscription |= {"classFilterMode": False, "subVersion": 1, "expressionType": "TAG"}
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "unitMode": False}
    consumer |= {"messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}
    consumer |= {"subscriptionDataSet": [subscription]}
    data = {"clientID": "127.0.0.1@1", "consumerDataSet": [consumer], "producerDataSet": []}
    return Request("HEART_BEAT", 34, {}, body=json.dumps(data).encode())


def test_a_group_that_is_online_is_counted_by_its_own_tags(live: Live) -> None:
    one = NAMES.tags[0]
    with Cluster(ClusterSettings(name_servers=live.name_servers)) as consumer:
        consumer.ask(BROKER_NAME, heartbeat(NAMES.push_group, NAMES.topic, one))
        online = table(live.address, "backlog", groups=NAMES.push_group)
    given = json.dumps({NAMES.push_group: {NAMES.topic: one}})
    told = table(live.address, "backlog", groups=NAMES.push_group, subscriptions=given)
    of_topic = [row for row in online if row["topic"] == NAMES.topic]
    assert {row["subscription"] for row in of_topic} == {one}
    assert {(row["consumers"], row["status"]) for row in of_topic} == {(1, "OK")}
    assert sum(row["lag"] for row in of_topic) > sum(row["lagMatching"] for row in of_topic) > 0
    counts = [(r["topic"], r["queueId"], r["lagMatching"], r["bytesMatching"]) for r in online]
    assert counts == [
        (r["topic"], r["queueId"], r["lagMatching"], r["bytesMatching"]) for r in told
    ]


def test_tables_change_nothing_on_a_broker(live: Live) -> None:
    state = ClusterState(BROKER_NAME, live.cluster)
    before = state.groups(), state.topics(), state.consumer_offsets(), live.bounds()
    for name in ("backlog", "lagcompare", "queues", "tags", "scheduled", "retries", "halfmessages"):
        table(live.address, name)
    assert (state.groups(), state.topics(), state.consumer_offsets(), live.bounds()) == before
