"""Hashes of tags by the entries of ConsumeQueues."""

import numpy as np
import pytest

from live.conftest import Connect
from live.loopback import FakeCluster, json_answer
from mqstore.errors import BrokenAnswerError, DataLossError
from mqstore.live.entries import tags_codes
from mqstore.live.pull import LiveSlice
from support import oracle


def test_each_offset_has_the_hash_of_its_tags(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("T", 12_000, low=5, tags=lambda i: f"Tag{i % 7}")
    fake.fill("U", 3, broker="broker-b")
    slices = [LiveSlice("broker-a", "T", 0, 10, 12_005), LiveSlice("broker-b", "U", 0, 0, 3)]
    found = list(tags_codes(connect(), slices))
    assert [(part.topic, part.start, part.end) for part, _ in found] == [
        ("T", 10, 10_010),
        ("T", 10_010, 12_005),
        ("U", 0, 3),
    ]
    expected = [oracle.java_hash(f"Tag{i % 7}") for i in range(5, 12_000)]
    assert np.concatenate([codes for _, codes in found]).tolist() == [*expected, 0, 0, 0]
    assert list(tags_codes(connect(), [])) == []


def test_entries_that_are_gone_are_data_loss(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("T", 10)
    for end in (11, 30):
        with pytest.raises(DataLossError, match="broker-a/T/0"):
            list(tags_codes(connect(), [LiveSlice("broker-a", "T", 0, 5, end)]))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"tagsCode":1}{"tagsCode":2}{"tagsCode":3}', "3 entries"),
        (b'{"tagsCode":1},{"tagsCode":99999999999999999999}', "64-bit"),
    ],
)
def test_entries_that_are_none_are_a_broken_answer(
    fake: FakeCluster, connect: Connect, body: bytes, words: str
) -> None:
    fake.fill("T", 2)
    fake.fault = lambda r: json_answer(r["opaque"], 0, body) if r["code"] == 321 else None
    with pytest.raises(BrokenAnswerError, match=words):
        list(tags_codes(connect(), [LiveSlice("broker-a", "T", 0, 0, 2)]))
