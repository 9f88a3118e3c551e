"""A crash state before the judge: a broker, another after a kill, our recovery, a broker again.

A ``Case`` is one commit that was recorded on the simulated disk (crash/disk.py). ``trial`` takes
one state of it through a life that a supervisor of brokers could give it, and says at each start
what may be served. What it does beyond the state is drawn from the state's name, so that the
name makes all of it again.
"""

import hashlib
import random
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from crash.disk import Disk, Names, Op, Passing, Recorder, State, Write, standing_in
from crash.rocketmq_jvm import hand
from crash.rocketmq_jvm.store_jvm import Queue, RefusedError, Served, Sizes, StoreJvm
from crash.scenarios import APP, BY_NAME, Scenario, Shape, Work, work, write
from mqstore.check import check
from mqstore.errors import UncleanStoreError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.txn import intent, ledger
from mqstore.format.names import INTERLOCK
from mqstore.write.recover import RecoverSettings, recover
from support.oracle import Message

INDEX_UNITS: Final = 400
STORE: Final = "store"
ACKED: Final = "acked"
BROKERS: Final = "a-brokers"
"""The case whose store the judged version wrote itself; the oracle lays out the others'."""

Told = Counter[tuple[str, int, str | None, str]]
"""Topic, queueId, keys and SHA-1 of the body: what a consumer can tell of a message."""


_OF_A_BROKER: Final = Scenario(
    BROKERS, lambda rng: Shape(old=0, rows=5 + rng.randrange(8), topics=("A", "New"))
)


@dataclass(frozen=True)
class BrokersWork(Work):
    """A commit to a store that a broker wrote and stopped."""

    origin: Path = Path()

    def lay_out(self, root: Path) -> None:
        """Make the store as it is before."""
        shutil.copytree(self.origin, root)


@dataclass(frozen=True)
class Case:
    """A commit that was recorded, and what is served before it and because of it."""

    work: Work
    sizes: Sizes
    disk: Disk
    decide: int
    """How many operations were done when the decision was first on its way to the disk."""
    publish: int
    """How many, when the one byte was next that shows the commit to a broker."""
    before: Told
    batch: Told
    ends: tuple[int, ...]
    """Physical offsets at which records of the batch end, in the file of the first."""
    tail: int
    """Physical offset at which the log ended before."""

    def choose(self, rng: random.Random) -> State:
        """Draw a state: often a hidden commit, seldom one before the decision."""
        first = 0 if rng.random() < 0.1 else self.decide - 2
        prefix = rng.randrange(first, len(self.disk.ops) + 1)
        if rng.random() < 0.3:
            prefix = self.publish
        return rng.choice(list(self.disk.cut(prefix, rng, 2)))


def record(name: str, seed: int, base: Path, stopped: Path) -> Case:
    """Commit as the scenario says, on a disk that keeps a list."""
    what = work(_OF_A_BROKER if name == BROKERS else BY_NAME[name], seed)
    # A broker names an IndexFile by the millisecond: two small ones may get one name, and one file.
    layout = replace(what.shape.layout, index_units=INDEX_UNITS)
    what = replace(what, shape=replace(what.shape, layout=layout))
    sizes = Sizes(
        layout.commit_log_bytes, layout.queue_units * 20, layout.index_slots, layout.index_units
    )
    if name == BROKERS:
        what, sizes = BrokersWork(name, seed, what.shape, what.batches, origin=stopped), Sizes()
    root = base / STORE
    base.mkdir(parents=True)
    with standing_in(Passing()):
        what.lay_out(root)
    old = hand.records(root)
    recorder = Recorder(base)
    with standing_in(recorder):
        what.run(root)
    recorder.mark(ACKED)
    new = hand.records(root)[len(old) :]
    assert len(new) == what.shape.rows
    shutil.rmtree(base)
    first = new[0].physical_offset // sizes.commit_log
    return Case(
        work=what,
        sizes=sizes,
        disk=Disk(recorder),
        decide=_decide(recorder),
        publish=max(n for n, op in enumerate(recorder.ops) if _is_one_byte(op)),
        before=Counter(map(_of_record, old)),
        batch=Counter(map(_of_record, new)),
        ends=tuple(
            m.physical_offset + m.size
            for m in new
            if m.physical_offset // sizes.commit_log == first
        ),
        tail=old[-1].physical_offset + old[-1].size,
    )


@dataclass
class Tally:
    """What was judged so far."""

    states: int = 0
    starts: int = 0
    refused: int = 0
    """Starts that the interlock prevented, as it should."""
    overlaid: int = 0
    """States on which a put ended where a hidden message of ours begins (F5)."""
    partial: int = 0
    """Starts of these, after another kill, at which part of the batch was served early."""
    torn: int = 0
    """Messages of the batch served then whose last page is not there, until recovery."""

    def __str__(self) -> str:
        return (
            f"{self.states} states, {self.starts} starts of brokers, {self.refused} refused by the "
            f"interlock, {self.overlaid} puts on a boundary of ours, {self.partial} partial views, "
            f"{self.torn} messages of ours seen torn"
        )


class Trial:
    """One state of a case, below a directory of its own."""

    def __init__(self, jvm: StoreJvm, case: Case, name: str, base: Path) -> None:
        """``name`` is where the life of the store is drawn from; see ``run``."""
        self._jvm = jvm
        self._case = case
        self._rng = random.Random(name)
        self._base = base
        self._root = base / STORE
        self._roots = 0
        self._puts: Told = Counter()
        self._overlaid = False

    def run(self, state: State, tally: Tally) -> None:
        """Judge a state. Raises AssertionError; then the directory is left as it is."""
        self._base.mkdir(parents=True)
        state.write(self._base)
        tally.states += 1
        decided = is_decided(self._root, self._case.work)
        acked = ACKED in state.marks
        assert decided or not acked, "the caller was told that it is committed"
        for _ in range(self._rng.choice((1, 2, 2, 3))):
            self._live(tally, decided=decided, acked=acked)
        self._recover(decided=decided)
        self._live_on(tally)
        shutil.rmtree(self._base)

    def _live(self, tally: Tally, *, decided: bool, acked: bool) -> None:
        """Have a broker start on what is there, serve, perhaps take a message, and be killed."""
        case, tally.starts = self._case, tally.starts + 1
        try:
            with self._jvm.serving(self._root, case.sizes) as broker:
                ours = self._look(broker, tally)
                assert decided or not ours, "served, and not decided"
                assert ours == case.batch or not acked, "not served, and acknowledged"
                if self._rng.random() < 0.8:
                    self._put(broker, tally, is_behind=bool(ours or self._puts))
                self._root = broker.killed(self._next_root())
        except RefusedError:
            interlock = self._root / "commitlog" / INTERLOCK
            assert interlock.exists(), "a broker does not start"
            assert intent.load(StoreDir.at(self._root)) is not None, "nothing is pending"
            tally.refused += 1
            self._root = Path(shutil.copytree(self._root, self._next_root()))

    def _look(self, broker: Served, tally: Tally) -> Told:
        """Return what of the batch is served: all or none of it, and all that is not ours once."""
        queues = broker.queues()
        served = told(queues.values())
        ours = served & self._case.batch
        theirs = self._case.before + self._puts
        if self._overlaid:
            torn = self._torn(served - ours - theirs)
            tally.torn += torn.total()
            served -= torn
        assert served - ours == theirs, difference(served, theirs, self._case.batch)
        if self._overlaid:  # What came back to life may leave gaps in its queues, until recovery.
            tally.partial += ours not in (Counter(), self._case.batch)
            return ours
        what = f"{ours.total()} of {self._case.batch.total()} are served"
        assert ours in (Counter(), self._case.batch), what
        assert all(queue.is_dense for queue in queues.values()), queues
        return ours

    def _torn(self, unknown: Told) -> Told:
        """Return what is ours by its body, with other keys: no checksum covers properties."""
        bodies = {(topic, queue_id, body) for topic, queue_id, _, body in self._case.batch}
        return Counter({m: n for m, n in unknown.items() if (m[0], m[1], m[3]) in bodies})

    def _put(self, broker: Served, tally: Tally, *, is_behind: bool) -> None:
        """Append a message, often one that ends where a record of the batch would."""
        topic, queue_id, *_ = self._rng.choice(sorted(self._case.before, key=repr))
        key = f"put{self._puts.total():03d}"
        overhead = self._jvm.overhead + len(topic) + len(key)
        # A broker takes messages of half a file at most: Opened.java.
        most, tail = self._case.sizes.commit_log // 2, self._case.tail
        ends = [end for end in self._case.ends[:-1] if overhead < end - tail <= most]
        length = self._rng.randrange(1, 60)
        end = 0
        if ends and not is_behind and self._rng.random() < 0.7:
            end = self._rng.choice(ends)
            length = end - self._case.tail - overhead
        body = self._rng.choice("xyz") * length
        done = broker.put(topic, queue_id, body, key)
        self._puts[topic, queue_id, key, _digest(body.encode())] += 1
        if end and end == done.physical_offset + done.size and hand.is_record(broker.root, end):
            tally.overlaid += 1
            self._overlaid = not self._case.work.settings.get("interlock")

    def _recover(self, *, decided: bool) -> None:
        """Recover: by `mqlog recover`, or by the write that failed, again."""
        root, again = self._root, self._rng.random() < 0.5
        if self._rng.random() < 0.5:
            was = (root / "abort").exists() and not intent.abort_is_ours(StoreDir.at(root))
            try:
                recover(str(root), RecoverSettings())
            except UncleanStoreError:
                assert was, "no broker left abort"
        if again:
            settings = {**self._case.work.settings, "recover_unclean": True}
            done = write(root, self._case.work.batches, settings)
            assert done.is_repeated == decided
        else:
            recover(str(root), RecoverSettings(recover_unclean=True))
        self._puts += self._case.batch if decided or again else Counter()

    def _live_on(self, tally: Tally) -> None:
        """After recovery: every message once, in queues without holes; and so it goes on."""
        wrong = [found for found in check(self._root) if found.severity == "error"]
        assert not wrong, wrong
        for _ in range(2):
            tally.starts += 1
            with self._jvm.serving(self._root, self._case.sizes) as broker:
                queues = broker.queues()
                wanted = self._case.before + self._puts
                served = told(queues.values())
                assert served == wanted, difference(served, wanted, self._case.batch)
                assert all(queue.is_dense for queue in queues.values()), queues
                self._put(broker, tally, is_behind=True)
                self._root = broker.killed(self._next_root())

    def _next_root(self) -> Path:
        self._roots += 1
        return self._base / f"{STORE}-{self._roots}"


def is_decided(root: Path, what: Work) -> bool:
    """Tell whether the commit will happen, or has: by the intent and the ledger."""
    if intent.load(StoreDir.at(root)) is not None:
        return True
    last = ledger.last_version(StoreDir.at(root), APP)
    return last is not None and last >= what.shape.version


def told(queues: Iterable[Queue]) -> Told:
    """Return what consumers of the queues are told."""
    found: Told = Counter()
    for queue in queues:
        for m in queue.messages:
            key = (queue.topic, queue.queue_id, m and m.keys, m.body_sha1 if m else "undecodable")
            found[key] += 1
    return found


def difference(served: Told, wanted: Told, batch: Told) -> str:
    """Return a line for an error message."""
    lost, more = wanted - served, served - wanted
    parts = {"lost": lost - batch, "lost of ours": lost & batch, "doubled or not asked for": more}
    return "; ".join(f"{what}: {dict(which)}" for what, which in parts.items() if which)


def _of_record(m: Message) -> tuple[str, int, str | None, str]:
    return m.topic, m.queue_id, m.properties_map.get("KEYS"), _digest(m.body)


def _digest(body: bytes) -> str:
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()


def _is_one_byte(op: Op) -> bool:
    return isinstance(op, Write) and len(op.data) == 1


def _decide(recorder: Recorder) -> int:
    for number, op in enumerate(recorder.ops):
        if isinstance(op, Names) and any(name == "pending.json" for _, name, _ in op.changes):
            return number
    raise AssertionError("the commit never decided")
