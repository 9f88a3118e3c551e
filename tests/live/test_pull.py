"""Pulls in a pipeline: every message once and in order, whatever the broker gives at a time."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.conftest import PATIENT, Connect
from live.loopback import FakeCluster, json_answer
from mqstore.codec.decode import Records, decode
from mqstore.errors import DataLossError
from mqstore.live.origin.pull import LiveSlice, PullReader
from mqstore.live.origin.records import PulledRecords, PullSettings, read
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.connection import Connection
from mqstore.live.remoting.errors import (
    AccessDeniedError,
    BrokenAnswerError,
    BrokerUnavailableError,
    RequestRefusedError,
)
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.settings import ClusterSettings, Limits
from support import oracle

COLUMNS = ("topic", "queueId", "queueOffset", "body", "brokerName")


def rows(pulled: PulledRecords) -> Iterator[dict[str, Any]]:
    yield from decode(Records(pulled.headers, pulled.positions), COLUMNS).to_pylist()


def pull_all(
    cluster: Cluster, slices: Sequence[LiveSlice], settings: PullSettings | None = None
) -> list[dict[str, Any]]:
    settings = settings or PullSettings()
    reader = PullReader(
        cluster, slices, tags=settings.tags, fail_on_data_loss=settings.fail_on_data_loss
    )
    return [row for pulled in read(reader, settings) for row in rows(pulled)]


def whole(fake: FakeCluster) -> list[LiveSlice]:
    return [
        LiveSlice(broker, topic, queue_id, queue.low, queue.high)
        for (broker, topic, queue_id), queue in fake.queues.items()
    ]


def places(found: Sequence[dict[str, Any]]) -> list[int]:
    return [row["queueOffset"] for row in found]


@given(
    counts=st.lists(st.integers(0, 120), min_size=1, max_size=4),
    most=st.integers(1, 40),
    most_bytes=st.integers(100, 4_000),
    in_flight=st.integers(1, 6),
    batch=st.integers(1, 50),
)
def test_every_message_comes_once_and_in_order(
    counts: list[int], most: int, most_bytes: int, in_flight: int, batch: int
) -> None:
    with FakeCluster().running() as fake:
        fake.most, fake.most_bytes = most, most_bytes
        for queue_id, count in enumerate(counts):
            low = 7 * queue_id
            fake.fill("T", count, queue_id=queue_id, low=low, body=lambda i: b"x" * (i * 37 % 500))
        settings = ClusterSettings(
            name_servers=(fake.address,),
            limits=PATIENT,
            pulls_in_flight=in_flight,
            pull_batch_size=batch,
        )
        with Cluster(settings) as cluster:
            found = pull_all(cluster, whole(fake), PullSettings(batch_bytes=3_000, first_rows=5))
    assert [(row["queueId"], row["queueOffset"], len(row["body"])) for row in found] == [
        (queue_id, 7 * queue_id + i, i * 37 % 500)
        for queue_id, count in enumerate(counts)
        for i in range(count)
    ]
    asked = [offset for offset, _ in fake.pulls()]
    assert len(set(asked)) == len(asked) or len(counts) > 1  # nothing is pulled twice


def test_pulls_ask_for_what_the_broker_gives_and_no_more_than_it_may(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 3_000)
    assert len(pull_all(connect(), whole(fake))) == 3_000
    pulls = fake.pulls()
    assert pulls[0] == (0, 1_000)
    assert len(pulls) < 3_000 / 32 * 1.3
    assert max(most for _, most in pulls) <= 1_024


def test_pulls_are_sent_half_of_those_in_flight_at_a_time(
    fake: FakeCluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.fill("T", 3_200)
    sent: list[int] = []
    send_all = Connection.send_all

    def counted(own: Connection, asked: Sequence[Request]) -> list[int]:
        sent.append(sum(request.name == "PULL_MESSAGE" for request in asked))
        return send_all(own, asked)

    monkeypatch.setattr(Connection, "send_all", counted)
    assert len(pull_all(connect(pulls_in_flight=8), whole(fake))) == 3_200
    pulls = [count for count in sent if count]
    assert sum(pulls) == len(fake.pulls()) >= 100
    assert max(pulls) <= 8
    assert len(pulls) < sum(pulls) / 3


def test_a_broker_that_begins_to_give_more_is_asked_for_more(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 6_000)
    fake.most = 8

    def widen(_: dict[str, Any]) -> None:
        fake.most = 8 if len(fake.requests) < 20 else 1_000

    fake.fault = widen
    assert len(pull_all(connect(), whole(fake))) == 6_000
    assert len(fake.pulls()) < 200


def test_a_slice_is_read_to_its_end_and_not_beyond(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("T", 100)
    found = pull_all(connect(), [LiveSlice("broker-a", "T", 0, 13, 57)])
    assert places(found) == list(range(13, 57))
    assert max(start + most for start, most in fake.pulls()) <= 57


def test_several_brokers_and_empty_slices_come_in_the_order_given(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 40)
    fake.fill("U", 50, broker="broker-b")
    slices = [
        LiveSlice("broker-b", "U", 0, 0, 50),
        LiveSlice("broker-a", "T", 0, 5, 5),
        LiveSlice("broker-a", "T", 0, 0, 40),
    ]
    found = pull_all(connect(), slices)
    assert [(row["brokerName"], row["topic"]) for row in found] == (
        [("broker-b", "U")] * 50 + [("broker-a", "T")] * 40
    )
    assert pull_all(connect(), []) == []


@given(
    count=st.integers(1, 300),
    tag_every=st.integers(1, 60),
    most=st.integers(1, 40),
    batch=st.integers(1, 64),
    start=st.integers(0, 50),
)
def test_tags_give_those_that_match_by_hash_once_each(
    count: int, tag_every: int, most: int, batch: int, start: int
) -> None:
    with FakeCluster().running() as fake:
        fake.most = most
        fake.fill("T", count, tags=lambda i: "Aa" if i % tag_every == 0 else "other")
        settings = ClusterSettings(
            name_servers=(fake.address,), limits=PATIENT, pull_batch_size=batch
        )
        piece = LiveSlice("broker-a", "T", 0, min(start, count), count)
        with Cluster(settings) as cluster:
            # BB has the hash of Aa: the tag itself is compared by who reads the rows.
            found = pull_all(cluster, [piece], PullSettings(tags="BB"))
    expected = [i for i in range(piece.start, count) if i % tag_every == 0]
    assert places(found) == expected


def test_a_batch_has_the_hashes_of_tags_where_they_are_asked_for(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 3, tags=lambda i: f"Tag{i}")
    for wanted in (True, False):
        reader = PullReader(connect(), whole(fake))
        (pulled,) = read(reader, PullSettings(with_tags_codes=wanted))
        expected = [oracle.java_hash(f"Tag{i}") if wanted else 0 for i in range(3)]
        assert pulled.positions.tags_codes.tolist() == expected


def test_a_reader_that_is_left_early_leaves_its_connection_usable(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 2_000)
    cluster = connect()
    reader = read(PullReader(cluster, whole(fake)), PullSettings(first_rows=10))
    next(reader)
    reader.close()
    assert len(pull_all(cluster, whole(fake))) == 2_000


def close_some(fake: FakeCluster, every: int) -> None:
    seen: list[int] = []

    def fault(request: dict[str, Any]) -> bytes | None:
        if request["code"] == 11:
            seen.append(1)
            return b"" if len(seen) % every == 0 else None
        return None

    fake.fault = fault


@pytest.mark.parametrize("in_flight", [1, 3, 8])
@pytest.mark.parametrize("every", [5, 40])
def test_connections_that_break_cost_no_message_and_double_none(
    fake: FakeCluster, connect: Connect, every: int, in_flight: int
) -> None:
    fake.fill("T", 500)
    close_some(fake, every)
    cluster = connect(pulls_in_flight=in_flight, retry_timeout_ms=30_000)
    assert places(pull_all(cluster, whole(fake))) == list(range(500))


def test_a_broker_that_stays_away_is_an_error_after_retry_timeout(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 500)
    close_some(fake, 1)
    with pytest.raises(BrokerUnavailableError):
        pull_all(connect(retry_timeout_ms=300), whole(fake))


@pytest.mark.parametrize(
    ("code", "remark", "error"),
    [
        (16, "no permission", AccessDeniedError),
        (24, "the consumer's subscription not exist", RequestRefusedError),
        (26, "subscription group not exist", RequestRefusedError),
    ],
)
def test_a_refused_pull_is_an_error_by_name(
    fake: FakeCluster, connect: Connect, code: int, remark: str, error: type[Exception]
) -> None:
    fake.fill("T", 5)
    fake.fault = lambda r: (
        json_answer(r["opaque"], code, remark=remark) if r["code"] == 11 else None
    )
    with pytest.raises(error, match=remark):
        pull_all(connect(), whole(fake))


def test_messages_that_expired_since_planning_are_data_loss(
    fake: FakeCluster, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    queue = fake.fill("T", 100)
    planned = whole(fake)
    queue.low, queue.messages = 30, queue.messages[30:]
    with pytest.raises(DataLossError, match=r"broker-a/T/0: queue offsets \[0, 100\)"):
        pull_all(connect(), planned)
    with caplog.at_level(logging.WARNING):
        found = pull_all(connect(), planned, PullSettings(fail_on_data_loss=False))
    assert places(found) == list(range(30, 100))
    assert "MQLOG_DATA_LOSS" in caplog.text


@pytest.mark.parametrize("high", [60, 61, 0])
def test_an_end_that_went_back_is_data_loss(fake: FakeCluster, connect: Connect, high: int) -> None:
    queue = fake.fill("T", 100)
    planned = [LiveSlice("broker-a", "T", 0, 60, 100), LiveSlice("broker-a", "U", 0, 0, 5)]
    fake.fill("U", 5)
    queue.messages = queue.messages[:high]
    with pytest.raises(DataLossError):
        pull_all(connect(), planned)
    found = pull_all(connect(), planned, PullSettings(fail_on_data_loss=False))
    assert [(row["topic"], row["queueOffset"]) for row in found] == (
        [("T", at) for at in range(60, high)] + [("U", at) for at in range(5)]
    )


def test_a_gap_in_an_answer_is_data_loss(fake: FakeCluster, connect: Connect) -> None:
    queue = fake.fill("T", 100)
    queue.messages[10:50] = [None] * 40
    with pytest.raises(DataLossError, match="skipped messages"):
        pull_all(connect(), whole(fake))
    found = pull_all(connect(), whole(fake), PullSettings(fail_on_data_loss=False))
    assert places(found) == [*range(10), *range(50, 100)]


def test_a_queue_that_skipped_messages_is_data_loss_and_its_places_count(
    fake: FakeCluster, connect: Connect
) -> None:
    """A 4.9.7 broker once went on after a crash with records of later queue offsets."""
    queue = fake.fill("T", 100)
    del queue.messages[40:60]
    with pytest.raises(DataLossError, match="skipped messages"):
        pull_all(connect(), whole(fake))
    found = pull_all(connect(), whole(fake), PullSettings(fail_on_data_loss=False))
    assert places(found) == list(range(80))
    assert [row["body"] for row in found][39:41] == [b"39", b"60"]


def test_a_record_that_is_broken_spoils_no_other(fake: FakeCluster, connect: Connect) -> None:
    queue = fake.fill("T", 100)
    queue.raw[7] = b"\0" * 200
    queue.raw[50] = queue.raw[7][:40]
    good = oracle.encode(queue.messages[90])  # type: ignore[arg-type]
    queue.raw[90] = good[:84] + (10_000).to_bytes(4, "big") + good[88:]
    found, broken = [], []
    for pulled in read(PullReader(connect(), whole(fake)), PullSettings()):
        found += [row["queueOffset"] for row in rows(pulled)]
        broken += pulled.broken
    assert found == [at for at in range(100) if at not in {7, 50, 90}]
    assert [(record.queue_offset, record.size) for record in broken] == [
        (7, 200),
        (50, 40),
        (90, len(good)),
    ]
    assert all(record.reason for record in broken)
    assert broken[0].data == queue.raw[7]


@pytest.mark.parametrize(
    ("change", "words"),
    [({"topic": "U"}, "another topic"), ({"queue_id": 3}, "another topic or queue")],
)
def test_a_record_of_another_queue_is_a_broken_answer(
    fake: FakeCluster, connect: Connect, change: dict[str, Any], words: str
) -> None:
    queue = fake.fill("T", 10)
    message = queue.messages[4]
    assert message is not None
    queue.raw[4] = oracle.encode(oracle.replace(message, **change))
    with pytest.raises(BrokenAnswerError, match=words):
        pull_all(connect(), whole(fake))


@pytest.mark.parametrize(
    ("fields", "body", "words"),
    [
        ({"nextBeginOffset": 0}, b"", "no progress"),
        ({"nextBeginOffset": -9}, b"", "no progress"),
        ({"nextBeginOffset": "x"}, b"", "no 64-bit integer"),
        ({}, b"", "no 64-bit integer"),
    ],
)
def test_a_pull_that_leads_nowhere_is_a_broken_answer(
    fake: FakeCluster, connect: Connect, fields: dict[str, object], body: bytes, words: str
) -> None:
    fake.fill("T", 10)
    fake.fault = lambda r: json_answer(r["opaque"], 0, body, **fields) if r["code"] == 11 else None
    with pytest.raises(BrokenAnswerError, match=words):
        pull_all(connect(), whole(fake))


def test_more_messages_than_the_range_has_are_a_broken_answer(
    fake: FakeCluster, connect: Connect
) -> None:
    queue = fake.fill("T", 10)
    record = queue.record(0)
    assert record is not None

    def give_three_for_two(request: dict[str, Any]) -> bytes | None:
        if request["code"] != 11:
            return None
        end = int(request["extFields"]["queueOffset"]) + 2
        return json_answer(request["opaque"], 0, record * 3, nextBeginOffset=end)

    fake.fault = give_three_for_two
    with pytest.raises(BrokenAnswerError, match="more messages"):
        pull_all(connect(), whole(fake))


def test_retry_immediately_without_progress_does_not_loop(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 10)
    fake.fault = lambda r: (
        json_answer(r["opaque"], 20, remark="NO_MESSAGE_IN_QUEUE", nextBeginOffset=0)
        if r["code"] == 11
        else None
    )
    with pytest.raises(BrokerUnavailableError, match="NO_MESSAGE_IN_QUEUE"):
        pull_all(connect(retry_timeout_ms=300), whole(fake))


def test_what_a_slave_lacks_is_read_from_the_master(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("T", 100)
    with FakeCluster().running() as slave:
        slave.fill("T", 100)
        slave.fault = lambda r: (
            json_answer(r["opaque"], 20, remark="NO_MESSAGE_IN_QUEUE", nextBeginOffset=0)
            if int(r["extFields"]["queueOffset"]) >= 40
            else None
        )
        fake.addresses["broker-a"] = {0: fake.address, 1: slave.address}
        found = pull_all(connect(read_from="slave"), whole(fake))
        assert places(found) == list(range(100))
        assert slave.pulls()
        assert min(start for start, _ in fake.pulls()) > 0


def test_an_answer_above_the_limit_is_asked_for_in_halves(
    fake: FakeCluster, connect: Connect
) -> None:
    fake.fill("T", 200, body=lambda _: b"x" * 10_000)
    fake.most = 1_000
    fake.most_bytes = 1 << 30
    limits = Limits(request_timeout_ms=30_000, max_frame_bytes=100_000)
    found = pull_all(connect(limits=limits, retry_timeout_ms=10_000), whole(fake))
    assert places(found) == list(range(200))
    small = Limits(request_timeout_ms=30_000, max_frame_bytes=9_000)
    with pytest.raises(BrokenAnswerError, match="raise maxFrameBytes"):
        pull_all(connect(limits=small), whole(fake))


def test_batches_end_at_their_bounds(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("T", 1_000)
    settings = PullSettings(first_rows=40, batch_rows=200, batch_bytes=1 << 20)
    sizes = [len(p.headers) for p in read(PullReader(connect(), whole(fake)), settings)]
    assert sizes[0] <= 40 + 32
    assert max(sizes) <= 200 + 64
    by_bytes = PullSettings(batch_bytes=10_000)
    pulled = list(read(PullReader(connect(), whole(fake)), by_bytes))
    assert max(int(np.sum(p.headers.sizes)) for p in pulled) < 10_000 + 64 * 100
