"""Rows to a cluster on loopback without Spark: what is stored, where, and what is refused."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from live.conftest import PATIENT
from live.loopback import json_answer
from live.taking import Take, TakingCluster, said
from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.prepare import finish, of_batch, prepare, withdraw
from mqstore.deliver.settings import SendSettings
from mqstore.deliver.task import send, sending
from mqstore.errors import (
    InvalidMessageError,
    InvalidOptionError,
    MessageTooLargeError,
    UnknownTopicError,
    UnsupportedTopicError,
)
from mqstore.live.remoting.errors import NoMasterError
from mqstore.live.remoting.settings import ClusterSettings
from support.oracle import Message
from support.writing import rows

MAP = pa.map_(pa.string(), pa.string())


@pytest.fixture
def taking() -> Iterator[TakingCluster]:
    with TakingCluster().running() as found:
        assert isinstance(found, TakingCluster)
        yield found


def settings_for(taking: TakingCluster, **more: Any) -> SendSettings:
    cluster = ClusterSettings(
        name_servers=(taking.address,), limits=PATIENT, retry_timeout_ms=60_000
    )
    return SendSettings(**{"cluster": cluster, "send_timeout_ms": 60_000, **more})


def sent(
    taking: TakingCluster, *parts: pa.RecordBatch, **settings: Any
) -> tuple[SendJob, list[SendReport]]:
    """Prepare a job and run a task for each part."""
    job = prepare(settings_for(taking, **settings), parts[0].schema)
    return job, [send(job, [part], partition=n, attempt=n + 100) for n, part in enumerate(parts)]


def held(taking: TakingCluster, topic: str = "T") -> list[Message]:
    """All messages of a topic, by broker, queue and offset."""
    return [
        message
        for (_, name, _), queue in sorted(taking.queues.items())
        if name == topic
        for message in queue.messages
        if message is not None
    ]


def test_a_row_comes_out_as_it_went_in(taking: TakingCluster) -> None:
    taking.topic("T", 2)
    columns: dict[str, Any] = {
        "body": [b"", b"\x00\xff", "é".encode()],
        "tags": ["a", None, "b"],
        "keys": [["k1", "k2"], None, []],
        "properties": pa.array([[("x", "y")], None, []], MAP),
        "queueId": [1, 1, 0],
        "flag": [5, 0, -1],
        "waitStoreMsgOK": [True, False, None],
        "shardingKey": [None, "s", None],
    }
    _, reports = sent(taking, rows(3, **columns))
    first, second, third = taking.queues["broker-a", "T", 1].messages + held(taking)[:1]
    assert (first.body, second.body, third.body) == (b"", b"\x00\xff", "é".encode())
    assert (first.flag, second.flag, third.flag) == (5, 0, -1)
    shown = [
        {name: value for name, value in m.properties_map.items() if name != "UNIQ_KEY"}
        for m in (first, second, third)
    ]
    assert shown == [
        {"TAGS": "a", "KEYS": "k1 k2", "x": "y", "WAIT": "true"},
        {"WAIT": "false", "__SHARDINGKEY": "s"},
        {"TAGS": "b", "WAIT": "true"},
    ]
    assert reports[0].counts.messages == 3
    assert {r["extFields"]["i"] for r in taking.sends()} == {"", "WAIT\x01false\x02"}


def test_batches_keep_the_order_of_a_queue_and_both_limits(taking: TakingCluster) -> None:
    taking.topic("T", 3)
    bodies = [b"%04d" % n + b"x" * (n % 200) for n in range(2_500)]
    sent(taking, rows(2_500, body=bodies), batch_max_messages=300, batch_max_bytes=40_000)
    for queue_id in range(3):
        assert taking.bodies("T", queue_id) == bodies[queue_id::3]
    assert max(said(request)[3] for request in taking.sends()) <= 300
    assert max(len(request["body"]) for request in taking.sends()) <= 40_000
    assert len(taking.sends()) < 30


def test_a_partitioner_chooses_among_the_queues_of_the_cluster(taking: TakingCluster) -> None:
    taking.topic("Room", 4)
    rooms = {"machine_rooms": "a,b", "machine_room": "b"}
    sent(taking, rows(8, topic="Room"), partitioner="machineRoom", **rooms)
    assert [len(taking.bodies("Room", n)) for n in range(4)] == [0, 0, 4, 4]
    taking.topic("Any", 4)
    bodies = [b"%d" % n for n in range(400)]
    sent(taking, rows(400, topic="Any", body=bodies), partitioner="random")
    found = [taking.bodies("Any", n) for n in range(4)]
    assert sorted(body for queue in found for body in queue) == sorted(bodies)
    assert min(map(len, found)) > 40
    assert found != [bodies[n::4] for n in range(4)], "as a round robin gives them"
    taking.topic("One", 4)
    sent(taking, rows(8, topic="One"), partitioner="single")
    assert [len(taking.bodies("One", n)) for n in range(4)] == [8, 0, 0, 0]


def test_a_delayed_row_is_sent_alone_with_its_level(taking: TakingCluster) -> None:
    taking.topic("T")
    sent(taking, rows(4, delayTimeLevel=[0, 3, None, 0]))
    assert [said(r)[3] for r in taking.sends()] == [1, 1, 2]
    assert [r["code"] for r in taking.sends()] == [320, 310, 320]
    delayed = [m.properties_map for m in held(taking) if "DELAY" in m.properties_map]
    assert [found["DELAY"] for found in delayed] == ["3"]
    assert not {"REAL_TOPIC", "REAL_QID"} & delayed[0].keys()


def test_a_message_larger_than_a_batch_is_sent_alone(taking: TakingCluster) -> None:
    taking.topic("T")
    bodies = [b"a", b"b" * 5_000, b"c"]
    sent(taking, rows(3, body=bodies, tags="t"), batch_max_bytes=1_000)
    assert taking.bodies("T") == bodies
    assert [r["code"] for r in taking.sends()] == [320, 310, 320]
    assert [m.tags for m in held(taking)] == ["t"] * 3


def test_compressed_and_plain_messages_go_in_batches_of_their_own(taking: TakingCluster) -> None:
    taking.topic("T")
    bodies = [b"short", b"long" * 100, b"longer" * 100, b"short again"]
    sent(taking, rows(4, body=bodies), compression="zlib", compress_over=100)
    assert [(said(r)[3], r["extFields"]["f"]) for r in taking.sends()] == [
        (1, "0"),
        (2, str(0x301)),
        (1, "0"),
    ]
    found = [m.body for m in held(taking)]
    assert found[0] == bodies[0]
    assert len(found[1]) < len(bodies[1])


def test_what_was_read_is_not_delayed_again_nor_half_of_a_transaction(
    taking: TakingCluster,
) -> None:
    taking.topic("T")
    carried = [("DELAY", "3"), ("TRAN_MSG", "true"), ("UNIQ_KEY", "ID"), ("own", "x")]
    sent(taking, rows(1, properties=pa.array([carried], MAP), queueOffset=[7]))
    assert held(taking)[0].properties_map == {"UNIQ_KEY": "ID", "own": "x"}


def test_queues_are_chosen_as_the_client_does_over_all_brokers(taking: TakingCluster) -> None:
    taking.topic("T", 2)
    taking.topic("T", 2, broker="broker-b")
    sent(taking, rows(8))
    assert [len(queue.messages) for queue in taking.queues.values()] == [2, 2, 2, 2]


def test_rows_of_one_queue_id_stay_together_on_one_of_several_brokers(
    taking: TakingCluster,
) -> None:
    taking.topic("T", 2)
    taking.topic("T", 3, broker="broker-b")
    sent(taking, rows(6, queueId=[0, 1, 2, 0, 1, 2]))
    assert {(b, q): len(x.messages) for (b, _, q), x in taking.queues.items() if x.messages} == {
        ("broker-a", 0): 2,
        ("broker-b", 1): 2,
        ("broker-b", 2): 2,
    }


def test_a_task_that_runs_again_sends_the_same_ids(taking: TakingCluster) -> None:
    taking.topic("T", 2)
    part = rows(50)
    job = prepare(settings_for(taking), part.schema)
    for attempt in (1, 2):
        send(job, [part], partition=3, attempt=attempt)
    counted = Counter(message.msg_id for message in held(taking))
    assert len(counted) == 50
    assert set(counted.values()) == {2}
    first, again, next_ = (of_batch(job, "query", number).job_id for number in (1, 1, 2))
    assert first == again != next_


def test_a_lost_answer_repeats_rows_with_their_ids_and_loses_none(taking: TakingCluster) -> None:
    taking.topic("T")
    left = [Take(stores=3, code=None), Take(stores=0, code=None), Take(stores=0, code=2)]
    taking.take = lambda _: left.pop() if left else None
    _, reports = sent(taking, rows(20))
    assert {m.body for m in held(taking)} == {b"body %d" % n for n in range(20)}
    assert len({m.msg_id for m in held(taking)}) == 20
    assert (reports[0].counts.repeats, reports[0].counts.refusals) == (2, 1)
    counts = finish(*sent(taking, rows(5)))
    assert (counts.messages, counts.repeats) == (5, 0)


def test_a_born_timestamp_is_kept_on_request(taking: TakingCluster) -> None:
    taking.topic("T")
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    sent(taking, rows(2, bornTimestamp=[at, at]), timestamps="preserve")
    assert [m.born_timestamp_ms for m in held(taking)] == [int(at.timestamp() * 1000)] * 2
    sent(taking, rows(1, bornTimestamp=[at]))
    assert held(taking)[2].born_timestamp_ms > int(at.timestamp() * 1000)


def refused(taking: TakingCluster, option: str, text: str, **settings: Any) -> None:
    with pytest.raises(InvalidOptionError, match=text) as caught:
        prepare(settings_for(taking, **settings), rows(1).schema)
    assert caught.value.args[0] == option
    assert taking.sends() == []


@pytest.fixture
def half_deleted(taking: TakingCluster) -> Iterator[tuple[TakingCluster, TakingCluster]]:
    """Topic T with three queues on two brokers; broker-b, the second, does not have it any more."""
    with TakingCluster().running() as other:
        assert isinstance(other, TakingCluster)
        for broker in ("broker-a", "broker-b"):
            taking.topic("T", 3, broker=broker)
        other.topic("T", 3, broker="broker-b")
        other.lacking.add(("broker-b", "T"))
        taking.addresses["broker-b"] = {0: other.address}
        yield taking, other


def test_a_topic_that_a_broker_lacks_is_made_there_or_written_elsewhere(
    half_deleted: tuple[TakingCluster, TakingCluster], caplog: pytest.LogCaptureFixture
) -> None:
    taking, other = half_deleted
    sent(taking, rows(6))
    assert (len(held(taking)), len(held(other))) == (6, 0)
    (told,) = [record.getMessage() for record in caplog.records][:1]
    assert "show topic T on broker-b, which does not have it" in told
    sent(taking, rows(6), create_topic=True)
    assert (len(held(taking)), len(held(other))) == (9, 3)
    (made,) = [request["extFields"] for request in other.requests if request["code"] == 17]
    assert (made["topic"], made["writeQueueNums"]) == ("T", "3")
    assert not any(request["code"] == 17 for request in taking.requests)


def test_a_topic_that_no_broker_has_any_more_is_unknown_and_made_on_request(
    taking: TakingCluster,
) -> None:
    taking.topic("T")
    taking.lacking.add(("broker-a", "T"))
    with pytest.raises(UnknownTopicError, match=r"no broker has T any more.*createTopic=true"):
        sent(taking, rows(1), topic="T")
    sent(taking, rows(1), topic="T", create_topic=True)
    assert len(held(taking)) == 1


def test_options_that_can_do_nothing_are_refused(taking: TakingCluster) -> None:
    taking.topic("T")
    refused(taking, "timestamps", "needs the column bornTimestamp", timestamps="preserve")
    refused(taking, "queueNums", "needs createTopic=true", queue_nums=3)
    refused(taking, "txnAppId", "is for delivery=exactlyOnce", txn_app_id="a", txn_version=1)
    refused(taking, "txnVersion", "is for delivery=exactlyOnce", txn_version=1)
    refused(taking, "compressOver", "needs the option compression", compress_over=5)
    refused(taking, "partitioner", "needs the column shardingKey", partitioner="hash")
    refused(taking, "queueNums", "broker-a 1", queue_nums=3, create_topic=True, topic="T")
    for partitioner, more in (
        ("single", {}),
        ("machineRoom", {"machine_rooms": "a,b", "machine_room": "a"}),
    ):
        text = f"cannot stand with partitioner={partitioner}.*roundrobin or random"
        more |= {"latency_fault_tolerance": True, "partitioner": partitioner}
        refused(taking, "latencyFaultTolerance", text, **more)
    hashed = settings_for(taking, latency_fault_tolerance=True, partitioner="hash")
    with pytest.raises(InvalidOptionError, match="cannot stand with partitioner=hash"):
        prepare(hashed, rows(1, shardingKey="k").schema)
    taking.perm = 4
    refused(taking, "topic", "takes no messages now: its perm has no W", topic="T")


@pytest.mark.parametrize("partitioner", ["roundrobin", "random"])
def test_rows_for_any_queue_pass_over_a_broker_that_refuses_them(
    taking: TakingCluster, partitioner: str
) -> None:
    with TakingCluster().running() as other:
        assert isinstance(other, TakingCluster)
        taking.topic("T", 2)
        for cluster in (taking, other):
            cluster.topic("T", 2, broker="broker-b")
        taking.addresses["broker-b"] = {0: other.address}
        other.take = lambda _: Take(stores=0, code=2)
        part = rows(60, body=[b"%d" % n for n in range(60)])
        more = {"latency_fault_tolerance": True, "partitioner": partitioner}
        _, (report,) = sent(taking, part, batch_max_messages=5, **more)
        assert report.counts.moves > 0
        assert Counter(taking.all_bodies("T")) == Counter(b"%d" % n for n in range(60))
        assert other.all_bodies("T") == []


def test_an_unknown_topic_names_the_nearest_and_is_made_on_request(taking: TakingCluster) -> None:
    taking.topic("Orders")
    part = rows(6, topic=None)
    with pytest.raises(UnknownTopicError, match=r"option topic.*did you mean Orders"):
        prepare(settings_for(taking, topic="Order"), part.schema)
    with pytest.raises(InvalidMessageError, match="the cluster has no such topic") as caught:
        sent(taking, rows(2, topic="New"))
    assert "Rows before it may have been sent" in str(caught.value)
    assert not taking.sends()
    sent(taking, part, topic="Order", create_topic=True, queue_nums=3)
    assert [len(taking.bodies("Order", n)) for n in range(3)] == [2, 2, 2]
    sent(taking, rows(8, topic="New"), create_topic=True)
    assert [len(taking.bodies("New", n)) for n in range(4)] == [2, 2, 2, 2]
    assert [r["extFields"]["topic"] for r in taking.requests if r["code"] == 17] == ["Order", "New"]


def test_a_topic_is_made_on_a_broker_that_registers_meanwhile(taking: TakingCluster) -> None:
    """The name servers show it at the third look."""
    taking.topic("T")
    taking.addresses["broker-a"] = {}
    looks: list[int] = []

    def registering(request: dict[str, Any]) -> None:
        if request["code"] == 106:  # GET_BROKER_CLUSTER_INFO
            looks.append(1)
            taking.addresses["broker-a"] = {0: taking.address} if len(looks) > 2 else {}

    taking.fault = registering
    sent(taking, rows(2), topic="New", create_topic=True, queue_nums=1)
    assert len(taking.bodies("New", 0)) == 2
    assert len(looks) > 2


def test_without_any_master_no_topic_is_made(taking: TakingCluster) -> None:
    taking.addresses["broker-a"] = {1: taking.address}
    settings = settings_for(taking, topic="New", create_topic=True)
    hurried = replace(settings, cluster=replace(settings.cluster, retry_timeout_ms=0))
    with pytest.raises(NoMasterError, match=r"no broker's master is registered at .*: start one$"):
        prepare(hurried, rows(1).schema)


def test_a_topic_that_holds_no_plain_queues_is_refused(taking: TakingCluster) -> None:
    taking.topic("T")
    taking.attributes["T"] = {"queue.type": "BatchCQ"}
    with pytest.raises(UnsupportedTopicError, match="BATCH_QUEUE"):
        prepare(settings_for(taking, topic="T"), rows(1).schema)


def test_rows_of_a_topic_without_permission_are_bad_rows(taking: TakingCluster) -> None:
    taking.topic("T")
    taking.perm = 4
    with pytest.raises(InvalidMessageError, match="the topic takes no messages"):
        sent(taking, rows(2))


def test_the_broker_s_own_limit_is_kept_before_anything_is_sent(taking: TakingCluster) -> None:
    taking.topic("T")
    taking.settings = "brokerName=broker-a\nmaxMessageSize=2000\n"
    with pytest.raises(MessageTooLargeError, match="body has 2001 bytes, maxMessageSize is 2000"):
        sent(taking, rows(1, body=[b"x" * 2_001]), topic="T")
    blocks = pa.array([[("x", "y" * 32_000)]], MAP)
    with pytest.raises(MessageTooLargeError, match="bytes, more than 32000"):
        sent(taking, rows(1, properties=blocks), topic="T", uniq_key="none")
    with pytest.raises(InvalidMessageError, match="an empty body cannot be delayed"):
        sent(taking, rows(1, body=[b""], delayTimeLevel=[3]))
    assert taking.sends() == []
    sent(taking, rows(3, body=[b"x" * 1_500] * 3), topic="T")
    assert max(len(request["body"]) for request in taking.sends()) <= 2_000


def test_a_batch_fits_into_a_file_of_the_log(taking: TakingCluster) -> None:
    taking.topic("T")
    taking.settings = "mappedFileSizeCommitLog=40000\n"
    with pytest.raises(MessageTooLargeError, match="a CommitLog file takes") as caught:
        sent(taking, rows(1, body=[b"x" * 39_000]), topic="T")
    assert "store" not in str(caught.value)
    sent(taking, rows(40, body=[b"x" * 1_000] * 40), topic="T")
    assert max(len(request["body"]) for request in taking.sends()) < 10_000
    assert len(taking.bodies("T")) == 40


def test_limits_that_may_not_be_asked_for_are_those_of_the_option(taking: TakingCluster) -> None:
    taking.topic("T")
    taking.fault = lambda r: json_answer(r["opaque"], 16) if r["code"] == 26 else None
    job = prepare(settings_for(taking, max_message_size=7_000), rows(1).schema)
    assert job.limits.max_message_size == 7_000


@pytest.mark.parametrize("fails", [False, True])
def test_bad_rows_go_aside_and_the_others_are_sent(
    taking: TakingCluster, tmp_path: Path, fails: bool
) -> None:
    taking.topic("T")
    side = tmp_path / "new" / "side"
    job, reports = sent(taking, rows(3, body=[b"a", None, b"c"]), on_invalid=f"side:{side}")
    assert taking.bodies("T") == [b"a", b"c"]
    assert reports[0].skipped == 1
    if fails:
        withdraw(job, reports)
        assert not side.exists()
    else:
        finish(job, reports)
        assert pq.read_table(side)["reason"].to_pylist() == ["body is null"]


def test_settings_of_programs_follow_the_rules_of_options(taking: TakingCluster) -> None:
    wrong: Sequence[tuple[str, dict[str, Any]]] = [
        ("batchMaxMessages", {"batch_max_messages": 32_768}),
        ("batchMaxMessages", {"batch_max_messages": 0}),
        ("producerGroup", {"producer_group": "a b"}),
        ("sendTimeout", {"send_timeout_ms": 0}),
        ("delivery", {"delivery": "twice"}),
    ]
    for option, more in wrong:
        with pytest.raises(InvalidOptionError) as caught:
            prepare(settings_for(taking, **more), rows(1).schema)
        assert caught.value.args[0] == option


def test_rows_of_an_open_task_go_on_from_those_before(taking: TakingCluster) -> None:
    """Each part is acknowledged by itself, and the queues take turns over all of them."""
    taking.topic("T", 3)
    part = rows(1, topic=["T"], body=[b"x"])
    job = prepare(settings_for(taking), part.schema)
    with sending(job, partition=0, attempt=0) as task:
        for _ in range(3):
            task.take([part])
            task.flush()
        assert {len(taking.bodies("T", queue_id)) for queue_id in range(3)} == {1}
        assert len({m.properties_map["UNIQ_KEY"] for m in held(taking)}) == 3
        assert task.finish().counts.messages == 3


def test_a_connection_that_a_broker_closed_while_it_was_idle_costs_no_repeat(
    taking: TakingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.deliver.task._IDLE_S", -1.0)
    taking.topic("T")
    part = rows(1, topic=["T"], body=[b"x"])
    job = prepare(settings_for(taking), part.schema)
    with sending(job, partition=0, attempt=0) as task:
        task.take([part])
        task.flush()
        taking.hang_up()
        task.take([part])
        counts = task.finish().counts
    assert (counts.messages, counts.requests, counts.repeats) == (2, 2, 0)
