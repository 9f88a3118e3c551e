"""A model of a broker that pops, delivers timers and revives; what it wrote is read from a store.

Its file of offsets is as old as the last flush, as kill -9 leaves it. What is open is told by
checkpoints, acknowledgements, the offset of the revival, and copies in the retry topic.
"""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.format.pop import REVIVE_GROUP
from pop.test_look import NOW, REVIVE, TIMER, ack, checkpoint, delivered, message, state_of
from support import soak
from support.oracle import Message
from support.stores import Layout, lay_out

EXAMPLES = soak.size("pop_stores", check=15, test=60, whole=5_000)
TOPIC, GROUP, RETRY = "T", "G", "%RETRY%G_T"
LATE_MS = 2_000
"""How long a time must be over before a message is copied."""


@dataclass
class Pop:
    """A checkpoint: its messages, and the record of it in the log."""

    topic: str
    queue_id: int
    places: tuple[int, ...]
    popped_ms: int
    visible_ms: int
    acked: set[int] = field(default_factory=set)


@dataclass
class Writer:
    """One broker with one group; queues are (topic, queueId)."""

    now: int = NOW - 600_000
    log: list[Message] = field(default_factory=list)
    keys: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    next: dict[tuple[str, int], int] = field(default_factory=dict)
    timers: list[tuple[int, Message, Pop | None]] = field(default_factory=list)
    revive: list[Pop | None] = field(default_factory=list)
    done: int = 0
    pops: list[Pop] = field(default_factory=list)
    over: list[Pop] = field(default_factory=list)
    flushed: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)

    def send(self, topic: str, queue_id: int, key: str) -> None:
        self.keys.setdefault((topic, queue_id), []).append(key)
        self.log.append(message(topic, self.now, key, queue_id))

    def pop(self, topic: str, queue_id: int, count: int, invisible: int) -> None:
        start, held = self.next.get((topic, queue_id), 0), self.keys[topic, queue_id]
        places = tuple(range(start, min(start + count, len(held))))
        if places:
            self.next[topic, queue_id] = places[-1] + 1
            self.give(topic, queue_id, places, invisible)

    def give(self, topic: str, queue_id: int, places: tuple[int, ...], invisible: int) -> None:
        self.now += 1  # No two pops of a message have one time.
        pop = Pop(topic, queue_id, places, self.now, self.now + invisible)
        self.pops.append(pop)
        written = checkpoint(
            places[0], len(places), at=self.now, invisible=invisible, topic=topic, queue_id=queue_id
        )
        self._timer(written, pop.visible_ms - 1_000, pop)

    def ack(self, pop: Pop, place: int) -> None:
        pop.acked.add(place)
        written = ack(
            place, pop.places[0], pop=pop.popped_ms, at=self.now, t=pop.topic, q=pop.queue_id,
            invisible=pop.visible_ms - pop.popped_ms,
        )  # fmt: skip
        self._timer(written, pop.visible_ms, None)

    def change(self, pop: Pop, place: int, invisible: int) -> None:
        self.give(pop.topic, pop.queue_id, (place,), invisible)
        self.ack(pop, place)

    def _timer(self, written: Message, out: int, pop: Pop | None) -> None:
        if out > self.now:
            self.log.append(written)
            self.timers.append((out, written, pop))
        else:
            self._revive_later(written, pop)

    def _revive_later(self, written: Message, pop: Pop | None) -> None:
        self.log.append(delivered(written, self.now))
        self.revive.append(pop)

    def deliver(self) -> None:
        """Give the revive topic the timers whose time has come."""
        coming = sorted((one for one in self.timers if one[0] <= self.now), key=lambda one: one[0])
        self.timers = [one for one in self.timers if one[0] > self.now]
        for _, written, pop in coming:
            self._revive_later(written, pop)

    def copy(self) -> None:
        """Copy what was not acknowledged in time; end at the first checkpoint not over."""
        if any(out <= self.now for out, _, _ in self.timers):
            return  # The timer is behind: acknowledgements may be missing.
        for number in range(self.done, len(self.revive)):
            pop = self.revive[number]
            if pop is None:
                continue
            if pop.visible_ms + LATE_MS >= self.now:
                break
            for place in pop.places:
                if place not in pop.acked:
                    self.send(RETRY, 0, self.keys[pop.topic, pop.queue_id][place])
            self.over.append(pop)
            self.done = number + 1

    def flush(self) -> None:
        self.flushed = {(REVIVE, REVIVE_GROUP): {0: self.done - 1}} if self.done else {}
        for (topic, queue_id), place in self.next.items():
            self.flushed.setdefault((topic, GROUP), {})[queue_id] = place

    def holders(self) -> list[tuple[Pop, int]]:
        return [
            (pop, place)
            for pop in self.pops
            if pop not in self.over and pop.visible_ms > self.now
            for place in pop.places
            if place not in pop.acked
        ]

    def open(self, topic: str, queue_id: int) -> dict[int, int]:
        """The open messages of a queue, with their latest times."""
        found: dict[int, int] = {}
        for pop in self.pops:
            if (pop.topic, pop.queue_id) == (topic, queue_id) and pop not in self.over:
                for place in set(pop.places) - pop.acked:
                    found[place] = max(found.get(place, 0), pop.visible_ms)
        return found


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_what_is_open_is_read_from_what_a_killed_broker_wrote(data: st.DataObject) -> None:
    writer = Writer()
    for queue_id in (0, 1):
        for number in range(20):
            writer.send(TOPIC, queue_id, f"key-{queue_id}-{number}")
    invisible = st.sampled_from([1_000, 5_000, 30_000, 900_000])
    for _ in range(data.draw(st.integers(1, 25), label="steps")):
        writer.now += data.draw(st.sampled_from([1, 900, 4_000, 20_000]))
        queue = data.draw(st.sampled_from(sorted(writer.keys)))
        steps = ["pop", "pop", "deliver", "revive", "flush"]
        step = data.draw(st.sampled_from(steps + ["ack", "ack", "change"] * bool(writer.holders())))
        if step == "pop":
            writer.pop(*queue, data.draw(st.integers(1, 8)), data.draw(invisible))
        elif step == "deliver":
            writer.deliver()
        elif step == "revive":
            writer.deliver()
            writer.copy()
        elif step == "flush":
            writer.flush()
        else:
            pop, place = data.draw(st.sampled_from(writer.holders()))
            if step == "ack":
                writer.ack(pop, place)
            else:
                writer.change(pop, place, data.draw(invisible))
    check(writer)


def check(writer: Writer) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        layout = Layout(commit_log_bytes=1 << 16, group_offsets=writer.flushed)
        lay_out(root, writer.log, layout)
        state = state_of(root)
    for (topic, queue_id), held in writer.keys.items():
        expected, queue = writer.open(topic, queue_id), state.queue(topic, GROUP, queue_id)
        if queue is None:
            assert not writer.pops
            continue
        assert (
            dict(zip(queue.queue_offsets.tolist(), queue.visible_ms.tolist(), strict=True))
            == expected
        )
        assert queue.next == writer.next.get((topic, queue_id), 0)
        standing = queue.standing(0, len(held), NOW)
        late = sum(visible < NOW for visible in expected.values())
        assert (standing.due, standing.inflight) == (late, len(expected) - late)
        committed = writer.flushed.get((topic, GROUP), {}).get(queue_id, 0)
        assert standing.redelivered == queue.next - committed
    assert {queue.topic for queue in writer.log} <= {TOPIC, RETRY, TIMER, REVIVE}
