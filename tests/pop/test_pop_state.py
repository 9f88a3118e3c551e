"""The state of POP groups: a model that pops, acknowledges and revives, against the function."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.errors import InvalidOptionError
from mqstore.format.pop import Acks, Checkpoint, KvEntry, KvPops, OrderInfo, PopKey
from mqstore.pop import checkpoints
from mqstore.pop.checkpoints import CheckpointLog
from mqstore.pop.state import (
    KV_UNKNOWN,
    POP,
    POP_FIFO,
    POP_KV,
    POP_UNKNOWN,
    PopQueue,
    PopSources,
    PopState,
)
from support import soak

EXAMPLES = soak.size("pop_histories", check=60, test=400, whole=20_000)
TOPIC, GROUP, BROKER = "T", "G", "b"


@dataclass
class Broker:
    """One queue of a broker with the classic service: what it wrote, and what is true."""

    high: int = 0
    low: int = 0
    next: int = 0
    now: int = 1_000
    checkpoints: list[Checkpoint] = field(default_factory=list)
    acks: list[Acks] = field(default_factory=list)
    done: list[Checkpoint] = field(default_factory=list)
    holders: dict[int, Checkpoint] = field(default_factory=dict)
    """The newest checkpoint of each message that is popped and not acknowledged or revived."""
    committed: int = 0
    flushed: list[Checkpoint] = field(default_factory=list)
    """What the file of offsets has: the next offset to pop, and which checkpoints are done."""
    revived: dict[int, Checkpoint] = field(default_factory=dict)
    """What was revived after that."""

    def pop(self, count: int, invisible: int) -> None:
        places = tuple(range(self.next, min(self.next + count, self.high)))
        if places:
            self.next = places[-1] + 1
            self.give(places, invisible)

    def give(self, places: tuple[int, ...], invisible: int) -> None:
        key = PopKey(TOPIC, GROUP, 0, places[0], self.now, BROKER)
        found = Checkpoint(key, invisible, places)
        self.checkpoints.append(found)
        self.holders |= dict.fromkeys(places, found)

    def ack(self, place: int, *, named: bool) -> None:
        key = self.holders.pop(place).key
        self.acks.append(Acks(key if named else key._replace(broker=""), (place,)))

    def change(self, place: int, invisible: int) -> None:
        before = self.holders[place]
        self.give((place,), invisible)
        self.acks.append(Acks(before.key, (place,)))

    def revive(self) -> None:
        """Be done with every checkpoint whose time is over."""
        for found in self.checkpoints:
            if found not in self.done and found.key.pop_ms + found.invisible_ms < self.now:
                self.done.append(found)
                for place in found.queue_offsets:
                    if self.holders.get(place) is found:
                        self.revived[place] = self.holders.pop(place)

    def flush(self) -> None:
        """Write the offsets: of groups and of the revival, in one file."""
        self.committed, self.flushed, self.revived = self.next, [*self.done], {}

    def state(self, repeats: int = 0) -> PopState:
        log = CheckpointLog(BROKER)
        for acks in self.acks:
            log.add_acks(acks)
        for found in self.checkpoints + self.checkpoints[:repeats]:
            log.add(found)
        for found in self.flushed:
            log.add_done(found)
        offsets = {(TOPIC, GROUP): {0: self.committed}}
        return PopState(PopSources(log.open_offsets(), frozenset({(TOPIC, GROUP)}), offsets))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_open_is_what_was_popped_and_neither_acknowledged_nor_revived(data: st.DataObject) -> None:
    broker = Broker()
    for _ in range(data.draw(st.integers(1, 30), label="steps")):
        broker.now += data.draw(st.sampled_from([1, 50, 400]))
        steps = ["send", "pop", "revive", "expire", "flush"]
        steps += ["ack", "ack", "change"] * bool(broker.holders)
        step = data.draw(st.sampled_from(steps))
        if step == "send":
            broker.high += data.draw(st.integers(1, 40))
        elif step == "pop":
            broker.pop(data.draw(st.integers(1, 32)), data.draw(st.sampled_from([100, 900])))
        elif step == "ack":
            named = data.draw(st.booleans())
            broker.ack(data.draw(st.sampled_from(sorted(broker.holders))), named=named)
        elif step == "change":
            place = data.draw(st.sampled_from(sorted(broker.holders)))
            broker.change(place, data.draw(st.sampled_from([10, 2_000])))
        elif step == "revive":
            broker.revive()
        elif step == "flush":  # What comes after the last one, a kill -9 finds in the log only.
            broker.flush()
        else:
            broker.low = data.draw(st.integers(broker.low, broker.high))
    queue = broker.state(data.draw(st.integers(0, 3))).queue(TOPIC, GROUP, 0)
    assert queue is not None
    _check(broker, queue)


def _check(broker: Broker, queue: PopQueue) -> None:
    popped = broker.revived | broker.holders
    held = {place for place in popped if place >= broker.low}
    late = {place for place in held if _visible(popped[place]) < broker.now}
    begin, committed = (max(place, broker.low) for place in (broker.next, broker.committed))
    standing = queue.standing(broker.low, broker.high, broker.now)
    assert set(standing.open.tolist()) == held
    assert (standing.inflight, standing.due) == (len(held - late), len(late))
    assert (standing.ready, standing.begin) == (broker.high - begin, begin)
    assert standing.unacknowledged == standing.ready + len(held)
    assert standing.redelivered == begin - committed
    assert standing.expired == max(broker.low - broker.next, 0) + len(popped.keys() - held)


def _visible(found: Checkpoint) -> int:
    return found.key.pop_ms + found.invisible_ms


def test_a_message_in_two_checkpoints_is_counted_once_with_its_later_time() -> None:
    broker = Broker(high=4)
    broker.pop(4, 100)
    broker.now += 10
    broker.give((2,), 5_000)  # A change of the invisible time, whose ack is not written yet.
    queue = broker.state().queue(TOPIC, GROUP, 0)
    assert queue is not None
    assert queue.queue_offsets.tolist() == [0, 1, 2, 3]
    assert queue.visible_ms.tolist() == [1_100, 1_100, 6_010, 1_100]
    assert queue.pop_ms.tolist() == [1_000, 1_000, 1_010, 1_000]


def test_a_checkpoint_that_is_put_again_is_open_although_its_first_form_is_done() -> None:
    broker = Broker(high=2)
    broker.pop(2, 100)
    again = broker.checkpoints[0]._replace(invisible_ms=10_100, queue_offsets=(0,))
    broker.flushed.append(broker.checkpoints[0])
    broker.checkpoints.append(again)
    queue = broker.state().queue(TOPIC, GROUP, 0)
    assert queue is not None
    assert queue.queue_offsets.tolist() == [0]


def test_acks_of_another_broker_group_queue_or_pop_acknowledge_nothing() -> None:
    broker = Broker(high=2)
    broker.pop(2, 100)
    key = broker.checkpoints[0].key
    others = (
        key._replace(broker="x"),
        key._replace(group="H"),
        key._replace(queue_id=1),
        key._replace(pop_ms=7),
        key._replace(start_offset=1),
        key._replace(topic="U"),
    )
    broker.acks += [Acks(other, (0, 1)) for other in others]
    broker.acks.append(Acks(key, (1, 2**62)))
    queue = broker.state().queue(TOPIC, GROUP, 0)
    assert queue is not None
    assert queue.queue_offsets.tolist() == [0]


def test_entries_of_the_kv_service_are_open_beside_checkpoints() -> None:
    broker = Broker(high=9)
    broker.pop(2, 100)
    log = CheckpointLog(BROKER)
    log.add(broker.checkpoints[0])
    entries = (KvEntry(9_000, GROUP, TOPIC, 0, place, 5_000, 3) for place in (1, 4))
    sources = PopSources(
        log.open_offsets(),
        committed={(TOPIC, GROUP): {0: 2}},
        pulled={(TOPIC, GROUP): {0: 6}},
        kv=KvPops(entries, frozenset({(TOPIC, GROUP)})),
    )
    state = PopState(sources)
    queue = state.queue(TOPIC, GROUP, 0)
    assert queue is not None
    assert state.modes == {(TOPIC, GROUP): POP_KV}
    assert queue.queue_offsets.tolist() == [0, 1, 4]
    assert queue.deliveries.tolist() == [0, 3, 3]
    standing = queue.standing(0, 9, 6_000)
    assert (standing.ready, standing.inflight, standing.due, standing.redelivered) == (3, 2, 1, 4)


def test_a_batch_in_order_has_the_holes_of_its_bits() -> None:
    batch = OrderInfo((5, 6, 7, 9), (False, True, False, True), (800, 800, 4_000, 800), 100)
    sources = PopSources(
        CheckpointLog(BROKER).open_offsets(),
        committed={(TOPIC, GROUP): {0: 5}},
        order_info={(TOPIC, GROUP): {0: batch}},
    )
    state = PopState(sources)
    queue = state.queue(TOPIC, GROUP, 0)
    assert queue is not None
    assert state.modes == {(TOPIC, GROUP): POP_FIFO}
    standing = queue.standing(0, 20, 1_000)
    assert standing.open.tolist() == [5, 7]
    assert (standing.ready, standing.inflight, standing.due) == (10, 1, 1)


def test_a_batch_before_the_committed_offset_is_history() -> None:
    batch = OrderInfo((5, 6), (False, False), (800, 800), 100)
    sources = PopSources(
        CheckpointLog(BROKER).open_offsets(),
        committed={(TOPIC, GROUP): {0: 7}},
        order_info={(TOPIC, GROUP): {0: batch}},
    )
    queue = PopState(sources).queue(TOPIC, GROUP, 0)
    assert queue is not None
    assert queue.standing(0, 7, 1_000).unacknowledged == 0


def test_retry_topics_belong_to_the_pair_that_names_them_and_not_to_a_split_of_the_name() -> None:
    named = frozenset({("c", "a_b")})
    topics = {"c", "b_c", "%RETRY%a_b_c", "%RETRY%a_b+c", "%RETRY%a+b_c"}
    nothing = CheckpointLog(BROKER).open_offsets()
    state = PopState(PopSources(nothing, named, topics=topics))
    assert state.modes == {
        ("c", "a_b"): POP,
        ("%RETRY%a_b_c", "a_b"): POP,
        ("%RETRY%a_b+c", "a_b"): POP,
    }


def test_a_group_that_pulls_has_no_queue() -> None:
    sources = PopSources(CheckpointLog(BROKER).open_offsets(), committed={(TOPIC, GROUP): {0: 7}})
    assert PopState(sources).queue(TOPIC, GROUP, 0) is None


def test_more_open_messages_than_memory_is_for_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoints, "MAX_OPEN", 10)
    broker = Broker(high=100)
    for _ in range(3):
        broker.now += 1
        broker.pop(5, 100)
    with pytest.raises(InvalidOptionError, match="name fewer groups"):
        broker.state()


def test_more_names_than_memory_is_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints without a message, each of another group, take memory too."""
    monkeypatch.setattr(checkpoints, "MAX_OPEN", 1_000)
    names = [f"G{number}" for number in range(200)]
    log = CheckpointLog(BROKER)
    found = [Checkpoint(PopKey(TOPIC, name, 0, 0, 1, BROKER), 100, ()) for name in names]
    with pytest.raises(InvalidOptionError, match="name fewer groups"):
        deque(map(log.add, found))
    log = CheckpointLog(BROKER)
    with pytest.raises(InvalidOptionError, match="name fewer groups"):
        deque(log.add_pair(TOPIC, name) for name in names)
    log = CheckpointLog(BROKER)
    log.add_pair("../x", GROUP)
    log.add_pair(TOPIC, "")
    assert not log.pairs


def test_a_message_of_a_checkpoint_takes_few_bytes() -> None:
    log = CheckpointLog(BROKER)
    for number in range(1_000):
        places = tuple(range(number * 32, number * 32 + 32))
        log.add(Checkpoint(PopKey(TOPIC, GROUP, 0, places[0], number, BROKER), 100, places))
    found = log.open_offsets()
    assert np.array_equal(found.queue_offsets, np.arange(32_000))
    assert log.bytes < 64 * 32_000


def test_what_a_checkpoint_names_was_popped_though_the_broker_is_done_with_it() -> None:
    """A broker that was killed begins at an older offset: what it pops again is `redelivered`."""
    log = CheckpointLog(BROKER)
    done = Checkpoint(PopKey(TOPIC, GROUP, 0, 0, 1_000, BROKER), 3_000, tuple(range(10)))
    log.add(done)
    log.add_acks(Acks(done.key, tuple(range(10))))
    log.add_done(done)
    sources = PopSources(log.open_offsets(), {(TOPIC, GROUP)}, {(TOPIC, GROUP): {0: 4}})
    found = PopState(sources).queue(TOPIC, GROUP, 0)
    assert found is not None
    standing = found.standing(0, 12, as_of_ms=9_000)
    assert (standing.ready, standing.unacknowledged, standing.redelivered) == (2, 2, 6)


@pytest.mark.parametrize("start", [7, 3_000_000])
def test_what_no_checkpoint_names_is_ready_though_later_messages_were_popped(start: int) -> None:
    """With enablePopBufferMerge a change of time is stored before the pops around it are."""
    log = CheckpointLog(BROKER)
    log.add(Checkpoint(PopKey(TOPIC, GROUP, 0, start, 1_000, BROKER), 3_000, (start,)))
    sources = PopSources(log.open_offsets(), {(TOPIC, GROUP)}, {(TOPIC, GROUP): {0: 4}})
    found = PopState(sources).queue(TOPIC, GROUP, 0)
    assert found is not None
    standing = found.standing(0, start + 3, as_of_ms=2_000)
    assert standing.unacknowledged == start - 4 + 3
    # A broker that starts on these files pops each message from 4 on once.
    assert standing.redelivered is not None
    assert standing.ready + standing.redelivered == start + 3 - 4
    if start == 7:
        assert standing.redelivered == 1
        assert (standing.ready, standing.inflight, standing.due) == (5, 1, 0)
        assert standing.open.tolist() == [4, 5, 6, 7]
        assert found.visible_ms.tolist() == [-1, -1, -1, 4_000]


def test_an_offset_that_was_set_back_makes_all_behind_it_ready() -> None:
    """Of a cluster, whose broker pops from it on; what is open before it stays so."""
    log = CheckpointLog(BROKER)
    for start in (0, 10):
        key = PopKey(TOPIC, GROUP, 0, start, 1_000 + start, BROKER)
        log.add(Checkpoint(key, 60_000, tuple(range(start, start + 10))))
        log.add_acks(Acks(key, tuple(range(start + 4, start + 10))))
    offsets = {(TOPIC, GROUP): {0: 2}}
    opened, name = log.open_offsets(), (TOPIC, GROUP, 0)
    state = PopState(PopSources(opened, committed=offsets, set_back={name}, is_live=True))
    queue = state.queue(*name)
    assert queue is not None
    standing = queue.standing(0, 30, 2_000)
    assert (standing.ready, standing.inflight, standing.open.tolist()) == (28, 2, [0, 1])
    assert queue.first == 0


def kv_state(**more: object) -> PopState:
    """A broker whose KV service cannot be read: (x_y, a) popped its retries, others do not."""
    retry = "%RETRY%a_x_y"
    offsets = {("x_y", "a"): {0: 5}, (retry, "a"): {0: 1}, ("y", "a_x"): {0: 3}, ("z", "p"): {0: 2}}
    own = {("RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS"): {0: 1}, ("%RETRY%p", "p"): {0: 1}}
    sources = {"kv": None, "topics": {retry, "x_y", "y", "z"}, "is_live": True, **more}
    nothing = CheckpointLog(BROKER).open_offsets()
    return PopState(PopSources(nothing, committed=offsets | own, **sources))  # type: ignore[arg-type]


def test_a_group_of_a_kv_service_pops_if_it_popped_its_retries_else_it_is_not_known() -> None:
    """A name that fits is no proof: that retry topic is the one of another group."""
    state = kv_state()
    pairs = {("x_y", "a"), ("%RETRY%a_x_y", "a"), ("y", "a_x"), ("z", "p")}
    assert state.modes == dict.fromkeys(pairs, POP_KV)
    for topic, group in pairs:
        queue = state.queue(topic, group, 0)
        assert queue is not None
        standing = queue.standing(0, 9, 0)
        assert (standing.status, standing.inflight, standing.unacknowledged) == (
            KV_UNKNOWN, None, None,
        )  # fmt: skip
    assert kv_state(pulling={("z", "p")}).queue("z", "p", 0) is None


def test_a_store_that_its_kv_service_never_wrote_to_has_no_groups_of_it() -> None:
    assert kv_state(kv=KvPops()).modes == {}
    used = kv_state(kv=KvPops(is_used=True), is_live=False)
    proven, unproven = used.queue("x_y", "a", 0), used.queue("y", "a_x", 0)
    assert proven is not None
    assert unproven is not None
    assert proven.standing(0, 9, 0).unacknowledged == 4
    assert unproven.standing(0, 9, 0).status == KV_UNKNOWN


def test_what_was_popped_is_not_known_where_its_topics_cannot_be_read() -> None:
    opened = CheckpointLog(BROKER).open_offsets()
    pair = (TOPIC, GROUP)
    state = PopState(PopSources(opened, frozenset({pair}), {pair: {0: 4}}, is_hidden=True))
    queue = state.queue(TOPIC, GROUP, 0)
    assert queue is not None
    standing = queue.standing(0, 9, 0)
    assert (standing.status, standing.ready, standing.unacknowledged) == (POP_UNKNOWN, 5, None)
