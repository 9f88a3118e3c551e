"""A cluster as an origin: plans, streams and scans of it are those of any other place."""

import logging
import pickle
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest

from live.conftest import PATIENT
from live.loopback import FakeCluster
from mqstore.errors import (
    CorruptStoreError,
    DataLossError,
    InvalidOptionError,
    StoreReplacedError,
    UnsupportedTopicError,
)
from mqstore.live.origin import tail as cluster_tail
from mqstore.live.origin.cluster_origin import ClusterBrokers, ClusterOrigin
from mqstore.live.origin.tail import ClusterTail
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.credentials import Credentials
from mqstore.live.remoting.errors import (
    BrokerUnavailableError,
    NoMasterError,
    RequestRefusedError,
)
from mqstore.live.remoting.routes import Route
from mqstore.live.remoting.settings import ClusterSettings, Limits
from mqstore.options.grammar import EARLIEST
from mqstore.options.secret import Secret
from mqstore.read.admission import Admission
from mqstore.read.follow import Follower
from mqstore.read.group_progress import PublishedProgress
from mqstore.read.plan import SplitLimits, split, weigh
from mqstore.read.progress import Progress
from mqstore.read.queues import QueueFilter
from mqstore.read.scan import scan
from mqstore.read.selection import OpenStores, Selection
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice, slices_of
from mqstore.request.places import open_all
from support import oracle
from support.processes import until

BROKER = "broker-a"
T0 = 1_700_000_000_000
COLUMNS = ("topic", "queueId", "brokerName", "queueOffset", "body", "tags", "tagsCode")
SETTINGS = ScanSettings(COLUMNS)
assert EARLIEST == -2


def settings_of(fake: FakeCluster, **more: Any) -> ClusterSettings:
    wanted = {"name_servers": (fake.address,), "limits": PATIENT, "retry_timeout_ms": 1_000}
    return ClusterSettings(**(wanted | more))


@pytest.fixture
def opened(fake: FakeCluster) -> Iterator[Any]:
    with ExitStack() as stack:

        def make(*subscribe: str, **more: Any) -> OpenStores:
            selection = Selection(roots=(), subscribe=subscribe)
            stores = open_all(selection, [settings_of(fake, **more)])
            return stack.enter_context(closing(stores))

        yield make


def rows(stores: OpenStores, **more: Any) -> list[dict[str, Any]]:
    slices = [piece for snapshot in stores.snapshots for piece in slices_of(snapshot)]
    wanted = ScanSettings(**({"columns": COLUMNS} | more))
    shares = split(weigh(slices), SplitLimits(min_partitions=3))
    pickled = pickle.loads(pickle.dumps(shares))
    return [row for share in pickled for b in scan(share, wanted) for row in b.to_pylist()]


def offsets_of(found: list[dict[str, Any]]) -> list[tuple[str, str, int, int]]:
    return [(r["topic"], r["brokerName"], r["queueId"], r["queueOffset"]) for r in found]


def test_a_plan_that_was_pickled_reads_every_message_of_every_broker_once(
    fake: FakeCluster, opened: Any
) -> None:
    fake.fill("T", 100)
    fake.fill("T", 50, queue_id=1, low=7)
    fake.fill("U", 30)
    fake.fill("V", 20, broker="broker-b")
    found = offsets_of(rows(opened("T", "V")))
    expected = [("T", BROKER, 0, n) for n in range(100)]
    expected += [("T", BROKER, 1, n) for n in range(7, 57)]
    expected += [("V", "broker-b", 0, n) for n in range(20)]
    assert sorted(found) == expected
    assert {row[0] for row in offsets_of(rows(opened()))} == {"T", "U", "V"}


def test_batches_have_no_more_rows_than_asked(fake: FakeCluster, opened: Any) -> None:
    fake.fill("T", 100)
    (snapshot,) = opened("T").snapshots
    wanted = ScanSettings(COLUMNS, batch_rows=7, first_rows=3)
    sizes = [batch.num_rows for batch in scan(slices_of(snapshot), wanted)]
    assert sum(sizes) == 100
    assert max(sizes) == 7


def test_tags_choose_by_hash_there_and_by_name_here(fake: FakeCluster, opened: Any) -> None:
    fake.fill("T", 90, tags=lambda i: ("Aa", "BB", "C")[i % 3])
    stores = opened("T")
    found = rows(stores, tags="Aa || nobody")
    assert [row["queueOffset"] for row in found] == list(range(0, 90, 3))
    assert {row["tags"] for row in found} == {"Aa"}
    asked = {r["extFields"]["subscription"] for r in fake.requests if r["code"] == 11}
    assert asked == {"Aa||nobody"}


def test_sql_chooses_by_properties(fake: FakeCluster, opened: Any) -> None:
    fake.fill("T", 90, tags=lambda i: str(i % 30))
    found = rows(opened("T"), sql="TAGS BETWEEN 3 AND 5 AND a IS NULL")
    assert [row["queueOffset"] % 30 for row in found] == [3, 4, 5] * 3


def test_a_time_becomes_an_offset(fake: FakeCluster, opened: Any) -> None:
    fake.fill("T", 100, low=40)
    stores = opened("T")
    (snapshot,) = stores.snapshots
    (source,) = stores.sources
    times = [T0, T0 + 251, T0 + 10**6]
    assert source.first_at(list(snapshot.queues) * 3, times) == [40, 66, 140]


def test_a_key_is_looked_up_and_one_of_many_messages_is_scanned_for(
    fake: FakeCluster, opened: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue = fake.fill("T", 200)
    for at, key in [(3, "one"), *((n, "many") for n in range(100, 170))]:
        message = queue.messages[at]
        assert message is not None
        properties = oracle.join_properties({"KEYS": key})
        queue.messages[at] = replace(message, properties=properties)
    stores = opened("T")
    (snapshot,) = stores.snapshots
    (source,) = stores.sources
    pieces = slices_of(snapshot)
    (piece,) = source.narrow(pieces, ["one"], [])
    assert (piece.start, piece.end) == (3, 4)
    assert source.narrow(pieces, ["nobody"], []) == []
    with caplog.at_level(logging.WARNING):
        assert source.narrow(pieces, ["many"], []) == pieces
    assert "are scanned" in caplog.text


@pytest.mark.parametrize("on_corrupt", ["fail", "skip", "rescue"])
def test_a_broken_record_is_what_on_corrupt_says(
    fake: FakeCluster, opened: Any, on_corrupt: str
) -> None:
    queue = fake.fill("T", 10)
    queue.raw[4] = b"\0\0\0\x08oops"
    stores = opened("T")
    if on_corrupt == "fail":
        with pytest.raises(CorruptStoreError, match="broker-a/T/0 queue offset 4"):
            rows(stores)
        return
    found = rows(stores, on_corrupt=on_corrupt)
    expected = [n for n in range(10) if n != 4 or on_corrupt == "rescue"]
    assert sorted(row["queueOffset"] for row in found) == expected
    if on_corrupt == "rescue":
        (row,) = (row for row in found if row["queueOffset"] == 4)
        assert row["body"] == queue.raw[4]


def test_a_message_that_expired_since_the_plan_is_a_named_loss(
    fake: FakeCluster, opened: Any
) -> None:
    queue = fake.fill("T", 100)
    (snapshot,) = opened("T").snapshots
    queue.messages, queue.low = queue.messages[60:], 60
    with pytest.raises(DataLossError, match=r"broker-a/T/0.*\[60, 100\)"):
        list(scan(slices_of(snapshot), SETTINGS))
    kept = list(scan(slices_of(snapshot), ScanSettings(COLUMNS, fail_on_data_loss=False)))
    assert sum(batch.num_rows for batch in kept) == 40


def test_a_topic_that_nobody_may_read_is_refused_by_name(fake: FakeCluster, opened: Any) -> None:
    fake.fill("T", 3)
    fake.route_more = {
        "queueDatas": [
            {"brokerName": BROKER, "readQueueNums": 1, "writeQueueNums": 1, "perm": 2},
        ]
    }
    with pytest.raises(UnsupportedTopicError, match="updateTopicPerm"):
        rows(opened("T"))
    fake.route_more, fake.attributes = {}, {"T": {"queue.type": "BatchCQ"}}
    with pytest.raises(UnsupportedTopicError, match="batch queues"):
        rows(opened("T"))


@pytest.mark.parametrize("ends", [0, 1], ids=["to the end", "its log ends before the queue"])
def test_of_a_compaction_topic_holes_are_no_loss(fake: FakeCluster, opened: Any, ends: int) -> None:
    queue = fake.fill("T", 100)
    fake.attributes["T"] = {"cleanup.policy": "COMPACTION"}
    left = [0, 3, 4, 50, 98, 99][: 6 - ends]
    for number in set(range(100)) - set(left):
        queue.messages[number] = None
    assert [row["queueOffset"] for row in rows(opened("T"))] == left
    fake.attributes.clear()
    with pytest.raises(DataLossError):
        rows(opened("T"))


def test_what_nobody_may_read_is_left_out_with_a_warning_but_for_a_brokers_own_topic(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("T", "rmq_sys_SYNC_BROKER_MEMBER_broker-a"):
        fake.fill(topic, 3)
    fake.route_more = {
        "queueDatas": [
            {"brokerName": BROKER, "readQueueNums": 1, "writeQueueNums": 1, "perm": 2},
        ]
    }
    stores = open_all(Selection(roots=(), include_system_topics=True), [settings_of(fake)])
    with closing(stores):
        assert [queue for one in stores.snapshots for queue in one.queues] == []
    (told,) = [record.getMessage() for record in caplog.records if "left out" in record.message]
    assert "topic T: broker-a lets no client read it" in told


def test_no_secret_shows_in_an_origin_or_its_pickle(fake: FakeCluster) -> None:
    secrets = [f"hush-hush-{n}" for n in range(3)]
    keys = Credentials(*map(Secret, secrets))
    origin = ClusterOrigin(settings_of(fake, credentials=keys, broker_addresses={"a": "b:1"}), "a")
    assert pickle.loads(pickle.dumps(origin)) == origin
    assert hash(pickle.loads(pickle.dumps(origin))) == hash(origin)
    shown = repr(origin).encode() + pickle.dumps(origin) + origin.name.encode()
    assert not any(secret.encode() in shown for secret in secrets)


class Clock:
    """Seconds that a test moves on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def tail_of(fake: FakeCluster, clock: Clock, broker: str = BROKER) -> ClusterTail:
    source = ClusterOrigin(settings_of(fake), broker).bounds()
    return ClusterTail(source.origin, source._impatient(), QueueFilter(), clock=clock)


def stats_asked(fake: FakeCluster) -> int:
    return sum(request["code"] == 202 for request in fake.requests)


def test_a_tail_asks_for_bounds_every_200_ms_and_for_topics_every_10_s(fake: FakeCluster) -> None:
    queue, clock = fake.fill("T", 5), Clock()
    with closing(tail_of(fake, clock)) as tail:
        first = tail.look()
        assert first == {("T", 0): (0, 5)}
        before = len(fake.requests)
        queue.messages.append(queue.messages[0])
        clock.now = 0.19
        assert tail.look() is first
        assert len(fake.requests) == before
        assert tail.look(at_once=True) == {("T", 0): (0, 6)}
        clock.now = 0.5
        same = tail.look()
        assert tail.look() is same
        assert len(fake.requests) == before + 2
        fake.fill("New", 3)
        clock.now = 1.0
        assert ("New", 0) not in tail.look()
        clock.now = 10.1
        assert tail.look() == {("New", 0): (0, 3), ("T", 0): (0, 6)}
        assert [q.high for q in tail.snapshot.queues] == [3, 6]


def test_a_tail_asks_for_all_routes_at_once(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        fake.fill(f"T{n}", 1)
    asked: list[list[str]] = []
    ask = Cluster.fresh_routes

    def noted(cluster: Cluster, topics: Sequence[str]) -> list[Route | None]:
        asked.append(list(topics))
        return ask(cluster, topics)

    monkeypatch.setattr(Cluster, "fresh_routes", noted)
    with closing(tail_of(fake, Clock())) as tail:
        assert {topic for topic, _ in tail.look()} == {f"T{n}" for n in range(5)}
    assert [{f"T{n}" for n in range(5)} <= set(names) for names in asked] == [True]


def test_a_tail_that_takes_long_to_ask_pauses_longer(fake: FakeCluster) -> None:
    fake.fill("T", 5)
    clock = Clock()
    with closing(tail_of(fake, clock)) as tail:

        def take_a_second(request: dict[str, Any]) -> None:
            clock.now += request["code"] == 202

        fake.fault = take_a_second
        tail.look(at_once=True)
        asked = stats_asked(fake)
        for now, more in ((4.9, 0), (5.1, 1)):
            clock.now = now
            tail.look()
            assert stats_asked(fake) == asked + more


def test_a_broker_that_is_away_is_waited_for_with_what_it_had(fake: FakeCluster) -> None:
    fake.fill("T", 5)
    clock = Clock()
    with closing(tail_of(fake, clock)) as tail:
        here = tail.look()
        fake.fault = lambda request: b"" if request["code"] == 202 else None
        clock.now = 1.0
        waiting = tail.look()
        assert waiting == here
        assert waiting is not here  # So that a stream looks again at what waits.
        assert isinstance(tail.away, BrokerUnavailableError)
        assert tail.fitting(("T", 0), 0, 5, 10**6) == (0, 0)
        asked = stats_asked(fake)
        clock.now = 1.99
        assert tail.look(at_once=True) is waiting
        assert stats_asked(fake) == asked
        fake.fault = lambda _: None
        clock.now = 2.1
        until(lambda: tail.look() == here and tail.away is None)


def test_a_tail_of_a_broker_that_is_not_there_is_an_error_for_who_needs_it(
    fake: FakeCluster,
) -> None:
    fake.fill("T", 5)
    with closing(tail_of(fake, Clock(), "broker-z")) as tail:
        assert dict(tail.look()) == {}
        with pytest.raises(NoMasterError, match="broker-z is not registered"):
            tail.await_here()


def test_a_tail_weighs_messages_by_their_mean(fake: FakeCluster) -> None:
    queue = fake.fill("T", 100, body=lambda _: bytes(500))
    size = len(queue.record(0) or b"")
    with closing(tail_of(fake, Clock())) as tail:
        assert tail.fitting(("T", 0), 0, 100, 10 * size) == (10, 10 * size)
        assert tail.fitting(("T", 0), 0, 100, 10**9) == (100, 100 * size)


def follower_of(stores: OpenStores) -> Follower:
    return Follower(stores.tails(), Admission(), find=stores.tails_beside)


def test_a_stream_goes_on_with_other_brokers_while_one_is_away(
    fake: FakeCluster, opened: Any
) -> None:
    queue = fake.fill("T", 5)
    fake.fill("T", 4, broker="broker-b")
    stores = opened("T")
    with closing(follower_of(stores)) as stream:
        start = stream.next({})
        assert start == {("T", BROKER, 0): 5, ("T", "broker-b", 0): 4}
    # After a restart one broker is gone from the name servers, with its messages.
    del fake.queues["broker-b", "T", 0]
    queue.messages.append(queue.messages[0])
    with closing(follower_of(opened("T"))) as stream:
        stream.meet({BROKER, "broker-b"})
        end = stream.next(start)
        assert end == start | {("T", BROKER, 0): 6}
        with pytest.raises(NoMasterError, match="broker-b"):
            stream.aim()
        (piece,) = stream.slices({("T", BROKER, 0): 5}, {("T", BROKER, 0): 6})
        assert (piece.start, piece.end) == (5, 6)
        # What the end of a batch has of a broker that is away, and nothing of it was planned.
        (piece,) = stream.slices(start, end)
        assert (piece.broker_name, piece.start, piece.end) == (BROKER, 5, 6)
        with pytest.raises(NoMasterError, match="broker-b"):
            stream.slices({}, {("T", "broker-b", 0): 4})


@pytest.mark.parametrize("phase", ["start", "aim", "slices"])
def test_each_phase_of_a_stream_waits_for_a_broker_that_comes_back(
    fake: FakeCluster, opened: Any, phase: str
) -> None:
    """It is registered again while the stream waits, long before ``retryTimeout``."""
    fake.fill("T", 5)
    fake.fill("T", 4, broker="broker-b")
    stores = opened("T", retry_timeout_ms=3_600_000)
    away = fake.queues.pop(("broker-b", "T", 0))
    with closing(follower_of(stores)) as stream:
        timer = threading.Timer(0.5, fake.queues.setdefault, (("broker-b", "T", 0), away))
        timer.start()
        if phase == "start":
            stream.await_all()
            assert sum(len(snapshot.queues) for snapshot in stream.snapshots) == 2
        elif phase == "aim":
            stream.aim()
            assert stream.next({}) == {("T", BROKER, 0): 5, ("T", "broker-b", 0): 4}
        else:
            assert len(stream.slices({}, {("T", "broker-b", 0): 4})) == 1
        timer.join()


def test_a_broker_that_is_silent_does_not_hold_up_the_others(
    fake: FakeCluster, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a time-out of minutes: a look that waited for it would not end."""
    monkeypatch.setattr("mqstore.live.origin.tail.LOOK_S", 0.0)
    monkeypatch.setattr("mqstore.live.origin.tail._AWAY_S", 0.0)
    queue = fake.fill("T", 5)
    fake.fill("T", 4, broker="broker-b")
    thawed = threading.Event()
    patient = Limits(connect_timeout_ms=300_000, request_timeout_ms=300_000)
    with FakeCluster().running() as other, ExitStack() as stack:
        other.queues = {("broker-b", "T", 0): fake.queues["broker-b", "T", 0]}
        fake.addresses = {"broker-b": {0: other.address}}
        stream = stack.enter_context(closing(follower_of(opened("T", limits=patient))))
        start = stream.next({})
        other.fault = lambda _: b""
        until(lambda: stream.next(start) == start and away_of(stream, "broker-b"))
        other.fault = lambda _: None if thawed.wait(60) else b""
        for _ in range(5):
            queue.messages.append(queue.messages[0])
            expected = start | {("T", BROKER, 0): queue.high}
            await_end(stream, start, expected)
            start = expected
        thawed.set()
        until(lambda: stream.next(start) == start and not away_of(stream, "broker-b"))


def await_end(stream: Follower, start: Progress, end: Progress) -> None:
    """Return when the micro-batch from ``start`` ends there: a look may be a moment old."""
    until(lambda: stream.next(start) == end)


def away_of(stream: Follower, broker: str) -> bool:
    return stream._tails[broker].away is not None


def test_a_queue_that_name_servers_do_not_show_yet_is_not_gone(
    fake: FakeCluster, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that was started again is registered, and no route has its topic for a moment."""
    monkeypatch.setattr("mqstore.live.origin.tail.ROUTES_S", 0.0)
    monkeypatch.setattr("mqstore.live.origin.tail.ROUTES_SHARE", 0)
    fake.fill("T", 5)
    fake.fill("T", 4, broker="broker-b")
    with FakeCluster().running() as other:
        other.queues = {("broker-b", "T", 0): fake.queues["broker-b", "T", 0]}
        fake.addresses = {"broker-b": {0: other.address}, BROKER: {0: fake.address}}
        hidden = fake.queues.pop(("broker-b", "T", 0))
        start = {("T", BROKER, 0): 5, ("T", "broker-b", 0): 3}
        with closing(follower_of(opened("T"))) as stream:
            assert stream.next(start) == start
            timer = threading.Timer(0.5, fake.queues.setdefault, (("broker-b", "T", 0), hidden))
            timer.start()
            (piece,) = stream.slices(start, start | {("T", "broker-b", 0): 4})
            assert (piece.start, piece.end) == (3, 4)
            timer.join()
        fake.queues.pop(("broker-b", "T", 0))
        other.queues.clear()  # Deleted on the broker too.
        with (
            closing(follower_of(opened("T"))) as stream,
            pytest.raises(StoreReplacedError, match="has no queue 0"),
        ):
            stream.next(start)


def test_a_plan_waits_for_a_broker_that_was_stopped_behind_it(fake: FakeCluster) -> None:
    """Name servers show no master of it any more: the first sign of it in this process."""
    fake.fill("T", 10)
    left = [{1: fake.address}] * 3
    fake.addresses = {BROKER: left[0]}

    def register(request: dict[str, Any]) -> None:
        if request["code"] == 106 and left:
            left.pop()
            fake.addresses = {BROKER: {0: fake.address}} if not left else fake.addresses

    fake.fault = register
    origin = ClusterOrigin(settings_of(fake, retry_timeout_ms=3_600_000), BROKER)
    (weighed,) = weigh([QueueSlice(origin, BROKER, "T", 0, 0, 10)])
    assert weighed.total > 0
    assert not left


def test_a_stream_looks_at_all_brokers_at_the_same_time(fake: FakeCluster, opened: Any) -> None:
    fake.fill("T", 5)
    fake.fill("T", 4, broker="broker-b")
    with closing(follower_of(opened("T"))) as stream:
        both = threading.Barrier(2)

        def wait_for_the_other(request: dict[str, Any]) -> None:
            if request["code"] == 202:  # GET_TOPIC_STATS_INFO
                both.wait(20)

        fake.fault = wait_for_the_other
        stream.aim()
        assert stream.next({}) == {("T", BROKER, 0): 5, ("T", "broker-b", 0): 4}


def test_a_stream_finds_a_new_broker(
    fake: FakeCluster, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.read.follow._FIND_S", 0.0)
    fake.fill("T", 5)
    with closing(follower_of(opened("T"))) as stream:
        start = stream.next({})
        fake.fill("T", 4, broker="broker-b")
        assert stream.next(start) == start | {("T", "broker-b", 0): 4}
        assert stream.origins["broker-b"].name.startswith("broker-b of rocketmq://")


def test_an_end_that_went_back_is_a_named_error(fake: FakeCluster, opened: Any) -> None:
    queue = fake.fill("T", 5)
    with closing(follower_of(opened("T"))) as stream:
        start = stream.next({})
        del queue.messages[3:]
        with pytest.raises(StoreReplacedError, match="ends at queue offset 3"):
            stream.slices(start, start)


def test_progress_is_committed_clamped_never_backwards_and_the_group_is_created(
    fake: FakeCluster,
) -> None:
    fake.fill("T", 10, low=5)
    fake.committed["T", "other", 0] = 1
    origins = {BROKER: ClusterOrigin(settings_of(fake), BROKER)}
    with closing(PublishedProgress("audit", origins)) as group:
        key = ("T", BROKER, 0)
        for position, committed in [(8, 8), (99, 15), (9, 15), (2, 15)]:
            group.publish({key: position, ("Gone", BROKER, 0): 3})
            assert fake.committed == {("T", "other", 0): 1, ("T", "audit", 0): committed}
    assert fake.groups == {"audit": 0}
    with closing(PublishedProgress("audit", origins)) as group:
        group.publish({key: 7})
        assert fake.committed["T", "audit", 0] == 15


def test_a_group_with_consumers_is_refused(fake: FakeCluster) -> None:
    fake.fill("T", 1)
    fake.groups["busy"] = 2
    origins = {BROKER: ClusterOrigin(settings_of(fake), BROKER)}
    with pytest.raises(InvalidOptionError, match="2 consumers of broker-a are in this group"):
        PublishedProgress("busy", origins)


def test_progress_waits_for_a_broker_that_is_away(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.live.origin.group_publish._AWAY_S", 0.0)
    fake.fill("T", 10)
    fake.fault = lambda request: b"" if request["code"] in {15, 43, 203} else None
    origins = {BROKER: ClusterOrigin(settings_of(fake), BROKER)}
    with closing(PublishedProgress("audit", origins)) as group:
        group.publish({("T", BROKER, 0): 4})
        assert fake.committed == {}
        fake.fault = lambda _: None
        group.publish({("T", BROKER, 0): 4})
        assert fake.committed == {("T", "audit", 0): 4}


def test_what_a_killed_broker_forgot_of_a_groups_progress_is_committed_again(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.live.origin.group_publish._AWAY_S", 0.0)
    fake.fill("T", 10)
    fake.fill("T", 10, queue_id=1)
    one, other = ("T", BROKER, 0), ("T", BROKER, 1)
    with closing(
        PublishedProgress("audit", {BROKER: ClusterOrigin(settings_of(fake), BROKER)})
    ) as g:
        g.publish({one: 4, other: 6})
        fake.committed = {("T", "audit", 0): 1}
        answers = iter([b""])  # The connection ended with the broker.
        fake.fault = lambda request: next(answers, None) if request["code"] == 202 else None
        g.publish({one: 5, other: 6})
        g.publish({one: 5, other: 6})
    assert fake.committed == {("T", "audit", 0): 5, ("T", "audit", 1): 6}


def test_an_offset_behind_the_end_of_a_topic_that_was_made_again_does_not_hold_a_group_back(
    fake: FakeCluster,
) -> None:
    fake.fill("T", 10)
    fake.groups["audit"] = 0
    fake.committed["T", "audit", 0] = 1_000
    with closing(
        PublishedProgress("audit", {BROKER: ClusterOrigin(settings_of(fake), BROKER)})
    ) as g:
        g.publish({("T", BROKER, 0): 7})
    assert fake.committed == {("T", "audit", 0): 7}


@pytest.mark.parametrize("again", [0, 3])
def test_a_topic_that_is_deleted_or_made_again_under_a_stream_is_a_named_error(
    fake: FakeCluster, opened: Any, monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    monkeypatch.setattr("mqstore.live.origin.tail.ROUTES_S", 0.0)
    monkeypatch.setattr("mqstore.live.origin.tail.ROUTES_SHARE", 0)
    fake.fill("U", 1)
    fake.fill("T", 5)
    with closing(follower_of(opened("T", "U"))) as stream:
        start = stream.next({})
        assert start["T", BROKER, 0] == 5
        del fake.queues[BROKER, "T", 0]
        if again:
            fake.fill("T", again)
        with pytest.raises(StoreReplacedError, match="read up to"):
            stream.slices(start, start)


def test_without_a_master_any_reads_a_slave_and_commits_nothing_to_it(fake: FakeCluster) -> None:
    fake.fill("T", 10)
    fake.addresses[BROKER] = {1: fake.address}
    origin = ClusterOrigin(replace(settings_of(fake), read_from="any"), BROKER)
    with closing(origin.bounds()) as source:
        (queue,) = source.snapshot().queues
        assert (queue.low, queue.high) == (0, 10)
    with closing(PublishedProgress("audit", {BROKER: origin})) as group:
        group.publish({("T", BROKER, 0): 4})
    assert fake.committed == {}
    waiting = ClusterOrigin(settings_of(fake), BROKER)
    with closing(waiting.bounds()) as source, pytest.raises(NoMasterError, match="readFrom=any"):
        source.snapshot()


def test_a_task_waits_for_name_servers_that_are_away_and_a_start_does_not(
    fake: FakeCluster,
) -> None:
    fake.fill("T", 10)
    refusals = iter([b"", b"", b"", b""])  # Some for the start, the others for the task.
    fake.fault = lambda request: next(refusals, None) if request["code"] in {105, 106} else None
    origin = ClusterOrigin(settings_of(fake, retry_timeout_ms=30_000), BROKER)
    finder = ClusterBrokers(settings_of(fake, retry_timeout_ms=30_000), ("T",))
    with closing(finder), pytest.raises(BrokerUnavailableError):
        finder.brokers()
    with closing(origin.bounds()) as source:
        source.snapshot()
    found = scan([QueueSlice(origin, BROKER, "T", 0, 0, 10)], SETTINGS)
    assert sum(batch.num_rows for batch in found) == 10
    assert next(refusals, None) is None


def test_a_task_waits_for_a_broker_whose_proxy_accepts_connections_and_closes_them(
    fake: FakeCluster,
) -> None:
    fake.fill("T", 10)
    refusals = iter([b""] * 5)
    with FakeCluster().running() as broker:
        broker.queues = fake.queues
        broker.fault = lambda request: next(refusals, None)
        fake.addresses[BROKER] = {0: broker.address}
        origin = ClusterOrigin(settings_of(fake, retry_timeout_ms=30_000), BROKER)
        found = scan([QueueSlice(origin, BROKER, "T", 0, 0, 10)], SETTINGS)
        assert sum(batch.num_rows for batch in found) == 10
    assert next(refusals, None) is None


def test_a_tail_of_many_topics_asks_for_bounds_when_the_log_has_moved(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_tail, "MANY_TOPICS", 2)
    queue, clock = fake.fill("T", 5), Clock()
    fake.fill("U", 1)
    with closing(tail_of(fake, clock)) as tail:
        before = stats_asked(fake)
        queue.messages.append(queue.messages[0])  # The fake's log does not tell.
        for n in range(1, 40):
            clock.now = n * 0.25
            assert tail.look()[("T", 0)] == (0, 5)
        assert stats_asked(fake) == before

        assert tail.look(at_once=True)[("T", 0)] == (0, 6)
        fake.behind_bytes = 40  # Queues lack something of the log: it says nothing of them.
        queue.messages.append(queue.messages[0])
        clock.now += 0.25
        assert tail.look()[("T", 0)] == (0, 7)
        fake.behind_bytes = 0
        clock.now += 0.25
        tail.look()
        queue.messages.append(queue.messages[0])
        clock.now += cluster_tail.WHOLE_S + 1.0
        assert tail.look()[("T", 0)] == (0, 8)


def test_a_tail_of_many_topics_does_without_what_its_user_may_not_ask(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_tail, "MANY_TOPICS", 2)

    def refuse(*_: object) -> None:
        raise RequestRefusedError("127.0.0.1:1", "GET_BROKER_RUNTIME_INFO", 16, "no right")

    monkeypatch.setattr(cluster_tail, "broker_infos", refuse)
    queue, clock = fake.fill("T", 5), Clock()
    fake.fill("U", 1)
    with closing(tail_of(fake, clock)) as tail:
        queue.messages.append(queue.messages[0])
        clock.now = 0.25
        assert tail.look()[("T", 0)] == (0, 6)
