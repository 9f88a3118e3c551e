"""Splitting: every message in exactly one partition, and no partition over its bounds."""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import CorruptStoreError
from mqstore.files.base.directory import Directory
from mqstore.read import weights
from mqstore.read.directory import take
from mqstore.read.plan import SplitLimits, split, weigh
from mqstore.read.source import QueueSlice, Weighed, slices_of
from mqstore.read.store_bounds import StoreOrigin
from support.oracle import Message
from support.stores import Layout, MakeStore, lay_out

MIB = 1 << 20


def piece(queue_id: int, start: int, sizes: list[int]) -> Weighed:
    of = QueueSlice(StoreOrigin.at("/s"), "b", "T", queue_id, start, start + len(sizes))
    grown = np.concatenate(([0], np.cumsum(np.array(sizes, np.int64)))).astype(np.int64)
    return Weighed(of, np.arange(start, of.end + 1), grown, 1000 * queue_id + grown)


def ranges(partitions: list[tuple[QueueSlice, ...]]) -> list[tuple[int, int, int]]:
    return sorted((s.queue_id, s.start, s.end) for part in partitions for s in part)


def size_of(part: tuple[QueueSlice, ...], sizes: dict[int, list[int]], starts: list[int]) -> int:
    return sum(
        sum(sizes[s.queue_id][s.start - starts[s.queue_id] : s.end - starts[s.queue_id]])
        for s in part
    )


queues = st.lists(
    st.tuples(st.integers(0, 1000), st.lists(st.integers(91, 4 * MIB), max_size=40)), max_size=8
)
limits = st.builds(
    SplitLimits,
    max_bytes=st.sampled_from([1, 1000, MIB, 8 * MIB, 128 * MIB]),
    max_records=st.one_of(st.none(), st.integers(1, 50)),
    min_partitions=st.one_of(st.none(), st.integers(1, 60)),
    parallelism=st.integers(1, 16),
)


@given(made=queues, asked=limits)
def test_every_message_is_in_exactly_one_partition(
    made: list[tuple[int, list[int]]], asked: SplitLimits
) -> None:
    weighed = [piece(i, start, sizes) for i, (start, sizes) in enumerate(made)]
    partitions = split(weighed, asked)
    assert all(s.start < s.end for part in partitions for s in part)
    found = [(q, o) for q, start, end in ranges(partitions) for o in range(start, end)]
    assert found == [(i, s + k) for i, (s, sizes) in enumerate(made) for k in range(len(sizes))]


@given(made=queues, asked=limits)
def test_no_partition_is_over_its_bounds_unless_one_message_is(
    made: list[tuple[int, list[int]]], asked: SplitLimits
) -> None:
    weighed = [piece(i, start, sizes) for i, (start, sizes) in enumerate(made)]
    by_queue = {i: sizes for i, (_, sizes) in enumerate(made)}
    starts = [start for start, _ in made]
    for part in split(weighed, asked):
        records = sum(s.end - s.start for s in part)
        assert asked.max_records is None or records <= asked.max_records
        largest = max(max(by_queue[s.queue_id]) for s in part)
        assert size_of(part, by_queue, starts) <= asked.max_bytes + largest


@given(made=queues, asked=limits)
def test_there_are_as_many_partitions_as_asked_for_or_as_messages(
    made: list[tuple[int, list[int]]], asked: SplitLimits
) -> None:
    weighed = [piece(i, start, sizes) for i, (start, sizes) in enumerate(made)]
    messages = sum(len(sizes) for _, sizes in made)
    assert len(split(weighed, asked)) >= min(asked.min_partitions or 0, messages)


def test_ten_thousand_small_queues_are_few_partitions() -> None:
    weighed = [piece(i, 0, [1000] * 10) for i in range(10_000)]
    partitions = split(weighed, SplitLimits(parallelism=8))
    assert 8 <= len(partitions) <= 100


def test_one_large_queue_is_split_evenly_by_bytes() -> None:
    sizes = [100] * 90_000 + [10_000] * 9_000  # ten percent of the messages, nine tenths of bytes
    partitions = split([piece(0, 7, sizes)], SplitLimits(max_bytes=8 * MIB, parallelism=2))
    totals = [size_of(part, {0: sizes}, [7]) for part in partitions]
    assert len(totals) == -(-sum(sizes) // (8 * MIB))
    assert max(totals) < 1.1 * min(totals)


def test_queues_of_one_size_are_spread_over_the_cores() -> None:
    weighed = [piece(i, 0, [MIB] * 64) for i in range(4)]
    partitions = split(weighed, SplitLimits(parallelism=4))
    assert len(partitions) == 4


@pytest.mark.parametrize("queues", [1, 3, 500])
@pytest.mark.parametrize(("parallelism", "total", "partitions"), [(2, 90, 10), (8, 130, 16)])
def test_the_last_round_of_tasks_keeps_all_cores_busy(
    queues: int, parallelism: int, total: int, partitions: int
) -> None:
    """Bytes for nine tasks make ten of two cores; for thirteen, sixteen of eight."""
    sizes = {i: [total * MIB // queues // 1000] * 1000 for i in range(queues)}
    weighed = [piece(i, 0, each) for i, each in sizes.items()]
    found = split(weighed, SplitLimits(max_bytes=10 * MIB, parallelism=parallelism))
    assert len(found) == partitions
    totals = [size_of(part, sizes, [0] * queues) for part in found]
    assert max(totals) < 1.3 * total * MIB / partitions


@pytest.mark.parametrize("queues", [2, 4, 7])
@pytest.mark.parametrize("parallelism", [2, 8])
def test_queues_that_lie_side_by_side_are_cut_at_the_same_places(
    queues: int, parallelism: int
) -> None:
    count, size = 20_000, 20_000
    weighed = []
    for queue in range(queues):
        whole = piece(queue, 0, [size] * count)
        weighed.append(replace(whole, places=(np.arange(count + 1) * queues + queue) * size))
    partitions = split(weighed, SplitLimits(parallelism=parallelism, max_bytes=1 << 31))
    assert len(partitions) == parallelism
    stretch = count // parallelism
    for number, part in enumerate(partitions):
        assert [s.queue_id for s in part] == list(range(queues))
        for found in part:
            assert abs(found.start - number * stretch) <= stretch // 8 + 1
            assert abs(found.end - (number + 1) * stretch) <= stretch // 8 + 1


def test_small_queues_beside_large_ones_stay_whole() -> None:
    large = [piece(i, 0, [MIB] * 64) for i in range(4)]
    small = [piece(i, 0, [1000] * 10) for i in range(4, 104)]
    partitions = split([*large, *small], SplitLimits(parallelism=2))
    assert len(partitions) <= 3
    assert len(ranges(partitions)) == 100 + 4 * len(partitions)


def test_a_slice_weighs_what_its_records_do(store: MakeStore) -> None:
    laid = store([Message(body=bytes(i)) for i in range(50)])
    (weighed,) = weigh([QueueSlice(StoreOrigin.at(laid.root), "b", "T", 0, 10, 45)])
    assert weighed.total == sum(m.size for m in laid.messages[10:45])
    assert list(weighed.edges[[0, -1]]) == [10, 45]
    assert all(b > a for a, b in itertools.pairwise(weighed.bytes))
    places = [m.physical_offset for m in laid.messages[10:45]]
    assert list(weighed.places) == [*places, places[-1]]


@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=5), asked=limits)
def test_what_the_look_at_short_queues_told_changes_no_partition(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], asked: SplitLimits
) -> None:
    sent = [Message(queue_id=q, body=bytes(7 * n)) for q, c in enumerate(counts) for n in range(c)]
    laid = lay_out(tmp_path_factory.mktemp("store"), sent, Layout(queue_units=64))
    slices = slices_of(take(laid.root))
    assert all(piece.weight for piece in slices)
    plain = [replace(piece, weight=None) for piece in slices]
    found = split(weigh(slices), asked)
    assert found == split(weigh(plain), asked)
    assert not any(piece.weight for part in found for piece in part)


def test_a_part_of_a_short_queue_is_weighed_by_its_units(store: MakeStore) -> None:
    laid = store([Message(body=bytes(i)) for i in range(16)])
    (whole,) = slices_of(take(laid.root))
    assert weigh([whole])[0].total == sum(m.size for m in laid.messages)
    part = replace(whole, start=3, end=9)
    assert weigh([part])[0].total == sum(m.size for m in laid.messages[3:9])


def test_nothing_to_split_is_no_partition() -> None:
    assert split([], SplitLimits(min_partitions=5)) == []
    assert split([piece(0, 5, [])], SplitLimits(min_partitions=5)) == []


@pytest.mark.parametrize("missing", [0, 1])
def test_weighing_does_not_read_the_commit_log(
    store: MakeStore, tmp_path: Path, missing: int
) -> None:
    laid = store([Message() for _ in range(20)])
    of = QueueSlice(
        StoreOrigin(Directory(str(laid.root)), (Directory(str(tmp_path / "gone")),)),
        "b",
        "T",
        0,
        missing,
        20,
    )
    assert weigh([of])[0].total == sum(m.size for m in laid.messages[missing:])


def test_a_lost_consume_queue_file_weighs_nothing_where_damage_is_passed_over(
    tmp_path: Path,
) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(80)])
    laid.unit_of(("T", 0), 40)[0].unlink()
    of = QueueSlice(StoreOrigin.at(laid.root), "b", "T", 0, 0, 80)
    with pytest.raises(CorruptStoreError, match="missing or cut short"):
        weigh([of])
    assert weigh([of], strict=False)[0].total == sum(m.size for m in laid.messages) * 64 // 80


def test_weighing_many_queues_reads_a_bounded_number_of_units(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_ALL_UNITS", 64)
    monkeypatch.setattr(weights, "_LEAST_WEIGHED_UNITS", 16)
    monkeypatch.setattr(weights, "_SAMPLE_UNITS", 8)
    monkeypatch.setattr(weights, "_UNITS_OF_EDGE", 1)
    messages = [Message(queue_id=n % 8, body=b"x" * 100) for n in range(8 * 100)]
    snapshot = take(str(store(messages).root))
    slices = [replace(piece, weight=None) for piece in slices_of(snapshot)]
    looked: list[int] = []
    whole = weights._units

    def counted(queue: Any, start: int, end: int, strict: bool) -> Any:
        looked.append(end - start)
        return whole(queue, start, end, strict)

    monkeypatch.setattr(weights, "_units", counted)
    many, few = weigh(slices), weigh(slices[:1])

    assert sum(looked[:16]) == 8 * 16  # Two samples of 8 units of each queue.
    assert looked[16:] == [8] * 8
    assert [len(one.edges) for one in many] == [3] * 8
    assert abs(many[0].total - few[0].total) <= few[0].total // 10


@dataclass(frozen=True)
class BoundedOrigin(StoreOrigin):
    """An origin with a bound of tasks, as a cluster's broker has."""

    max_tasks: int | None = None


def bounded_piece(broker: str, queue_id: int, sizes: list[int], most: int | None) -> Weighed:
    weighed = piece(queue_id, 7, sizes)
    place = StoreOrigin.at(f"/{broker}")
    origin = BoundedOrigin(place.folder, place.commit_log, max_tasks=most)
    return replace(weighed, slice=replace(weighed.slice, origin=origin, broker_name=broker))


@given(made=queues, asked=limits, most=st.integers(1, 5))
def test_a_bounded_origin_is_in_so_many_partitions_at_most_and_loses_no_message(
    made: list[tuple[int, list[int]]], asked: SplitLimits, most: int
) -> None:
    # As a stream gives them: the queues of two brokers in turn, and an origin without a bound.
    weighed = [
        bounded_piece(f"b{i % 3}", i, sizes, most if i % 3 else None)
        for i, (_, sizes) in enumerate(made)
    ]
    partitions = split(weighed, asked)

    for broker in ("b1", "b2"):
        at_it = [part for part in partitions if any(s.broker_name == broker for s in part)]
        assert len(at_it) <= most
    found = [(q, o) for q, start, end in ranges(partitions) for o in range(start, end)]
    wanted = [(i, 7 + o) for i, (_, sizes) in enumerate(made) for o in range(len(sizes))]
    assert sorted(found) == wanted
    names = [[(s.broker_name, s.queue_id) for s in part] for part in partitions]
    assert all(len(set(of_part)) == len(of_part) for of_part in names)


def test_slices_of_several_origins_in_turn_open_each_origin_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []

    class Source:
        def weigh(self, slices: Any, *, strict: bool) -> list[Weighed]:
            return [replace(piece(s.queue_id, s.start, [9]), slice=s) for s in slices]

        def close(self) -> None:
            pass

    def bounds(self: StoreOrigin, broker_name: str | None = None) -> Source:
        opened.append(self.root)
        return Source()

    monkeypatch.setattr(StoreOrigin, "bounds", bounds)
    slices = [
        QueueSlice(StoreOrigin.at(f"/b{n % 3}"), f"b{n % 3}", "T", n, 0, 1) for n in range(300)
    ]

    assert [one.slice for one in weigh(slices)] == slices
    assert sorted(opened) == ["/b0", "/b1", "/b2"]
