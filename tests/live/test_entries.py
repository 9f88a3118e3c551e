"""Entries of ConsumeQueues: places, sizes and hashes of tags, as brokers tell them."""

import numpy as np
import pytest

from live.conftest import Connect
from live.loopback import FakeCluster, json_answer
from mqstore.live.origin.entries import entries
from mqstore.live.origin.pull import LiveSlice
from mqstore.live.remoting.errors import BrokenAnswerError
from support import oracle


def test_each_offset_has_place_size_and_hash(fake: FakeCluster, connect: Connect) -> None:
    queue = fake.fill("T", 12_000, low=5, tags=lambda i: f"Tag{i % 7}")
    fake.fill("U", 3, broker="broker-b")
    slices = [LiveSlice("broker-a", "T", 0, 10, 12_005), LiveSlice("broker-b", "U", 0, 0, 3)]
    found = list(entries(connect(), slices))
    assert [(part.topic, part.start, part.end) for part, _ in found] == [
        ("T", 10, 10_010),
        ("T", 10_010, 12_005),
        ("U", 0, 3),
    ]
    columns = np.concatenate([part for _, part in found], axis=1)
    expected = [oracle.java_hash(f"Tag{i % 7}") for i in range(5, 12_000)]
    assert columns[2].tolist() == [*expected, 0, 0, 0]
    assert columns[0][:2].tolist() == [10_000, 11_000]
    sizes = [len(oracle.encode(message)) for message in queue.messages[5:7] if message]
    assert columns[1][:2].tolist() == sizes
    assert list(entries(connect(), [])) == []


@pytest.mark.parametrize(
    ("low", "asked", "given"),
    [(0, (5, 30), (5, 10)), (0, (10, 30), None), (4, (0, 30), (4, 14)), (4, (0, 3), None)],
)
def test_what_is_gone_or_not_there_yet_is_left_out(
    fake: FakeCluster,
    connect: Connect,
    low: int,
    asked: tuple[int, int],
    given: tuple[int, int] | None,
) -> None:
    fake.fill("T", 10, low=low)
    found = list(entries(connect(), [LiveSlice("broker-a", "T", 0, *asked)]))
    assert [(part.start, part.end) for part, _ in found] == [given] * (given is not None)


def entry(code: int) -> bytes:
    return b'{"physicOffset":0,"physicSize":9,"tagsCode":%d}' % code


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (entry(1) + entry(2) + entry(3), "others given"),
        (entry(1) + b'{"tagsCode":2}', "others given"),
        (entry(1) + entry(99999999999999999999), "64-bit"),
    ],
)
def test_entries_that_are_none_are_a_broken_answer(
    fake: FakeCluster, connect: Connect, body: bytes, words: str
) -> None:
    fake.fill("T", 2)
    fake.fault = lambda r: json_answer(r["opaque"], 0, body) if r["code"] == 321 else None
    with pytest.raises(BrokenAnswerError, match=words):
        list(entries(connect(), [LiveSlice("broker-a", "T", 0, 0, 2)]))
