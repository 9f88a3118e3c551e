"""Exactly once into brokers on loopback: lost answers, restarts, two brokers, ids, refusals."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliver.modelled import look_at_nothing
from live.conftest import PATIENT
from live.loopback import FakeQueue
from live.proxied import FakeProxy
from live.taking import Take, TakingCluster
from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.once.commit import Published, publish
from mqstore.deliver.once.control import Control, InvalidControlError, decode, tag_of
from mqstore.deliver.once.errors import (
    ControlTooLargeError,
    LostHistoryError,
    NewerOwnerError,
    NotVisibleError,
    PublicationError,
    TornMessageError,
)
from mqstore.deliver.prepare import of_batch, prepare
from mqstore.deliver.settings import SendSettings
from mqstore.deliver.task import hand_on
from mqstore.errors import InvalidMessageError, InvalidOptionError, NondeterministicWriteError
from mqstore.live.remoting.errors import BrokenAnswerError
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.live.send.requests import Queue
from support import soak
from support.oracle import Message
from support.writing import rows

CONTROL = "MQLOG_CONTROL"


@pytest.fixture
def taking() -> Iterator[TakingCluster]:
    with TakingCluster().running() as found:
        assert isinstance(found, TakingCluster)
        found.topic(CONTROL)
        yield found


def settings_for(taking: TakingCluster, **more: Any) -> SendSettings:
    named = (taking.address,)
    cluster = ClusterSettings(name_servers=named, limits=PATIENT, retry_timeout_ms=60_000)
    defaults = {
        "cluster": cluster,
        "delivery": "exactlyOnce",
        "fence_wait_ms": 1,
        "txn_app_id": "app",
        "txn_version": 0,
        "batch_max_messages": 7,
    }
    return SendSettings(**defaults | more)


def handed(
    taking: TakingCluster, *parts: pa.RecordBatch, **settings: Any
) -> tuple[SendJob, list[SendReport]]:
    job = prepare(settings_for(taking, **settings), parts[0].schema)
    reports = [hand_on(job, [part], partition=n, attempt=9) for n, part in enumerate(parts)]
    return job, reports


def once(taking: TakingCluster, *parts: pa.RecordBatch, **settings: Any) -> Published:
    return publish(*handed(taking, *parts, **settings))


def of(numbers: list[int]) -> pa.RecordBatch:
    return rows(len(numbers), body=[b"%d" % n for n in numbers])


def data_sends(taking: TakingCluster) -> int:
    return sum(request["extFields"]["b"] != CONTROL for request in taking.sends())


def test_rows_are_there_once_in_order_and_a_second_run_sends_nothing(
    taking: TakingCluster,
) -> None:
    taking.topic("T", 2)
    bodies = [b"%d" % n for n in range(50)]
    part = rows(50, body=bodies, queueId=[n % 2 for n in range(50)], tags="t")
    done = once(taking, part.slice(0, 20), part.slice(20))
    assert (done.messages, done.found, done.is_repeated) == (50, 0, False)
    assert [taking.bodies("T", n) for n in range(2)] == [bodies[0::2], bodies[1::2]]
    count = len(taking.sends())
    assert once(taking, part).is_repeated
    assert len(taking.sends()) == count
    assert once(taking, part, txn_version=1).messages == 50
    assert Counter(taking.all_bodies("T")) == Counter(bodies * 2)


def test_equal_rows_are_all_there_whatever_task_they_come_from(taking: TakingCluster) -> None:
    taking.topic("T")
    same = of([7] * 10 + [8])
    job, reports = handed(taking, same, same)
    again, others = handed(taking, of([8]), of([7] * 20 + [8]))
    assert publish(job, reports).messages == 22
    assert Counter(taking.bodies("T")) == {b"7": 20, b"8": 2}
    keys = {message.msg_id for message in taking.queues["broker-a", "T", 0].messages if message}
    assert len(keys) == 22
    assert publish(again, others).is_repeated


def flaky(seed: int) -> Any:
    """Fail about a fifth of all sends, in every way there is; at most 12."""
    rng, left = random.Random(seed), [12]

    def take(_: dict[str, Any]) -> Take | None:
        kind = rng.randrange(25)
        if not left[0] or kind > 4:
            return None
        left[0] -= 1
        return [
            Take(code=None),
            Take(stores=0, code=None),
            Take(stores=rng.randrange(4), code=None),
            Take(stores=0, code=2),
            Take(stores=rng.randrange(4), code=1, remark="NullPointerException"),
        ][kind]

    return take


def lossy_writes(taking: TakingCluster, seed: int) -> Counter[bytes]:
    """Three writes, each started again by new tasks in another order when it fails."""
    taking.take = flaky(seed)
    rng = random.Random(seed)
    for version in range(3):
        numbers = [100 * version + n // 2 for n in range(60)]
        for _ in range(20):
            rng.shuffle(numbers)
            cut = rng.randrange(60)
            try:
                once(taking, of(numbers[:cut]), of(numbers[cut:]), txn_version=version)
                break
            except PublicationError:
                continue
    return Counter(taking.all_bodies("T"))


EXPECTED = {b"%d" % (100 * version + n): 2 for version in range(3) for n in range(30)}


@pytest.mark.parametrize("seed", range(5))
def test_every_row_is_there_once_though_answers_are_lost(taking: TakingCluster, seed: int) -> None:
    taking.topic("T", 3)
    assert lossy_writes(taking, seed) == EXPECTED


def test_without_looking_back_rows_are_doubled(
    taking: TakingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail."""

    look_at_nothing(monkeypatch)
    taking.topic("T", 3)
    assert lossy_writes(taking, 0) != EXPECTED


class StandingStill:
    """A broker that stands still from some request on, and reads that one a little later.

    It goes on when the next request comes, seconds later by the publisher's clock; what was sent
    before is stored when the publisher sleeps after that.
    """

    def __init__(self, taking: TakingCluster, sends: int) -> None:
        self._taking = taking
        self._sends = sends
        self._late: dict[str, Any] | None = None
        self._is_still = False
        self._passed_s = 0.0
        taking.take = self._take
        taking.fault = self._go_on

    def monotonic(self) -> float:
        return time.monotonic() + self._passed_s

    def time_ns(self) -> int:
        return time.time_ns()

    def sleep(self, _: float) -> None:
        if not self._is_still:
            self.come()

    def come(self) -> None:
        """Store what was sent before."""
        late, self._late = self._late, None
        if late is not None:
            self._taking._answer(late)

    def _take(self, request: dict[str, Any]) -> Take | None:
        if len(self._taking.sends()) != self._sends:
            return None
        self._late, self._is_still, self._sends = request, True, -1
        return Take(stores=0, code=None)

    def _go_on(self, request: dict[str, Any]) -> None:
        if self._is_still and request["code"] != 105:  # Routes are a name server's.
            self._is_still = False
            self._passed_s += 3


@pytest.mark.parametrize("sends", [2, 4])
def test_what_a_broker_reads_late_because_it_stood_still_is_not_doubled(
    taking: TakingCluster, monkeypatch: pytest.MonkeyPatch, sends: int
) -> None:
    taking.topic("T")
    broker = StandingStill(taking, sends)
    monkeypatch.setattr("mqstore.deliver.once.wire.time", broker)
    done = once(taking, of(list(range(40))))
    broker.come()
    assert done.messages == 40
    assert Counter(taking.bodies("T")) == Counter(b"%d" % n for n in range(40))


def test_two_brokers_are_one_write(taking: TakingCluster) -> None:
    with TakingCluster().running() as other:
        assert isinstance(other, TakingCluster)
        # All brokers of a server answer at one address: their queues have different ids here.
        taking.topic("T", 2)
        for cluster in (taking, other):
            cluster.topic("T", 2, broker="broker-b")
            cluster.topic(CONTROL, broker="broker-b")
        taking.addresses["broker-b"] = {0: other.address}
        left = [1]

        def lose(_: dict[str, Any]) -> Take | None:
            if len(other.sends()) > 2 and left:
                left.pop()
                return Take(stores=2, code=None)
            return None

        other.take = lose
        done = once(taking, of(list(range(100))))
        assert (done.messages, done.found) == (100, 0)
        both = taking.all_bodies("T") + other.all_bodies("T")
        assert Counter(both) == Counter(b"%d" % n for n in range(100))
        kinds = [
            [json.loads(body)["kind"] for body in cluster.bodies(CONTROL, 0, broker)]
            for cluster, broker in ((taking, "broker-a"), (other, "broker-b"))
        ]
        assert kinds == [["BEGIN", "BEGIN", "COMMIT"]] * 2


@pytest.mark.parametrize("creates", [False, True])
def test_a_broker_that_lacks_topics_which_its_route_shows_is_no_part_of_a_write(
    taking: TakingCluster, creates: bool
) -> None:
    with TakingCluster().running() as other:
        assert isinstance(other, TakingCluster)
        taking.topic("T", 2)
        for topic in ("T", CONTROL):
            for cluster in (taking, other):
                cluster.topic(topic, broker="broker-b")
            other.lacking.add(("broker-b", topic))
        taking.addresses["broker-b"] = {0: other.address}
        more = {"create_topic": creates, "topic": "T"}
        done = once(taking, of(list(range(30))), **more)
        assert done.messages == 30
        there, elsewhere = taking.all_bodies("T"), other.all_bodies("T")
        assert Counter(there + elsewhere) == Counter(b"%d" % n for n in range(30))
        assert (len(elsewhere) > 0) == creates
        assert (len(other.bodies(CONTROL, 0, "broker-b")) > 0) == creates


def test_nothing_is_sent_to_a_broker_before_its_begin_though_the_route_lacks_it_at_first(
    taking: TakingCluster,
) -> None:
    for name in ("broker-a", "broker-b"):
        taking.topic("T", broker=name)
        taking.topic(CONTROL, broker=name)
    job, reports = handed(taking, of(list(range(20))))
    hidden = taking.queues.pop(("broker-b", "T", 0))
    left = [3]

    def show_late(request: dict[str, Any]) -> None:
        left[0] -= request["code"] == 105 and request["extFields"]["topic"] == "T"
        if left[0] == 0:
            taking.queues["broker-b", "T", 0] = hidden

    taking.fault = show_late
    assert publish(job, reports).messages == 20
    kinds = [json.loads(body)["kind"] for body in taking.bodies(CONTROL, 0, "broker-b")]
    assert kinds == ["BEGIN", "COMMIT"]
    assert len(taking.bodies("T", 0, "broker-b")) == 10


def test_other_rows_in_a_second_try_are_an_error(taking: TakingCluster) -> None:
    taking.topic("T")
    taking.take = lambda r: Take(stores=0, code=None) if r["extFields"]["b"] == "T" else None
    with pytest.raises(PublicationError, match="0 were there at the last look"):
        once(taking, of(list(range(5))))
    left = [Take(stores=3, code=None)]
    taking.take = lambda r: (
        (left.pop() if left else Take(stores=0, code=None)) if r["extFields"]["b"] == "T" else None
    )
    with pytest.raises(PublicationError, match="Run it again with the same rows"):
        once(taking, of(list(range(5))))
    taking.take = lambda _: None
    with pytest.raises(NondeterministicWriteError, match="are not among the rows of this one"):
        once(taking, of([100, 101]))
    before = taking.bodies("T")
    assert once(taking, of(list(range(5)))).found == len(before)
    assert Counter(taking.bodies("T")) == Counter(b"%d" % n for n in range(5))


@pytest.mark.parametrize("later", [0, 1, 40], ids=lambda later: f"{later} versions later")
def test_other_rows_under_a_committed_version_are_an_error(
    taking: TakingCluster, later: int
) -> None:
    taking.topic("T")
    once(taking, of([0, 1, 1]))
    for version in range(1, later + 1):
        once(taking, of([version]), txn_version=version)
    before = taking.bodies("T")
    assert once(taking, of([1]), of([0, 1]), txn_version=0).is_repeated
    for other, words in ((of([0, 1, 2]), "others"), (of([0, 1]), "2 rows")):
        with pytest.raises(
            NondeterministicWriteError, match=f"app version 0: 3 rows .* now it has {words}"
        ):
            once(taking, other, txn_version=0)
    assert taking.bodies("T") == before


def test_a_commit_without_a_digest_is_one_of_any_rows(taking: TakingCluster) -> None:
    """As an older mqlog wrote it."""
    taking.topic("T")
    once(taking, of([0, 1]))
    queue = taking.queues["broker-a", CONTROL, 0]
    assert queue.messages[-1] is not None
    body = json.loads(queue.messages[-1].body)
    assert (body.pop("rows"), len(body.pop("digest"))) == (2, 32)
    queue.messages[-1] = replace(queue.messages[-1], body=json.dumps(body).encode())
    assert once(taking, of([7])).is_repeated
    assert taking.bodies("T") == [b"0", b"1"]


def tear(taking: TakingCluster, kept: int) -> None:
    """Leave the last message of T as a broker that was killed keeps it: zeros behind ``kept``."""
    messages = taking.queues["broker-a", "T", 0].messages
    whole = messages[-1]
    assert whole is not None
    zeros = bytes(len(whole.properties) - kept)
    messages[-1] = replace(whole, properties=whole.properties[:kept] + zeros)


@pytest.mark.parametrize("kept", [0, 3, 60], ids=["nothing", "no mark", "half of the id"])
def test_a_message_that_a_killed_broker_kept_in_part_is_an_error(
    taking: TakingCluster, kept: int
) -> None:
    """Brokers serve it, and its body would be there twice."""
    taking.topic("T")
    unfinished(taking, of(list(range(5))), 0)
    before = taking.bodies("T")
    tear(taking, kept)
    for _ in range(2):
        with pytest.raises(TornMessageError, match="at queue offset 2, and serves it since"):
            once(taking, of(list(range(5))))
    assert taking.bodies("T") == before
    assert once(taking, of([3, 4]), txn_version=1).messages == 2


def test_what_a_killed_broker_kept_in_part_of_others_is_not_of_the_write(
    taking: TakingCluster,
) -> None:
    taking.topic("T")
    unfinished(taking, of(list(range(5))), 0)
    queue = taking.queues["broker-a", "T", 0].messages
    last = queue[-1]
    assert last is not None
    queue.append(replace(last, body=b"of another", queue_offset=len(queue)))
    tear(taking, 3)
    assert once(taking, of(list(range(5)))).found == 3
    assert Counter(taking.bodies("T")) == Counter([*(b"%d" % n for n in range(5)), b"of another"])


def test_what_brokers_add_to_a_row_may_be_lost(taking: TakingCluster) -> None:
    taking.topic("T")
    unfinished(taking, of(list(range(5))), 0)
    messages = taking.queues["broker-a", "T", 0].messages
    last = messages[-1]
    assert last is not None
    messages[-1] = replace(last, properties=last.properties + bytes(30))
    assert once(taking, of(list(range(5)))).found == 3
    assert Counter(taking.bodies("T")) == Counter(b"%d" % n for n in range(5))


def test_a_second_publisher_stops_the_first_before_its_end(taking: TakingCluster) -> None:
    taking.topic("T")
    job, reports = handed(taking, of(list(range(40))))
    second: list[Published] = []

    def interrupt(request: dict[str, Any]) -> None:
        is_row = request["code"] == 320 and data_sends(taking) == 3
        if is_row and not second:
            second.append(publish(job, reports))

    taking.fault = interrupt
    with pytest.raises(NewerOwnerError, match="another publisher of the same application"):
        publish(job, reports)
    assert (second[0].messages, second[0].is_repeated) == (40, False)
    assert set(taking.bodies("T")) == {b"%d" % n for n in range(40)}
    kinds = [json.loads(body)["kind"] for body in taking.bodies(CONTROL)]
    assert kinds == ["BEGIN", "BEGIN", "BEGIN", "COMMIT"]
    assert publish(job, reports).is_repeated


def unfinished(taking: TakingCluster, part: pa.RecordBatch, version: int) -> None:
    """Leave a write of which a few rows are stored."""
    left = [Take(stores=3, code=None)]
    none = Take(stores=0, code=None)
    taking.take = lambda r: (left.pop() if left else none) if r["extFields"]["b"] == "T" else None
    with pytest.raises(PublicationError):
        once(taking, part, txn_version=version)
    taking.take = lambda _: None


def control_pulls(taking: TakingCluster) -> list[int]:
    """The queue offsets at which the control topic was pulled."""
    asked = [request["extFields"] for request in taking.requests if request["code"] == 11]
    return [int(fields["queueOffset"]) for fields in asked if fields["topic"] == CONTROL]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a publisher that takes its time not look for another one while it sends."""
    monkeypatch.setattr("mqstore.deliver.once.wire._LONGEST_CHECK_S", 3_600.0)


@soak.not_in_check
@pytest.mark.usefixtures("patient")
def test_a_write_reads_as_many_control_records_after_ninety_writes_as_after_one(
    taking: TakingCluster,
) -> None:
    taking.topic("T")
    for version in range(90):
        if version in {1, 89}:
            taking.requests.clear()
        done = once(taking, of([version]), txn_version=version, fence_wait_ms=3_600_000)
        assert done.messages == 1
        if version == 1:
            assert control_pulls(taking) == [0, 2, 3]
    assert control_pulls(taking) == [146, 178, 179]
    assert once(taking, of([0]), txn_version=0).is_repeated


@pytest.mark.usefixtures("patient")
def test_a_small_publication_takes_nine_round_trips(taking: TakingCluster) -> None:
    taking.topic("T")
    once(taking, of([0]))
    job, reports = handed(taking, of([1]), txn_version=1, fence_wait_ms=3_600_000)
    taking.requests.clear()
    assert publish(job, reports).messages == 1
    asked = [request["code"] for request in taking.requests]
    # Both routes at once; end and records of the control queue; ends, BEGIN, the records up to it;
    # rows; records again; COMMIT.
    assert asked == [105, 105, 202, 11, 202, 310, 11, 320, 11, 310]


@pytest.mark.parametrize("others", [1, 50, 700])
def test_a_begin_is_found_behind_records_of_others(taking: TakingCluster, others: int) -> None:
    taking.topic("T")
    noise = Message(topic=CONTROL, body=b"{}", properties=b"TAGS\x01other\x02")
    for version in (0, 1):
        unfinished(taking, of(list(range(20))), version)
        taking._store(taking.queues["broker-a", CONTROL, 0], [noise] * others)
        assert once(taking, of(list(range(20))), txn_version=version).found == 3
        taking._store(taking.queues["broker-a", CONTROL, 0], [noise] * others)
        assert once(taking, of(list(range(20))), txn_version=version).is_repeated
    assert Counter(taking.bodies("T")) == {b"%d" % n: 2 for n in range(20)}


def test_an_unfinished_newer_version_is_found_behind_the_commit_of_an_older_one(
    taking: TakingCluster,
) -> None:
    taking.topic("T")
    unfinished(taking, of(list(range(20))), 5)
    noise = Message(topic=CONTROL, body=b"{}", properties=b"TAGS\x01other\x02")
    taking._store(taking.queues["broker-a", CONTROL, 0], [noise] * 50)
    assert once(taking, of([100]), txn_version=4).found == 0
    assert once(taking, of(list(range(20))), txn_version=5).found == 3
    assert Counter(taking.bodies("T")) == {b"%d" % n: 1 for n in [*range(20), 100]}


def test_a_control_record_that_is_none_is_an_error_and_not_passed_over(
    taking: TakingCluster,
) -> None:
    taking.topic("T")
    tags = b"TAGS\x01" + tag_of("app").encode() + b"\x02"
    record = Message(topic=CONTROL, body=b"{}", properties=tags)
    taking.queues["broker-a", CONTROL, 0].messages.append(record)
    with pytest.raises(BrokenAnswerError, match="no control record: kind is no text"):
        once(taking, of([1]))
    assert taking.bodies("T") == []


def show_control_when(taking: TakingCluster, shown: Callable[[], bool]) -> None:
    """Let the control queue end before its records until then."""
    answer = taking.pulled

    def pulled(opaque: int, fields: dict[str, str]) -> bytes:
        hides = fields["topic"] == CONTROL and not shown()
        return answer(opaque, fields | {"queueOffset": "1"} if hides else fields)

    taking.pulled = pulled  # type: ignore[method-assign]


@pytest.mark.parametrize("is_back", [True, False])
def test_a_broker_of_which_servers_do_not_show_the_control_topic_yet_is_waited_for(
    taking: TakingCluster, *, is_back: bool
) -> None:
    """They learn of a broker that came back topic by topic."""
    for broker in ("broker-a", "broker-b"):
        for topic in ("T", CONTROL):
            taking.queues.setdefault((broker, topic, 0), FakeQueue())
    route, asked = taking._route, 0

    def without_broker_b(opaque: int, topic: str) -> bytes:
        nonlocal asked
        asked += topic == CONTROL
        if topic != CONTROL or asked == 1 or (is_back and asked > 5):
            return route(opaque, topic)
        left = taking.queues.pop(("broker-b", CONTROL, 0))
        try:
            return route(opaque, topic)
        finally:
            taking.queues["broker-b", CONTROL, 0] = left

    taking._route = without_broker_b  # type: ignore[method-assign]
    if is_back:
        assert once(taking, of([1, 2])).messages == 2
        assert asked > 5
        return
    with pytest.raises(PublicationError, match="no server shows the topic on it"):
        once(taking, of([1]), visibility_timeout_ms=50, send_timeout_ms=200)
    assert taking.bodies("T") == []


@pytest.mark.parametrize("behind", [0, 500])
@pytest.mark.parametrize("refused", [False, True])
def test_a_queue_that_stands_still_is_a_named_error_in_time(
    taking: TakingCluster, behind: int, *, refused: bool
) -> None:
    """Also if the broker does not tell this user how far it is."""
    taking.topic("T")
    taking.behind_bytes = behind
    if refused:
        taking.refusals[28] = (16, "no permission")
    show_control_when(taking, lambda: False)
    with pytest.raises(NotVisibleError, match="ConsumeQueues stand still"):
        once(taking, of([1]), visibility_timeout_ms=50)
    assert taking.bodies("T") == []


def test_queues_that_are_made_anew_are_waited_for_while_they_advance(
    taking: TakingCluster,
) -> None:
    """A broker that was killed takes messages before its ConsumeQueues are there again."""
    taking.topic("T")
    answer, asked = taking._runtime, 0

    def runtime(opaque: int) -> bytes:
        nonlocal asked
        asked += 1
        taking.behind_bytes = max(0, 700 - 100 * asked)
        return answer(opaque)

    taking._runtime = runtime  # type: ignore[method-assign]
    show_control_when(taking, lambda: asked > 6)
    assert once(taking, of([1, 2]), visibility_timeout_ms=20).messages == 2
    assert taking.bodies("T") == [b"1", b"2"]


def test_a_control_record_that_brokers_would_refuse_is_named_before_anything_is_sent(
    taking: TakingCluster,
) -> None:
    taking.topic("T", 60)
    taking.settings = "maxMessageSize=40000\nmappedFileSizeCommitLog=1500\n"
    with pytest.raises(ControlTooLargeError, match=r"the brokers take 476 .*Nothing was sent"):
        once(taking, of([1]))
    assert taking.sends() == []


def test_a_history_that_expired_is_an_error_before_anything_is_sent(
    taking: TakingCluster,
) -> None:
    taking.topic("T")
    taking.queues["broker-a", CONTROL, 0].low = 100
    for _ in range(2):
        with pytest.raises(LostHistoryError, match="allowLostHistory=true"):
            once(taking, of([1]), txn_version=5)
    assert taking.sends() == []
    assert once(taking, of([1]), txn_version=5, allow_lost_history=True).messages == 1
    assert once(taking, of([1]), txn_version=6).messages == 1


def test_the_control_topic_is_made_on_request_and_else_missed_by_name() -> None:
    with TakingCluster().running() as bare:
        assert isinstance(bare, TakingCluster)
        bare.topic("T", 2)
        with pytest.raises(InvalidOptionError, match=r"controlTopic.*is not on broker broker-a"):
            once(bare, of([1]), topic="T")
        assert once(bare, of([1]), topic="T", create_topic=True).messages == 1
        assert len(bare.bodies(CONTROL)) == 2


def test_a_proxy_that_does_not_show_the_control_topic_on_a_broker_yet_is_asked_again() -> None:
    """Its routes are some seconds old, and the broker came back meanwhile."""
    with FakeProxy().running() as fake:
        assert isinstance(fake, FakeProxy)
        fake.settings = ""
        for broker in ("broker-a", "broker-b"):
            fake.fill("T", 0, broker=broker)
        fake.fill(CONTROL, 0, broker="broker-a")
        routes = []

        def comes_back(_peer: object, request: dict[str, Any]) -> bool:
            if request["code"] == 105 and request["extFields"]["topic"] == CONTROL:
                routes.append(request)
                if len(routes) == 2:
                    fake.fill(CONTROL, 0, broker="broker-b")
            return False

        fake.lie = comes_back
        cluster = ClusterSettings(name_servers=(fake.address,), retry_timeout_ms=60_000)
        more = {"delivery": "exactlyOnce", "txn_app_id": "app", "txn_version": 0, "topic": "T"}
        job = prepare(SendSettings(cluster=cluster, **more), rows(1, topic=None).schema)
        assert {queue.broker for queue in job.queues} == {"broker-a", "broker-b"}
        assert len(routes) == 2
        del fake.queues["broker-b", CONTROL, 0]
        cluster = replace(cluster, retry_timeout_ms=1)
        with pytest.raises(InvalidOptionError, match=r"controlTopic.*is not on broker broker-b"):
            prepare(SendSettings(cluster=cluster, **more), rows(1, topic=None).schema)


@pytest.mark.parametrize(
    ("option", "more"),
    [
        ("delivery", {"txn_app_id": None, "txn_version": None}),
        ("txnAppId", {"txn_version": None}),
        ("latencyFaultTolerance", {"latency_fault_tolerance": True}),
        ("uniqKey", {"uniq_key": "random"}),
        ("allowSystemTopics", {"allow_system_topics": True}),
    ],
)
def test_options_that_contradict_exactly_once_are_refused(
    taking: TakingCluster, option: str, more: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        prepare(settings_for(taking, **more), of([1]).schema)
    assert caught.value.args[0] == option


def test_options_of_exactly_once_are_refused_at_least_once(taking: TakingCluster) -> None:
    plain = {"delivery": "atLeastOnce", "txn_app_id": None, "txn_version": None}
    for name, more in (
        ("fenceWait", {"fence_wait_ms": 7}),
        ("controlTopic", {"fence_wait_ms": 5_000, "control_topic": "C"}),
        ("inlineBytes", {"fence_wait_ms": 5_000, "inline_bytes": 7}),
        ("stagingPath", {"fence_wait_ms": 5_000, "staging_path": "staged"}),
    ):
        with pytest.raises(InvalidOptionError) as caught:
            prepare(settings_for(taking, **plain | more), of([1]).schema)
        assert caught.value.args[0] == name


def test_a_broker_that_shows_messages_out_of_order_is_refused(taking: TakingCluster) -> None:
    taking.topic("T")
    taking.settings = "enableBuildConsumeQueueConcurrently=true\n"
    with pytest.raises(InvalidOptionError, match="in another order than it stored"):
        once(taking, of([1]), topic="T")


def test_rows_that_cannot_be_looked_for_are_bad_rows(taking: TakingCluster) -> None:
    taking.topic("T")
    with pytest.raises(InvalidMessageError, match="cannot be sent exactly once") as caught:
        handed(taking, rows(2, delayTimeLevel=[0, 3]))
    assert "Nothing was written" in str(caught.value)
    with pytest.raises(InvalidOptionError, match=r"inlineBytes.*set stagingPath to a directory"):
        handed(taking, rows(5, body=[b"x" * 1_000] * 5), inline_bytes=2_000)


def test_a_batch_of_a_stream_is_known_by_its_query_and_number(taking: TakingCluster) -> None:
    taking.topic("T")
    settings = settings_for(taking, txn_app_id=None, txn_version=None)
    planned = prepare(settings, of([1]).schema, is_stream=True)
    for batch_id, repeated in ((0, False), (0, True), (1, False)):
        job = of_batch(planned, "query", batch_id)
        report = hand_on(job, [of([batch_id])], partition=0, attempt=1)
        assert publish(job, [report]).is_repeated == repeated
    assert taking.bodies("T") == [b"0", b"1"]
    empty = SendReport(partition=0, attempt=1)
    assert publish(of_batch(planned, "query", 2), [empty]).messages == 0


TEXTS = st.text(max_size=20)
LONGS = st.integers(0, 2**62)
STARTS = st.dictionaries(
    st.builds(Queue, TEXTS, TEXTS, st.integers(0, 65_535)), st.integers(0, 2**62), max_size=5
)


SEEN = st.dictionaries(TEXTS, st.integers(0, 2**62), max_size=3)


ROWS = st.one_of(
    st.just({}), st.fixed_dictionaries({"rows": LONGS, "digest": st.text("ab", min_size=1)})
)


@given(st.builds(Control, TEXTS, TEXTS, LONGS, TEXTS, STARTS, SEEN), ROWS)
def test_a_control_record_is_read_as_it_was_written(record: Control, more: dict[str, Any]) -> None:
    record = replace(record, **more)
    assert decode(record.encode()) == record
    assert len(tag_of(record.app)) == 16


@pytest.mark.parametrize(
    "change",
    [
        {"kind": 5},
        {"version": "1"},
        {"version": -1},
        {"version": True},
        {"starts": []},
        {"starts": {"b": 5}},
        {"starts": {"b": {"T": {"x": 1}}}},
        {"starts": {"b": {"T": {"1": None}}}},
        {"seen": {"b": -1}},
        {"seen": None},
        {"digest": 5},
        {"digest": "d"},
        {"digest": "d", "rows": -1},
    ],
)
def test_what_is_no_control_record_is_told(change: dict[str, Any]) -> None:
    record = Control("BEGIN", "app", 1, "me", {Queue("T", "b", 1): 7})
    body = json.dumps(json.loads(record.encode()) | change).encode()
    for text in (body, b"[]", b"{", b"\xff"):
        with pytest.raises(InvalidControlError):
            decode(text)
    assert decode(record.encode()) == record
