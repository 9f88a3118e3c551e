"""Tables of a cluster on loopback: what brokers hold and tell, counted message by message."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from backlog.counted import AS_OF_MS, brute_force
from live.loopback import FakeCluster, FakeQueue
from live.proxied import FakeProxy
from mqstore.backlog import BacklogRequest, measure, plan_all
from mqstore.errors import UnknownGroupError
from mqstore.read.selection import Selection
from mqstore.request.places import open_all, places
from mqstore.request.plan import plan_read, read_schema
from pyspark_mqlog.options import parse_read
from support import oracle
from support.expectations import rows

T0 = 1_700_000_000_000


def table(fake: FakeCluster, name: str, **options: str) -> list[dict[str, Any]]:
    """The rows of a table, as Spark would plan and read them; times in microseconds."""
    path = f"rocketmq://{fake.address}#{name}"
    parsed = parse_read({"path": path, "retrytimeout": "1s", **options})
    work = plan_read(parsed, read_schema(parsed).names).work()
    return [row for part in work for batch in part.batches() for row in rows(batch)]


@pytest.mark.parametrize("name", ["backlog", "offsets", "queues", "topics", "lagcompare"])
def test_a_topic_of_the_address_is_the_one_whose_rows_come(name: str) -> None:
    with FakeCluster().running() as fake:
        shop(fake, Random(7))
        parsed = parse_read({"path": f"rocketmq://{fake.address}/U#{name}", "retrytimeout": "1s"})
        work = plan_read(parsed, ["topic"]).work()
        topics = {r["topic"] for part in work for batch in part.batches() for r in rows(batch)}
    assert topics == {"U"}


def backlog(fake: FakeCluster, request: BacklogRequest) -> list[dict[str, Any]]:
    """The backlog as of a fixed time."""
    found = places([f"rocketmq://{fake.address}"], {"retryTimeout": "1s"})
    stores = open_all(Selection(roots=()), found.clusters)
    items = plan_all(stores.sources, stores.held_of(lambda _: True), request)
    batch = measure(items, request, AS_OF_MS)
    stores.close()
    batch.validate(full=True)
    return rows(batch)


def counted(fake: FakeCluster, request: BacklogRequest) -> list[dict[str, Any]]:
    """The same, one message at a time."""
    held = {(t, q): [m for m in queue.messages if m] for (_, t, q), queue in fake.queues.items()}
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    for (topic, group, queue_id), at in fake.committed.items():
        offsets.setdefault((topic, group), {})[queue_id] = at
    laid: Any = SimpleNamespace(
        queues=held,
        bounds={(t, q): (queue.low, queue.high) for (_, t, q), queue in fake.queues.items()},
        messages=[m for queue in held.values() for m in queue],
        layout=SimpleNamespace(group_offsets=offsets),
    )
    return [_of_a_cluster(row, fake) for row in brute_force(laid, request)]


def _of_a_cluster(row: dict[str, Any], fake: FakeCluster) -> dict[str, Any]:
    """What its brokers tell beside: how many consumers a group has."""
    consumers = fake.groups.get(row["group"], 0)
    unattended = row["status"] in ("OK", "LATE") and not consumers and row["lag"] > 0
    return row | {
        "consumers": consumers,
        "status": "NO_CONSUMERS" if unattended else row["status"],
    }


def shop(fake: FakeCluster, random: Random) -> None:
    """Queues with tags, of which two have one hash, and groups all over them."""
    for queue_id in range(3):
        tags = [random.choice(["Aa", "BB", "C", "D"]) for _ in range(300)]
        low = random.randrange(3)
        fake.fill("T", random.randrange(1, 300), queue_id=queue_id, low=low, tags=tags.__getitem__)
    fake.fill("U", 40)
    fake.fill("%RETRY%g1", 5, tags=lambda _: "C")
    for group in ("g1", "g2", "g3", "g4"):
        for queue_id in random.sample(range(3), 2):
            fake.committed["T", group, queue_id] = random.randrange(-1, 320)
    fake.committed["U", "g2", 0] = 40
    fake.committed["%RETRY%g1", "g1", 0] = 2
    fake.committed["Gone", "g3", 4] = 7


SUBSCRIPTIONS = {"g1": {"T": "Aa || C"}, "g2": {"*": "D"}, "g3": {"T": "BB"}}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "request_",
    [
        BacklogRequest(),
        BacklogRequest(subscriptions=SUBSCRIPTIONS),
        BacklogRequest(subscriptions=SUBSCRIPTIONS, lag_mode="hash"),
        BacklogRequest(subscriptions=SUBSCRIPTIONS, lag_mode="offset"),
        BacklogRequest(subscriptions=SUBSCRIPTIONS, by_tag=True),
    ],
    ids=["plain", "exact", "hash", "offset", "by tag"],
)
def test_the_backlog_is_what_a_count_of_all_messages_gives(
    fake: FakeCluster, request_: BacklogRequest, seed: int
) -> None:
    shop(fake, Random(seed))
    ours, theirs = backlog(fake, request_), counted(fake, request_)
    assert len(ours) == len(theirs) > 10
    filtered = request_.lag_mode != "offset" and bool(request_.subscriptions)
    for mine, his in zip(ours, theirs, strict=True):
        # Bytes that nobody looked at are an estimate, by the sizes of a few.
        for name in ("bytesBehind", "bytesMatching"):
            assert 0.8 * his[name] <= mine[name] <= 1.2 * his[name]
        estimated = {"bytesBehind"}
        if not filtered or mine["subscription"] in (None, "*"):
            estimated.add("bytesMatching")
        assert {k: v for k, v in mine.items() if k not in estimated} == {
            k: v for k, v in his.items() if k not in estimated
        }


def test_a_group_without_consumers_says_so_where_messages_wait_for_it(fake: FakeCluster) -> None:
    fake.fill("T", 60)
    fake.fill("U", 60, low=20)
    for group, at in (("alone", 30), ("done", 60), ("served", 30)):
        fake.committed["T", group, 0] = at
    fake.committed["U", "alone", 0] = 10
    fake.groups["served"] = 2
    found = {
        (r["group"], r["topic"]): (r["status"], r["consumers"])
        for r in table(fake, "backlog", lateAfter="9999999h")
    }
    assert found == {
        ("alone", "T"): ("NO_CONSUMERS", 0),
        ("alone", "U"): ("EXPIRED", 0),
        ("done", "T"): ("OK", 0),
        ("served", "T"): ("OK", 2),
    }


def test_groups_that_are_online_tell_what_they_subscribe_to(fake: FakeCluster) -> None:
    fake.fill("T", 60, tags=lambda i: "ABC"[i % 3])
    for group in ("tags", "sql", "offline"):
        fake.committed["T", group, 0] = 30
    fake.groups |= {"tags": 2, "sql": 1}
    fake.subscriptions["tags"] = {"T": ("A || B", "TAG"), "%RETRY%tags": ("*", "TAG")}
    fake.subscriptions["sql"] = {"T": ("TAGS <> 'A'", "SQL92")}
    found = {row["group"]: row for row in table(fake, "backlog")}
    told = {
        group: (row["subscription"], row["expressionType"], row["lag"], row["lagMatching"])
        for group, row in found.items()
    }
    assert told == {
        "tags": ("A || B", "TAG", 30, 20),
        "sql": ("TAGS <> 'A'", "SQL92", 30, 20),
        "offline": (None, None, 30, 30),
    }
    (row,) = table(fake, "backlog", groups="tags", subscriptions='{"tags":{"T":"C"}}')
    assert (row["subscription"], row["lagMatching"]) == ("C", 10)
    asked = [r["extFields"]["consumerGroup"] for r in fake.requests if r["code"] == 203]
    assert asked == ["offline", "sql", "tags", "tags"]
    with pytest.raises(UnknownGroupError, match="did you mean tags"):
        table(fake, "backlog", groups="tagz")


def test_only_messages_that_match_are_pulled(fake: FakeCluster) -> None:
    fake.fill("T", 5_000, tags=lambda i: "rare" if i % 1_000 == 0 else "usual")
    fake.committed["T", "g", 0] = 0
    (row,) = table(fake, "backlog", subscriptions='{"g":{"T":"rare"}}')
    assert (row["lag"], row["lagMatching"]) == (5_000, 5)
    pulls = [r["extFields"] for r in fake.requests if r["code"] == 11]
    assert {one["subscription"] for one in pulls if one["maxMsgNums"] != "1"} == {"rare"}
    assert len(pulls) < 20


def test_queues_and_topics_also_of_what_nobody_may_read(fake: FakeCluster) -> None:
    fake.fill("T", 30)
    fake.fill("T", 5, queue_id=2, low=10)
    fake.fill("%DLQ%g", 4)
    fake.topics["%DLQ%g"] = {"perm": 2}
    fake.topics["Empty"] = {"perm": 7, "order": True, "writeQueueNums": 8, "readQueueNums": 8}
    found = [
        (r["topic"], r["queueId"], r["minOffset"], r["maxOffset"], r["messageCount"])
        for r in table(fake, "queues", includesystemtopics="true")
    ]
    assert found == [("%DLQ%g", 0, 0, 4, 4), ("T", 0, 0, 30, 30), ("T", 2, 10, 15, 5)]
    assert [(r["topic"], r["perm"], r["readQueueNums"], r["messageCount"], r["order"])
            for r in table(fake, "topics", includesystemtopics="true")] == [
        ("%DLQ%g", 2, 1, 4, False), ("Empty", 7, 8, 0, True), ("T", 6, 3, 35, False),
    ]  # fmt: skip
    (first, second) = table(fake, "queues", subscribe="T")
    assert (first["minStoreTimestamp"], first["maxStoreTimestamp"]) == (
        T0 * 1000,
        (T0 + 290) * 1000,
    )
    sizes = [m.size for m in fake.queues["broker-a", "T", 2].messages if m]
    assert second["bytes"] == sum(sizes)  # Few enough to look at all.
    assert [r["queueId"] for r in table(fake, "queues", assign='{"T":[2]}')] == [2]


def test_messages_that_may_not_be_read_have_no_time(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fake.fill("%DLQ%g", 4)
    fake.topics["%DLQ%g"] = {"perm": 2}
    forbidden = "the topic[%DLQ%g] pulling message is forbidden"
    fake.refusals[11] = (16, forbidden)
    (row,) = table(fake, "queues", includesystemtopics="true")
    assert (row["messageCount"], row["minStoreTimestamp"]) == (4, None)
    assert caplog.records == []
    fake.refusals[11] = (16, "has no permission Sub")
    assert table(fake, "queues", includesystemtopics="true") == [row]
    (told,) = [record.getMessage() for record in caplog.records]
    assert "times and tags of some messages are not known" in told
    assert "no permission Sub" in told


def test_offsets_are_what_brokers_tell(fake: FakeCluster) -> None:
    fake.fill("T", 3)
    fake.committed |= {("T", "g", 0): 2, ("Gone", "g", 3): 9}
    fake.pulled_offsets["T", "g", 0] = 3
    found = [tuple(row.values()) for row in table(fake, "offsets")]
    assert found == [
        ("broker-a", "g", "Gone", 3, 9, "broker", None, False),
        ("broker-a", "g", "T", 0, 2, "broker", 3, False),
    ]


@pytest.mark.parametrize("server", [FakeCluster, FakeProxy])
@pytest.mark.parametrize("expired", [1, 19])
def test_a_queue_that_names_messages_that_expired_is_empty(
    server: type[FakeCluster], expired: int
) -> None:
    """As a 4.9 broker does whose CommitLog holds none of its messages any more."""
    with server().running() as fake:
        fake.fill("RMQ_SYS_TRACE_TOPIC", expired)
        for queue in fake.queues.values():
            queue.messages[:] = [None] * expired
        fake.fill("T", 3)
        fake.committed["RMQ_SYS_TRACE_TOPIC", "g", 0] = 0
        traced = {"subscribe": "RMQ_SYS_TRACE_TOPIC"}
        assert table(fake, "traces", traceTopic="RMQ_SYS_TRACE_TOPIC") == []
        (row,) = table(fake, "latency", subscribe="T")
        assert (row["stage"], row["count"]) == ("BORN_TO_STORED", 3)
        (held,) = table(fake, "queues", **traced)
        assert (held["minOffset"], held["maxOffset"], held["messageCount"]) == (expired, expired, 0)
        (behind,) = table(fake, "backlog", groups="g", **traced)
        assert (behind["lag"], behind["expired"], behind["status"]) == (0, expired, "EXPIRED")


def test_tags_are_counted_by_tag_and_not_by_hash(fake: FakeCluster) -> None:
    fake.fill("T", 90, tags=lambda i: ["Aa", "BB", "C"][i % 3])
    fake.fill("T", 10, queue_id=1)
    found = table(fake, "tags", subscribe="T")
    told = [(r["queueId"], r["tag"], r["messageCount"], r["firstStoreTimestamp"]) for r in found]
    assert told == [
        (0, "Aa", 30, T0 * 1000),
        (0, "BB", 30, (T0 + 10) * 1000),
        (0, "C", 30, (T0 + 20) * 1000),
        (1, None, 10, T0 * 1000),
    ]
    held = [m for m in fake.queues["broker-a", "T", 0].messages if m]
    assert sum(r["bytes"] for r in found[:3]) == sum(m.size for m in held)
    (row,) = table(fake, "tags", subscribe="T", tags="Aa", startingoffsets='{"T":{"0":60}}')
    assert (row["tag"], row["messageCount"]) == ("Aa", 10)


def test_a_comparison_with_the_numbers_of_other_tools(fake: FakeCluster) -> None:
    fake.fill("T", 60, tags=lambda i: "ABC"[i % 3])
    fake.groups["g"] = 0
    fake.committed["T", "g", 0] = 30
    fake.pulled_offsets["T", "g", 0] = 35
    (row,) = table(fake, "lagcompare", subscriptions='{"g":{"T":"A"}}')
    told = ("progressDiff", "progressInflight", "metricLag", "lagMatching", "difference")
    assert [row[name] for name in told] == [30, 5, 10, 10, "TAGS"]
    assert row["metricLatencyMs"] == row["asOf"] // 1000 - (T0 + 300)


def put(fake: FakeCluster, topic: str, *properties: dict[str, str], queue_id: int = 0) -> FakeQueue:
    """A queue of messages with these properties, at places of their own."""
    queue = fake.fill(topic, len(properties), queue_id=queue_id)
    first = 1_000 * len(fake.queues)
    for row, message in enumerate(queue.messages):
        assert message is not None
        text = oracle.join_properties(properties[row])
        place = first + 100 * row
        queue.messages[row] = replace(message, properties=text, physical_offset=place)
    return queue


def test_delayed_messages_are_due_when_their_queue_says(fake: FakeCluster) -> None:
    target = {"REAL_TOPIC": "T", "REAL_QID": "2", "DELAY": "2", "TAGS": "A"}
    fake.fill("SCHEDULE_TOPIC_XXXX", 0)
    put(fake, "SCHEDULE_TOPIC_XXXX", target, target, target, queue_id=1)
    fake.codes["SCHEDULE_TOPIC_XXXX", 1] = lambda at: T0 + 5_000 * at
    fake.delays[2] = 2
    timer = {"REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": str(T0 + 100)}
    put(fake, "rmq_sys_wheel_timer", timer, timer | {"TIMER_OUT_MS": str(T0 + 900)})
    for timers_ms, states in ((None, ["PENDING"] * 2), (T0 + 500, ["DELIVERED", "PENDING"])):
        fake.timers_ms = timers_ms
        found = table(fake, "scheduled")
        told = [(r["kind"], r["state"], r["deliverTimestamp"], r["realQueueId"]) for r in found]
        assert told == [
            ("delay", "DELIVERED", T0 * 1000, 2),
            ("delay", "DELIVERED", (T0 + 5_000) * 1000, 2),
            ("delay", "PENDING", (T0 + 10_000) * 1000, 2),
            ("timer", states[0], (T0 + 100) * 1000, 0),
            ("timer", states[1], (T0 + 900) * 1000, 0),
        ]


def test_transactions_that_are_open(fake: FakeCluster) -> None:
    half = {"REAL_TOPIC": "T", "REAL_QID": "1", "PGROUP": "producers"}
    put(fake, "RMQ_SYS_TRANS_HALF_TOPIC", *({**half, "UNIQ_KEY": f"{n:032X}"} for n in range(4)))
    ops = put(fake, "RMQ_SYS_TRANS_OP_HALF_TOPIC", {"TAGS": "d"})
    assert ops.messages[0] is not None
    ops.messages[0] = replace(ops.messages[0], body=b"1,2,")
    found = table(fake, "halfmessages")
    assert [(r["queueOffset"], r["state"], r["producerGroup"]) for r in found] == [
        (0, "PENDING", "producers"),
        (3, "PENDING", "producers"),
    ]


def test_failed_messages_with_their_origins(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [f"{n:032X}" for n in range(3)]
    origins = put(fake, "T", *({"UNIQ_KEY": id_, "KEYS": id_} for id_ in ids))
    places = [m.physical_offset for m in origins.messages if m]
    back = [{"UNIQ_KEY": id_, "RETRY_TOPIC": "T"} for id_ in ids]
    back[0]["ORIGIN_MESSAGE_ID"] = f"7F00000100002A9F{places[0]:016X}"
    back[1]["ORIGIN_MESSAGE_ID"] = f"7F00000100002A9F{places[0]:016X}"  # Another broker's.
    put(fake, "%RETRY%g", *back)
    put(fake, "%DLQ%g", {"UNIQ_KEY": ids[0]})
    fake.topics["%DLQ%g"] = {"perm": 2}
    fake.committed["%RETRY%g", "g", 0] = 1
    found = table(fake, "retries")
    told = [(r["msgId"], r["consumed"], r["originQueueOffset"], r["originPhysicalOffset"])
            for r in found]  # fmt: skip
    # The origin of the second and the third is found by the key.
    assert told == [
        (ids[0], True, 0, places[0]),
        (ids[1], False, 1, places[1]),
        (ids[2], False, 2, places[2]),
    ]
    assert "topic %DLQ%g" in caplog.text
    assert "updateTopicPerm" in caplog.text


def test_groups_subscriptions_and_brokers(fake: FakeCluster) -> None:
    fake.fill("T", 3)
    fake.fill("U", 3)
    fake.groups |= {"on": 2, "idle": 0, "CID_RMQ_SYS_TRANS": 0}
    fake.subscriptions["on"] = {"T": ("A || B", "TAG"), "U": ("a > 5", "SQL92")}
    fake.committed |= {("T", "on", 0): 1, ("U", "on", 0): 1, ("T", "gone", 0): 1}
    assert [tuple(row.values())[1:] for row in table(fake, "groups")] == [
        ("gone", False, 1, 0, None, False),
        ("idle", True, 0, 0, None, False),
        ("on", True, 2, 2, "CLUSTERING", False),
    ]
    every = table(fake, "groups", includeSystemTopics="true")
    assert tuple(every[0].values())[1:] == ("CID_RMQ_SYS_TRANS", True, 0, 0, None, True)
    assert [row["group"] for row in table(fake, "groups", groups="/o.*/")] == ["on"]
    with pytest.raises(UnknownGroupError, match="did you mean idle"):
        table(fake, "groups", groups="idel")
    assert [tuple(row.values())[1:] for row in table(fake, "subscriptions")] == [
        ("on", "T", "A || B", "TAG", False),
        ("on", "U", "a > 5", "SQL92", False),
    ]
    assert [row["topic"] for row in table(fake, "subscriptions", subscribe="U")] == ["U"]
    assert [tuple(row.values()) for row in table(fake, "brokers")] == [
        ("broker-a", fake.address, "5.5.0", 100, 900, 2, 3, None)
    ]
