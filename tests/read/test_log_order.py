"""Merged queues: every unit once, each queue in its own order, all in the order of the log."""

import itertools
import os
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.decode import QueuePositions
from mqstore.files.base.directory import Directory
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.names import mapped_file_name
from mqstore.read.units import UnitBatch, in_log_order, join

LOG_BYTES = 100_000
SIZE = 100
QUEUES = [("T", n, "b") for n in range(9)]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommitLog]:
    folder = tmp_path_factory.mktemp("commitlog")
    (folder / mapped_file_name(0)).touch()
    os.truncate(folder / mapped_file_name(0), LOG_BYTES)
    with CommitLog([Directory(str(folder))]) as found:
        yield found


def units(queue: int, start: int, places: Sequence[int]) -> UnitBatch:
    count = len(places)
    source = QueuePositions(
        QUEUES,
        np.full(count, queue),
        np.arange(start, start + count),
        np.zeros(count, np.int64),
    )
    return UnitBatch(np.array(places, np.int64), np.full(count, SIZE), source)


def blocks(queue: int, places: Sequence[int], sizes: Sequence[int]) -> Iterator[UnitBatch]:
    start = 0
    for size in itertools.cycle(sizes):
        if start >= len(places):
            return
        yield units(queue, start, places[start : start + size])
        start += size


def merged(
    queues: Sequence[Sequence[int]], sizes: Sequence[int], few: int, log: CommitLog
) -> list[tuple[int, int, int]]:
    lanes = [blocks(number, places, sizes) for number, places in enumerate(queues)]
    whole = join([units(0, 0, []), *in_log_order(lanes, log.holds, few)])
    source = whole.positions
    return list(
        zip(
            source.queue.tolist(),
            source.queue_offsets.tolist(),
            whole.physical_offsets.tolist(),
            strict=True,
        )
    )


inside = st.integers(0, LOG_BYTES - SIZE)
anywhere = st.one_of(inside, st.integers(-(2**63), 2**63 - 1))
block_sizes = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@given(
    queues=st.lists(st.lists(inside, max_size=20).map(sorted), max_size=6),
    sizes=block_sizes,
    few=st.integers(1, 5),
)
def test_sound_queues_come_in_the_order_of_the_log(
    log: CommitLog, queues: list[list[int]], sizes: list[int], few: int
) -> None:
    found = merged(queues, sizes, few, log)
    expected = [(q, n, place) for q, places in enumerate(queues) for n, place in enumerate(places)]
    assert sorted(found) == expected
    if len(queues) > 1:
        assert [place for _, _, place in found] == sorted(place for _, _, place in expected)


@given(
    queues=st.lists(st.lists(anywhere, max_size=20), max_size=6),
    sizes=block_sizes,
    few=st.integers(1, 5),
)
def test_whatever_units_claim_each_queue_keeps_its_order(
    log: CommitLog, queues: list[list[int]], sizes: list[int], few: int
) -> None:
    found = merged(queues, sizes, few, log)
    for queue, places in enumerate(queues):
        assert [(n, p) for q, n, p in found if q == queue] == list(enumerate(places))
    assert len(found) == sum(map(len, queues))
