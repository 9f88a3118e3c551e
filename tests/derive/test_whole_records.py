"""All whole records of a file are found, and nothing else, in time linear in its bytes."""

import os
import random
import struct
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.derive.whole_records import Doubt, Stretch, WholeRecords
from mqstore.files.base.read_file import LocalFile
from support import oracle
from support.oracle import V1, Message, encode
from support.stores import Layout, place

SIZE = 1 << 16


def found_in(data: bytes, start: int | None = 0) -> list[Stretch | Doubt]:
    fd = os.memfd_create("file")
    try:
        os.write(fd, data)
        return list(WholeRecords(LocalFile(fd), len(data), start, SIZE))
    finally:
        os.close(fd)


def places_in(data: bytes, start: int | None = 0) -> list[int]:
    """Where in the file the whole records start."""
    places = []
    for one in found_in(data, start):
        if isinstance(one, Stretch):
            part = data[one.position : one.end]
            starts = [position for position, _ in oracle.walk(part)]
            assert len(starts) == one.records
            places += [one.position + position for position in starts]
    return places


def records(count: int, seed: int = 1) -> tuple[bytes, list[int]]:
    chance = random.Random(seed)
    messages = [
        Message(
            topic=f"Topic{chance.randrange(3)}",
            body=chance.randbytes(chance.choice([1, 40, 900])),
            properties=b"KEYS\x01k1\x02TAGS\x01A\x02",
            queue_id=chance.randrange(2),
        )
        for _ in range(count)
    ]
    placed = place(messages, Layout(commit_log_bytes=1 << 30))
    data = b"".join(map(encode, placed))
    return data, [m.physical_offset for m in placed]


def test_an_undamaged_file_is_one_stretch() -> None:
    data, places = records(100)
    (found,) = found_in(data.ljust(SIZE, b"\0"))
    assert found == Stretch(0, 0, len(data), len(places))


@pytest.mark.parametrize("fill", [b"\0", None])
@given(seed=st.integers(0, 2**32))
def test_every_record_outside_holes_is_found_and_no_other(fill: bytes | None, seed: int) -> None:
    chance = random.Random(seed)
    data, places = records(60, seed)
    ends = [*places[1:], len(data)]
    damaged, held = bytearray(data), [True] * len(places)
    for _ in range(chance.randrange(1, 5)):
        start = chance.randrange(len(data))
        end = min(len(data), start + chance.choice([24, 100, 5000]))
        damaged[start:end] = bytes(end - start) if fill else chance.randbytes(end - start)
    for number, (low, high) in enumerate(zip(places, ends, strict=True)):
        held[number] = damaged[low:high] == data[low:high]
    whole = [one for one, kept in zip(places, held, strict=True) if kept]
    found = places_in(bytes(damaged))
    assert set(whole) <= set(found)
    # A few bytes inside a header are under no checksum: then only fields may differ.
    for extra in set(found) - set(whole):
        number = places.index(extra)
        changed = [at for at in range(extra, ends[number]) if damaged[at] != data[at]]
        assert len(changed) <= 24


def test_records_are_found_in_a_file_that_lost_its_name() -> None:
    data, places = records(50)
    junk = random.Random(1).randbytes(777)
    found = found_in(junk + data, None)
    assert found == [Stretch(777, 0, len(data), len(places))]


def test_a_broken_checksum_is_a_doubt_between_two_stretches() -> None:
    data, places = records(10)
    damaged = bytearray(data)
    damaged[places[4] + 88] ^= 1
    first, doubt, second = found_in(bytes(damaged))
    assert isinstance(doubt, Doubt)
    assert (doubt.position, doubt.length) == (places[4], places[5] - places[4])
    assert (first, second) == (
        Stretch(0, 0, places[4], 4),
        Stretch(places[5], places[5], len(data) - places[5], 5),
    )


@pytest.mark.parametrize(
    ("at", "value"),
    [(12, b"\xff\xff\xff\xff"), (56, bytes(8)), (-3, bytes(2)), (-3, b"\xff")],
    ids=["queueId", "store timestamp", "zeros in properties", "no UTF-8 in properties"],
)
def test_a_field_that_no_broker_stores_is_a_doubt(at: int, value: bytes) -> None:
    data, places = records(10)
    damaged = bytearray(data)
    start = places[4] + at if at >= 0 else places[5] + at
    damaged[start : start + len(value)] = value
    _, doubt, _ = found_in(bytes(damaged))
    assert isinstance(doubt, Doubt)
    assert doubt.position == places[4]


def test_a_blank_record_closes_the_file() -> None:
    data, _ = records(10)
    stale = encode(Message(body=b"old"))
    room = SIZE - len(data)
    blank = oracle.blank(room)[:8] + stale
    (found,) = found_in((data + blank).ljust(SIZE, b"\0"))
    assert isinstance(found, Stretch)
    assert found.length == len(data)


def test_records_inside_the_body_of_a_whole_record_are_none() -> None:
    inner = encode(Message(body=b"x"))
    outer = place([Message(body=inner * 3)], Layout(commit_log_bytes=SIZE))[0]
    assert places_in(b"\1" * 100 + encode(outer), None) == [100]


def imitations(size: int) -> bytes:
    """Headers whose records overlap, each as large as can be, and none whole."""
    one = struct.pack(">ii", 1 << 20, V1)
    return (one * (size // len(one)))[:size]


def nested(size: int) -> bytes:
    """Records with right lengths and wrong checksums, each in the body of the one before."""
    step = 96
    data = bytearray(size)
    for start in range(0, size - 2 * step, step):
        m = replace(Message(body=bytes(size - start - step), body_crc=1), physical_offset=start)
        data[start:] = encode(m)[: size - start]
    return bytes(data)


@pytest.mark.parametrize("make", [imitations, nested])
def test_bytes_that_imitate_records_cost_linear_time(make: object) -> None:
    assert callable(make)
    found_in(make(1 << 16))
    begun = time.process_time()
    found_in(make(1 << 19))
    assert time.process_time() - begun < 20
