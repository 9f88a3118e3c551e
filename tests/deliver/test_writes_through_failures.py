"""Writes to two real brokers of each version through failures of every kind: none lost, none twice.

The size live_writes says how many, the seed chooses the moments.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count

import pytest

from broker.harness import Cluster as Servers
from deliver.failing_trial import Trial, Try, bodies_of, is_whole, of
from deliver.modelled import look_at_nothing
from deliver.proxy import Fault, Proxy
from live.real import Live
from mqstore.deliver.once.errors import NewerOwnerError
from mqstore.deliver.prepare import prepare
from mqstore.live.remoting.connection import Connection
from mqstore.live.remoting.errors import BrokerUnavailableError
from mqstore.live.send.sender import Sender
from support import soak

pytestmark = pytest.mark.broker

WRITES = soak.size("live_writes", check=3, test=3, whole=1_000)
SEED = soak.SEED
HARMS = (None, "freeze", "kill")
Pair = tuple[list[Live], list[Proxy]]
TOPICS = count()


@pytest.fixture(scope="module")
def pair(cluster: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two brokers, each behind a proxy."""
    with ExitStack() as stack:
        lives = []
        for name in ("broker-k", "broker-l"):
            root = tmp_path_factory.mktemp(f"{name}-{cluster.version}-") / "store"
            lives.append(stack.enter_context(closing(Live(cluster, root, {"brokerName": name}))))
        yield lives, [stack.enter_context(closing(Proxy(live.broker.address))) for live in lives]


@pytest.fixture
def trial(pair: Pair) -> Iterator[Trial]:
    with closing(Trial(*pair, f"Chaos{next(TOPICS)}", SEED)) as found:
        yield found


def wanted(writes: int) -> Counter[bytes]:
    return Counter(body for version in range(writes) for body in bodies_of(version))


@pytest.mark.soak
def test_every_row_is_there_once_whatever_fails(pair: Pair, trial: Trial) -> None:
    """With another producer on the same queues, and clocks an hour ahead and behind."""
    with trial.other_producer():
        for version in range(WRITES):
            trial.once(version, HARMS[version % len(HARMS)])
    assert not set(filter(None, HARMS[:WRITES])) - set(trial.done)
    assert Counter(body for body, _ in trial.held()) == wanted(WRITES)
    official = Counter[str]()
    for live in pair[0]:
        live.broker.connect()
        official += Counter(row["bodySha1"] for row in live.broker.dump(trial.topic).rows)
    digests = {
        hashlib.sha1(body, usedforsecurity=False).hexdigest(): number
        for body, number in wanted(WRITES).items()
    }
    assert {digest: official[digest] for digest in digests} == digests
    soak.tell(f"{WRITES} writes exactly once: {dict(trial.done)}")


@pytest.mark.soak
def test_no_row_is_lost_at_least_once_and_repeats_have_the_same_id(trial: Trial) -> None:
    with trial.other_producer():
        for version in range(WRITES):
            trial.at_least_once(version, HARMS[version % len(HARMS)])
    assert not set(filter(None, HARMS[:WRITES])) - set(trial.done)
    whole = {(body, key) for body, key in trial.held() if is_whole(key)}
    assert Counter(body for body, _ in whole) == wanted(WRITES)
    soak.tell(f"{WRITES} writes at least once: {dict(trial.done)}")


def test_of_two_publishers_at_once_the_older_one_stops(trial: Trial) -> None:
    part = of(bodies_of(0))
    more = {"delivery": "exactlyOnce", "txn_app_id": "two", "txn_version": 0}
    control = {"control_topic": f"{trial.topic}-control", "fence_wait_ms": 1}
    job = prepare(trial.settings(**more, **control), part.schema)
    done = []

    def begin_meanwhile(place: str, number: int) -> None:
        if (place, number) == ("parcel", 5):
            done.append(trial.publish(job, 0, Try()))

    with pytest.raises(NewerOwnerError):
        trial.publish(job, 0, Try(before=begin_meanwhile))
    assert not done[0].is_repeated
    assert Counter(body for body, _ in trial.held()) == wanted(1)


def test_a_message_of_a_killed_broker_is_known_by_its_id() -> None:
    assert is_whole("0A" * 16)
    for torn in (None, "", "0A" * 15, "0A" * 8 + "\0" * 16, "0A" * 16 + "\0"):
        assert not is_whole(torn)


def test_a_publisher_that_does_not_look_is_found(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at_nothing(monkeypatch)
    monkeypatch.setattr(trial, "_plan", lambda _: Try({5: Fault.LOST_ANSWER}))
    trial.once(0)
    assert Counter(body for body, _ in trial.held()) != wanted(1)


def test_a_sender_that_takes_a_lost_answer_for_an_acknowledgement_is_found(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(sender: Sender, connection: Connection, _: BrokerUnavailableError) -> None:
        for key in [key for key in sender._flights if key[0] is connection]:
            parcel = sender._take_first(sender._flights.pop(key).queue).parcel
            sender.counts.messages += parcel.count

    monkeypatch.setattr(Sender, "_lost", careless)
    monkeypatch.setattr(trial, "_plan", lambda _: Try({5: Fault.LOST_REQUEST}))
    trial.at_least_once(0)
    assert wanted(1) - Counter(body for body, _ in trial.held())
