"""Streams over stores that grow: every message once and in order, whatever the limits."""

import errno
import itertools
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import DataLossError, StoreReplacedError
from mqstore.files.base import durable
from mqstore.read.admission import Admission
from mqstore.read.capabilities import Tail
from mqstore.read.follow import Follower
from mqstore.read.progress import Progress
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.recover import RecoverSettings, recover
from support.growing import grow
from support.opened import tail_of
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore, lay_out
from support.writing import append, held, rows

Place = tuple[str, int, int]
ALL = Admission()


def follower(
    *roots: Path, admission: Admission = ALL, fail_on_data_loss: bool = True, **chosen: object
) -> Follower:
    tails = [
        tail_of(root, fail_on_data_loss=fail_on_data_loss, **chosen)  # type: ignore[arg-type]
        for root in roots
    ]
    return Follower(tails, admission, fail_on_data_loss=fail_on_data_loss)


def places(slices: Sequence[QueueSlice]) -> list[Place]:
    settings = ScanSettings(columns=("topic", "queueId", "queueOffset"))
    rows = [row for batch in scan(slices, settings) for row in batch.to_pylist()]
    return [(row["topic"], row["queueId"], row["queueOffset"]) for row in rows]


def read_all(stream: Follower, start: Progress) -> tuple[list[Place], Progress]:
    """Read until nothing is left, a micro-batch at a time."""
    found: list[Place] = []
    while (end := stream.next(start)) != start:
        found += places(stream.slices(start, end))
        start = end
    return found, start


def in_store(laid: Laid) -> list[Place]:
    return sorted((m.topic, m.queue_id, m.queue_offset) for q in laid.queues.values() for m in q)


def in_order(found: Iterable[Place]) -> bool:
    queues: dict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, queue_id, queue_offset in found:
        queues[topic, queue_id].append(queue_offset)
    return all(held == sorted(held) for held in queues.values())


def messages(count: int, *, topics: Sequence[str] = ("A", "B"), queues: int = 3) -> list[Message]:
    return [
        Message(topic=topics[i % 5 % len(topics)], queue_id=i % queues, body=bytes(i % 97))
        for i in range(count)
    ]


admissions = st.builds(
    Admission,
    max_offsets=st.one_of(st.none(), st.integers(1, 30)),
    max_bytes=st.one_of(st.none(), st.integers(1, 4000)),
)


@given(
    sizes=st.lists(st.integers(0, 25), min_size=1, max_size=6),
    admission=admissions,
    is_restarted=st.booleans(),
    is_open=st.booleans(),
)
def test_each_message_comes_once_however_the_store_grows(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    admission: Admission,
    is_restarted: bool,
    is_open: bool,
) -> None:
    counts = list(itertools.accumulate(sizes))
    every = messages(counts[-1])
    layout = Layout(queue_units=4, abort=is_open)
    laid = lay_out(tmp_path_factory.mktemp("s") / "store", every[: counts[0]], layout)
    stream, progress, found = follower(laid.root, admission=admission), {}, []
    for count in counts:
        laid = grow(laid, every[:count])
        if is_restarted:
            stream.close()
            stream = follower(laid.root, admission=admission)
        stream.aim()  # Also looks at once.
        more, progress = read_all(stream, progress)
        found += more
        assert sorted(found) == in_store(laid)
    assert in_order(found)


@given(admission=admissions)
def test_no_micro_batch_passes_its_limits(
    tmp_path_factory: pytest.TempPathFactory, admission: Admission
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("s") / "store", messages(24))
    sizes = {(m.topic, m.queue_id, m.queue_offset): m.size for m in laid.messages}
    stream, start = follower(laid.root, admission=admission), {}
    while (end := stream.next(start)) != start:
        found = places(stream.slices(start, end))
        assert len(found) <= (admission.max_offsets or 24)
        size = sum(sizes[place] for place in found)
        assert admission.max_bytes is None or size <= admission.max_bytes or len(found) == 1
        start = end


def test_a_batch_is_the_same_when_it_is_planned_again(store: MakeStore) -> None:
    """A restarted query plans from Spark's log, another process, a store that has grown since."""
    laid = store(messages(20))
    stream = follower(laid.root, admission=Admission(max_offsets=7))
    end = stream.next({})
    first = stream.slices({}, end)
    grow(laid, messages(50, topics=("A", "B", "C")))
    assert follower(laid.root).slices({}, end) == first


def test_a_new_topic_and_a_new_queue_start_at_their_first_message(store: MakeStore) -> None:
    laid = store(messages(4, topics=("A",), queues=1))
    stream = follower(laid.root)
    start = stream.next({})
    assert start == {("A", "broker-1", 0): 4}
    more = [
        *messages(4, topics=("A",), queues=1),
        Message(topic="New"),
        Message(topic="A", queue_id=7),
    ]
    grow(laid, more)
    end = next_at_once(stream, start)
    assert places(stream.slices(start, end)) == [("A", 7, 0), ("New", 0, 0)]


def next_at_once(stream: Follower, start: Progress) -> Progress:
    stream.latest()
    for tail in stream._tails.values():
        tail.look(at_once=True)
    return stream.next(start)


def test_nothing_new_is_the_very_progress_given(store: MakeStore) -> None:
    laid = store(messages(9))
    stream = follower(laid.root)
    start = stream.next({})
    assert stream.next(start) == start
    assert stream.slices(start, start) == []


def test_a_unit_without_its_record_is_not_there_yet(tmp_path: Path) -> None:
    """Of a live or crashed broker's store: the unit survived, the record did not, or not yet."""
    every = messages(10, topics=("A",), queues=1)
    laid = lay_out(tmp_path / "store", every[:6], Layout(abort=True))
    stream = follower(laid.root)
    start = stream.next({})
    whole = lay_out(tmp_path / "whole", every, Layout(abort=True))
    units = (whole.root / "consumequeue" / "A" / "0" / f"{0:020d}").read_bytes()
    in_place(laid.root / "consumequeue" / "A" / "0" / f"{0:020d}", units)
    assert next_at_once(stream, start) == start
    in_place(
        laid.root / "commitlog" / f"{0:020d}", (whole.root / "commitlog" / f"{0:020d}").read_bytes()
    )
    assert next_at_once(stream, start) == dict.fromkeys(start, 10)


def in_place(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)


def test_only_the_chosen_are_followed(store: MakeStore) -> None:
    laid = store(messages(30))
    stream = follower(
        laid.root, topics=lambda topic: topic == "A", queues=lambda _topic, queue_id: queue_id == 1
    )
    assert set(stream.next({})) == {("A", "broker-1", 1)}


@pytest.mark.parametrize("other", [("B", "broker-1", 0), ("A", "broker-1", 0)])
def test_offsets_of_what_is_not_chosen_are_those_of_another_source(
    store: MakeStore, other: Place
) -> None:
    laid = store(messages(30))
    chosen = {"topics": lambda topic: topic == "A", "queues": lambda _topic, queue_id: queue_id > 0}
    stream = follower(laid.root, **chosen)

    for start in ({other: 3}, {other: 3, ("A", "broker-1", 1): 1}):
        with pytest.raises(StoreReplacedError, match="of another source of this one"):
            stream.next(start)
        with pytest.raises(StoreReplacedError, match=f"of topic {other[0]} "):
            stream.slices({}, start)
    assert stream.next({other: 0}) != {other: 0}

    # Without the error the position is kept, for the day the topic is chosen again.
    lenient = follower(laid.root, fail_on_data_loss=False, **chosen)
    end = lenient.next({other: 3})
    assert end[other] == 3
    assert {piece.topic for piece in lenient.slices({}, end)} == {"A"}


def test_the_topics_of_the_start_are_followed_with_their_new_queues_and_no_other(
    store: MakeStore,
) -> None:
    laid = store(messages(12))
    stream = Follower([tail_of(laid.root)], ALL, same_topics=True)
    start = {("A", "broker-1", 0): 1, ("Later", "broker-1", 0): 0}
    found, end = read_all(stream, start)
    assert {topic for topic, _, _ in found} == {"A"}
    assert sorted(found) == [p for p in in_store(laid) if p[0] == "A" and p != ("A", 0, 0)]
    assert {topic for topic, _, _ in stream.latest()} == {"A"}
    more = [Message(topic="A", queue_id=7), Message(topic="Later"), Message(topic="New")]
    grow(laid, [*messages(12), *more])
    stream.aim()  # Also looks at once.
    assert sorted(read_all(stream, end)[0]) == [("A", 7, 0), ("Later", 0, 0)]


def test_several_stores_are_one_stream(store: MakeStore) -> None:
    one, two = store(messages(12)), store(messages(5))
    stream = follower(one.root, two.root)
    assert stream.brokers == ("broker-1", "broker-2")
    found, progress = read_all(stream, {})
    assert sorted(found) == sorted(in_store(one) + in_store(two))
    assert {broker for _, broker, _ in progress} == {"broker-1", "broker-2"}


def test_too_little_waits_and_a_target_does_not(store: MakeStore) -> None:
    laid = store(messages(9))
    stream = follower(laid.root, admission=Admission(min_offsets=5, max_delay_ms=10**9))
    start = stream.next({})  # The first batch never waits.
    grow(laid, messages(13))
    assert next_at_once(stream, start) == start
    grow(laid, messages(14))
    assert next_at_once(stream, start) != start
    few = follower(laid.root, admission=Admission(min_offsets=500, max_delay_ms=10**9))
    few.aim()
    assert few.next({}) == few.latest()


def test_behind_a_target_nothing_is_read(store: MakeStore) -> None:
    laid = store(messages(9))
    stream = follower(laid.root)
    stream.aim()
    target = stream.latest()
    grow(laid, messages(40, topics=("A", "B", "C")))
    assert next_at_once(stream, {}) == target
    assert stream.next(target) == target


def expired(laid: Laid) -> Laid:
    """Let retention take the first CommitLog file."""
    filling = [Message(topic="Fill", body=bytes(2000)) for _ in range(4)]
    every = [replace(m, queue_offset=0, physical_offset=0) for m in laid.messages]
    return grow(laid, [*every, *filling], replace(laid.layout, expired_files=1))


def test_what_expired_before_it_was_read_is_an_error(store: MakeStore) -> None:
    laid = store(messages(40, topics=("A",), queues=1), Layout(queue_units=8))
    stream = follower(laid.root, topics=lambda topic: topic == "A")
    laid = expired(laid)
    low, high = laid.bounds["A", 0]
    assert low > 2
    start = {("A", "broker-1", 0): 2}
    with pytest.raises(DataLossError, match=rf"A/0: queue offsets \[2, {high}\) were requested"):
        next_at_once(stream, start)
    with pytest.raises(DataLossError):
        follower(laid.root).slices(start, {("A", "broker-1", 0): 5})
    going_on = follower(laid.root, fail_on_data_loss=False, topics=lambda topic: topic == "A")
    found, _ = read_all(going_on, start)
    assert found == [("A", 0, i) for i in range(low, high)]


@pytest.mark.parametrize("start", [{("A", "broker-1", 0): 999}, {("Gone", "broker-1", 0): 1}])
def test_a_checkpoint_of_another_store_is_told(store: MakeStore, start: Progress) -> None:
    laid = store(messages(40, topics=("A",), queues=1))
    end = {("A", "broker-1", 0): 40}
    for fails in (lambda s: s.next(start), lambda s: s.slices({}, end | start)):
        with pytest.raises(StoreReplacedError, match=r"read (it )?up to"):
            fails(follower(laid.root))
    going_on = follower(laid.root, fail_on_data_loss=False)
    assert going_on.next(start) == start | end
    assert places(going_on.slices({("A", "broker-1", 0): 38}, end | start))[-1] == ("A", 0, 39)


def test_a_store_that_is_replaced_while_it_is_read_is_told(store: MakeStore) -> None:
    """As many messages in the same queues: only their times tell it is another."""
    laid = store(messages(40))
    stream = follower(laid.root)
    start = stream.next({})
    shutil.rmtree(laid.root)
    later = [replace(m, store_timestamp_ms=1_700_000_999_999) for m in messages(40)]
    lay_out(laid.root, later)
    with pytest.raises(StoreReplacedError, match="was replaced while the query read it"):
        next_at_once(stream, start)


def test_an_idle_look_reads_a_unit_a_queue_and_nothing_else(tmp_path: Path) -> None:
    laid = lay_out(
        tmp_path / "store", [Message(queue_id=i) for i in range(200)], Layout(abort=True)
    )
    tail = tail_of(laid.root)
    bounds = settled(tail)
    for folder in ("commitlog", "config"):
        for path in (laid.root / folder).iterdir():
            path.write_bytes(b"")
    assert tail.look(at_once=True) == bounds


def settled(tail: Tail) -> Mapping[tuple[str, int], tuple[int, int]]:
    """Look until the times of directories are old enough to be trusted."""
    deadline = time.monotonic() + 60
    while tail._stamps is None or tail._stamps != tail._stamped():
        tail.look(at_once=True)
        assert time.monotonic() < deadline
    return tail.look(at_once=True)


def test_a_write_of_ours_comes_to_a_stream_when_it_is_done(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a commit has entered into queues is seen when the commit is known to be done."""
    laid = store(messages(9))
    stream = follower(laid.root)
    start = stream.next({})
    replace_file = durable.replace

    def replace_but_the_ledger(source: str, target: str) -> None:
        if target.endswith("jobs.json"):
            raise OSError(errno.EIO, "injected")
        replace_file(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "replace", replace_but_the_ledger)
        with pytest.raises(CommitInDoubtError):
            append(laid.root, rows(20, topic="A"))
    assert len(held(laid.root)) == 29
    assert next_at_once(stream, start) == start
    recover(laid.root, RecoverSettings())
    assert len(places(stream.slices(start, next_at_once(stream, start)))) == 20
