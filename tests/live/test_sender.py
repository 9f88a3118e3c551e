"""The sender: what each answer means, order in a queue, failures, slow brokers, counts."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from live.conftest import PATIENT
from live.loopback import json_answer
from live.taking import Take, TakingCluster, said
from mqstore.errors import StoreError
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import AccessDeniedError, BrokenAnswerError, RequestRefusedError
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.live.send.brokers import BrokerStates
from mqstore.live.send.errors import NotReplicatedError, SendFailedError
from mqstore.live.send.requests import Parcel, Queue
from mqstore.live.send.sender import Sender, SenderSettings

MakeSender = Callable[..., Sender]
FIRST = Queue("T", "broker-a", 0)


@pytest.fixture
def taking() -> Iterator[TakingCluster]:
    with TakingCluster().running() as found:
        assert isinstance(found, TakingCluster)
        yield found


@pytest.fixture
def sender(taking: TakingCluster) -> Iterator[MakeSender]:
    with ExitStack() as stack:

        def make(**more: Any) -> Sender:
            own = {"queues_of": more.pop("queues_of", lambda _: ())}
            if "stored" in more:
                own["stored"] = more.pop("stored")
            settings = ClusterSettings(
                name_servers=(taking.address,), limits=PATIENT, retry_timeout_ms=60_000
            )
            cluster = stack.enter_context(Cluster(settings))
            defaults = {"producer_group": "PG", "send_timeout_ms": 60_000}
            return Sender(cluster, SenderSettings(**defaults | more), **own)

        yield make


def single(body: bytes, queue: Queue = FIRST, **more: Any) -> Parcel:
    """A message that is sent alone."""
    return Parcel(
        queue=queue, count=1, body=body, born_timestamp_ms=7, properties="A\x01b\x02", **more
    )


def send(sender: Sender, *parcels: Parcel) -> None:
    for parcel in parcels:
        sender.send(parcel)
    sender.flush()


def once(take: Take) -> Callable[[dict[str, Any]], Take | None]:
    """Do so with the first send, and take the others."""
    left = [take]
    return lambda _: left.pop() if left else None


def test_a_message_is_stored_where_it_is_meant_to_be(
    taking: TakingCluster, sender: MakeSender
) -> None:
    taking.topic("T", 3)
    stored: list[tuple[bytes, int]] = []
    made = sender(stored=lambda parcel, at: stored.append((parcel.body, at)))
    send(made, single(b"a"), single(b"b"), single(b"c", Queue("T", "broker-a", 2)))
    assert taking.bodies("T") == [b"a", b"b"]
    assert taking.bodies("T", 2) == [b"c"]
    assert sorted(stored) == [(b"a", 0), (b"b", 1), (b"c", 0)]
    assert (made.counts.messages, made.counts.bytes, made.counts.repeats) == (3, 3, 0)
    fields = taking.sends()[0]["extFields"]
    assert (fields["a"], fields["c"], fields["g"], fields["i"]) == ("PG", "", "7", "A\x01b\x02")


@pytest.mark.parametrize("code", [10, 11, 12])
def test_what_is_stored_without_its_replica_is_never_sent_again(
    taking: TakingCluster, sender: MakeSender, code: int
) -> None:
    taking.topic("T")
    taking.take = once(Take(code=code))
    made = sender()
    send(made, single(b"a"), single(b"b"))
    assert taking.bodies("T") == [b"a", b"b"]
    assert (made.counts.alone, made.counts.messages) == (1, 2)


def test_a_replica_can_be_required(taking: TakingCluster, sender: MakeSender) -> None:
    taking.topic("T")
    taking.take = once(Take(code=11))
    with pytest.raises(NotReplicatedError, match="stored, but the broker answered 11"):
        send(sender(requires_replica=True), single(b"a"))


@pytest.mark.parametrize("code", [2, 14, 215, 1500])
def test_what_is_not_stored_is_sent_again(
    taking: TakingCluster, sender: MakeSender, code: int
) -> None:
    taking.topic("T")
    taking.take = once(Take(stores=0, code=code))
    made = sender()
    send(made, single(b"a"))
    assert taking.bodies("T") == [b"a"]
    assert (made.counts.refusals, made.counts.repeats) == (1, 0)


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (3, "not supported"),
        (13, "the message is illegal"),
        (17, "topic not exist"),
        (29, "queueId[9] is illegal"),
        (1, "queueId[9] is illegal, topic"),
        (1, "message body size exceeded"),
    ],
)
def test_a_refusal_of_the_message_is_an_error_at_once(
    taking: TakingCluster, sender: MakeSender, code: int, remark: str
) -> None:
    taking.topic("T")
    taking.take = lambda _: Take(stores=0, code=code, remark=remark)
    with pytest.raises(RequestRefusedError, match=r"SEND_MESSAGE_V2 to T/broker-a/0"):
        send(sender(), single(b"a"))
    assert len(taking.sends()) == 1


@pytest.mark.parametrize(
    ("code", "remark"),
    [(16, "no permission."), (1, "AclException: no PUB, at X")],
)
def test_a_refusal_of_rights_says_which_are_needed(
    taking: TakingCluster, sender: MakeSender, code: int, remark: str
) -> None:
    taking.topic("T")
    taking.take = lambda _: Take(stores=0, code=code, remark=remark)
    wanted = r"[nX]\. Check .* needs PUB on the topic T \(with ACL 2.0 Topic:Pub\), whose perm"
    with pytest.raises(AccessDeniedError, match=wanted):
        send(sender(), single(b"a"))
    assert len(taking.sends()) == 1


LOST = [
    Take(code=None),
    Take(stores=0, code=None),
    Take(code=1, remark="NullPointerException"),
    Take(code=999),
]


@pytest.mark.parametrize("take", LOST)
def test_what_may_be_stored_is_sent_again_and_counted(
    taking: TakingCluster, sender: MakeSender, take: Take
) -> None:
    taking.topic("T")
    taking.take = once(take)
    made = sender()
    send(made, single(b"a"), single(b"b"))
    assert sorted(set(taking.bodies("T"))) == [b"a", b"b"]
    assert taking.bodies("T")[-1] == b"b"
    assert made.counts.repeats == 1


@pytest.mark.parametrize("take", LOST)
def test_what_may_be_stored_ends_a_sender_that_must_not_repeat(
    taking: TakingCluster, sender: MakeSender, take: Take
) -> None:
    taking.topic("T")
    taking.take = once(take)
    with pytest.raises(SendFailedError, match="not known whether the broker stored") as caught:
        send(sender(repeats_unknown=False), single(b"a"))
    assert caught.value.args[3] is True
    assert len(taking.sends()) == 1


def test_a_broker_that_refuses_for_ever_ends_in_send_timeout(
    taking: TakingCluster, sender: MakeSender
) -> None:
    taking.topic("T")
    taking.take = lambda _: Take(stores=0, code=2, remark="[TIMEOUT_CLEAN_QUEUE]broker busy")
    with pytest.raises(SendFailedError, match=r"did not store.*broker busy") as caught:
        send(sender(send_timeout_ms=300), single(b"a"))
    assert caught.value.args[3] is False


@pytest.mark.parametrize(
    "fields", [{"queueId": 5}, {"queueOffset": -1}, {"queueOffset": "x"}, {"queueOffset": ""}]
)
def test_an_answer_that_cannot_be_is_an_error(
    taking: TakingCluster, sender: MakeSender, fields: dict[str, object]
) -> None:
    taking.topic("T")
    taking.take = lambda _: Take(fields=fields)
    with pytest.raises(BrokenAnswerError):
        send(sender(), single(b"a"))


def test_garbage_in_place_of_answers_ends_in_send_timeout(
    taking: TakingCluster, sender: MakeSender
) -> None:
    taking.topic("T")
    taking.fault = lambda request: b"\0" * 64 if request["code"] == 310 else None
    with pytest.raises(StoreError, match=r"MQLOG_(SEND_FAILED|BROKEN_ANSWER)"):
        send(sender(send_timeout_ms=300), single(b"a"))


def test_an_answer_to_nobody_is_dropped(taking: TakingCluster, sender: MakeSender) -> None:
    taking.topic("T")
    taking.fault = lambda request: (
        json_answer(12_345) + taking._answer(request) if request["code"] == 310 else None
    )
    send(sender(), single(b"a"), single(b"b"))
    assert taking.bodies("T") == [b"a", b"b"]


def test_all_queues_have_a_request_under_way_and_none_has_two(
    taking: TakingCluster, sender: MakeSender
) -> None:
    """Brokers on servers of their own wait for each other before they answer their first send."""
    with TakingCluster().running() as other:
        assert isinstance(other, TakingCluster)
        taking.topic("T")
        taking.topic("T", broker="broker-b")
        other.topic("T", broker="broker-b")
        taking.addresses["broker-b"] = {0: other.address}
        together = threading.Barrier(2, timeout=10)
        under_way = dict.fromkeys(("broker-a", "broker-b"), 0)

        def meet(request: dict[str, Any]) -> None:
            broker = request["extFields"]["n"]
            under_way[broker] += 1
            assert under_way[broker] == 1
            if request["body"] == b"0":
                together.wait()
            under_way[broker] -= 1

        taking.take = other.take = meet
        queues = [Queue("T", broker, 0) for broker in under_way]
        bodies = [b"%d" % n for n in range(20)]
        send(sender(), *(single(b, q) for b in bodies for q in queues))
        assert taking.bodies("T") == bodies
        assert other.bodies("T", broker="broker-b") == bodies


def test_a_broker_that_is_away_is_waited_for(taking: TakingCluster, sender: MakeSender) -> None:
    """Its route is renewed: it comes back at another address."""
    taking.topic("T")
    taking.addresses["broker-a"] = {0: "127.0.0.1:1"}
    asked = 0

    def come_back(request: dict[str, Any]) -> None:
        nonlocal asked
        asked += request["code"] == 106
        if asked == 3:
            taking.addresses.clear()

    taking.fault = come_back
    made = sender(send_timeout_ms=60_000)
    send(made, single(b"a"))
    assert taking.bodies("T") == [b"a"]
    assert made.counts.repeats == 0


@pytest.mark.parametrize("answered", [True, False])
def test_a_broker_behind_something_that_accepts_connections_is_waited_for(
    taking: TakingCluster, sender: MakeSender, answered: bool
) -> None:
    """Connections end at once while it is away, also before it ever answered."""
    taking.topic("T")
    with TakingCluster().running() as broker:
        assert isinstance(broker, TakingCluster)
        broker.topic("T")
        taking.addresses["broker-a"] = {0: broker.address}
        made = sender()
        bodies = [b"0", b"1"] if answered else [b"1"]
        if answered:
            send(made, single(b"0"))
        lost = [Take(stores=0, code=None)] * 5
        broker.take = lambda _: lost.pop() if lost else None
        send(made, single(b"1"))
        assert broker.bodies("T") == bodies
        assert not lost


def test_rows_for_any_queue_pass_over_a_broker_that_fails(
    taking: TakingCluster, sender: MakeSender
) -> None:
    taking.topic("T")
    taking.topic("T", broker="broker-b")
    taking.addresses["broker-a"] = {0: "127.0.0.1:1"}
    queues = [Queue("T", broker, 0) for broker in ("broker-a", "broker-b")]
    made = sender(passes_over=True, queues_of=lambda _: queues)
    send(made, *(single(b"%d" % n, queues[n % 2], may_move=True) for n in range(10)))
    assert taking.all_bodies("T") == [b"%d" % n for n in range(10)]
    assert len(taking.bodies("T", broker="broker-b")) == 10
    assert made.counts.moves == 5
    with pytest.raises(SendFailedError, match="T/broker-a/0"):
        send(sender(passes_over=True, send_timeout_ms=300), single(b"stays", queues[0]))


def test_a_slow_broker_is_passed_over_for_a_while() -> None:
    states = BrokerStates()
    assert not states.is_passed_over("a")
    states.answered("a", 0.5)
    assert not states.is_passed_over("a")
    states.answered("a", 0.6)
    assert states.is_passed_over("a")
    states.answered("a", 0.1)
    assert not states.is_passed_over("a")
    states.failed("a")
    assert states.is_passed_over("a")


def test_what_is_pending_is_bounded(taking: TakingCluster, sender: MakeSender) -> None:
    taking.topic("T")
    made = sender()
    for n in range(24):
        made.send(single(b"%d" % (n % 10) * (1 << 20)))
        assert len(taking.sends()) >= n - 17
    made.flush()
    assert [said(request)[3] for request in taking.sends()] == [1] * 24
