"""What a 5.x broker guesses, against its own loops written out in Python."""

import struct
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.backlog.estimate import MAX_SCAN, SAMPLE_THRESHOLD, Matches, estimate
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.files.store import Store
from mqstore.read.store_records import StoreRecords
from mqstore.read.tags import TagFilter, parse_tags
from support.oracle import java_hash


@dataclass(frozen=True)
class Queue:
    """``tags[k]`` is the tag of queue offset k; files hold ``per_file`` units each."""

    tags: list[str]
    per_file: int
    first_file: int = 0


def write(root: Path, queue: Queue) -> ConsumeQueue:
    folder = root / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    units = [struct.pack(">qiq", 100 * k, 100, java_hash(t)) for k, t in enumerate(queue.tags)]
    for start in range(queue.first_file * queue.per_file, len(units), queue.per_file):
        data = b"".join(units[start : start + queue.per_file])
        (folder / f"{start * 20:020d}").write_bytes(data.ljust(queue.per_file * 20, b"\0"))
    return ConsumeQueue(StoreDir.at(root), "T", 0)


def store_estimate(queue: Queue, tag: str, low: int, start: int, end: int) -> int:
    """DefaultMessageStore#estimateMessageCount."""
    if start < low:
        count = end - start
        start = low
        end = start + count
    found = queue_estimate(queue, tag, start, end)
    return end - start if found == -1 else found


def queue_estimate(queue: Queue, tag: str, start: int, end: int) -> int:
    """ConsumeQueue#estimateMessageCount, variable by variable."""
    size = queue.per_file * 20
    physical_from, physical_to = start * 20, end * 20
    count = -(-len(queue.tags) // queue.per_file)
    files = [number * size for number in range(queue.first_file, count)]
    files = [at for at in files if at + size > physical_from and physical_to > at]
    if not files:
        return -1
    match = raw = 0
    sample = False
    for at in files:
        begin, length = 0, size
        if at <= physical_from:
            begin = physical_from - at
            length = physical_to - physical_from if at + size >= physical_to else size - begin
        if begin == 0 and at + size > physical_to:
            length = physical_to - at
        written = min(len(queue.tags) * 20 - at, size)
        if begin + length <= written:  # else selectMappedBuffer returns null
            current = 0
            while current < length:
                match += queue.tags[(at + begin + current) // 20] == tag
                raw += 1
                current += 20
                if raw >= MAX_SCAN or match > SAMPLE_THRESHOLD:
                    sample = True
                    break
        if sample:
            break
    return int(match * (end - start) * 1.0 / raw) if sample else match


def matches(units: ConsumeQueue, wanted: TagFilter) -> Matches:
    store = Store(StoreDir(units.place.folder, ()))
    return Matches(StoreRecords(store), (units.topic, units.queue_id), wanted)


@st.composite
def _queues(draw: st.DrawFn) -> Queue:
    per_file = draw(st.integers(1, 7))
    tags = draw(st.lists(st.sampled_from("AB"), min_size=1, max_size=30))
    return Queue(tags, per_file, draw(st.integers(0, (len(tags) - 1) // per_file)))


@given(queue=_queues(), data=st.data())
def test_a_small_range_is_counted_as_the_broker_counts_it(
    queue: Queue, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    end = len(queue.tags)
    low = data.draw(st.integers(queue.first_file * queue.per_file, end))
    start = data.draw(st.integers(0, end - 1))
    check(write(tmp_path_factory.mktemp("store"), queue), queue, low, start)


def check(units: ConsumeQueue, queue: Queue, low: int, start: int) -> None:
    wanted = parse_tags("A")
    assert wanted is not None
    found = estimate(matches(units, wanted), (low, len(queue.tags)), start)
    assert found.count == store_estimate(queue, "A", low, start, len(queue.tags))


@pytest.mark.parametrize("every", [1, 4, 5, 10**6])
@pytest.mark.parametrize("per_file", [7_001, 300_000])
@pytest.mark.parametrize("start", [0, 6_000, 24_999])
def test_a_large_range_is_guessed_as_the_broker_guesses_it(
    every: int, per_file: int, start: int, tmp_path: Path
) -> None:
    queue = Queue(["A" if k % every == 0 else "B" for k in range(45_000)], per_file)
    units = write(tmp_path, queue)
    check(units, queue, 0, start)
    check(units, queue, 12_345, start)


@pytest.mark.parametrize(
    ("start", "count", "is_sample"),
    [
        (0, 25_001, True),  # the 5,001st match: all of them
        (1, 6_250, True),  # 20,000 looked at: 5,000 of them match
        (5_002, 0, False),  # 19,999 left
    ],
)
def test_only_a_range_beyond_the_limits_is_a_sample(
    start: int, count: int, is_sample: bool, tmp_path: Path
) -> None:
    wanted = parse_tags("A")
    assert wanted is not None
    queue = Queue(["A"] * 5_001 + ["B"] * 20_000, 300_000)
    told = estimate(matches(write(tmp_path, queue), wanted), (0, 25_001), start)
    assert (told.count, told.is_sample) == (count, is_sample)
