"""What brokers give decodes alike with the compiled kernel and with numpy, damaged or not."""

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.conftest import PATIENT
from live.loopback import FakeCluster, FakeQueue
from mqstore.codec.schema import PROFILES
from mqstore.format.names import LMQ_PREFIX, SCHEDULE_TOPIC
from mqstore.live.origin.cluster_origin import ClusterOrigin
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from support import kernels, oracle
from support.oracle import Message

pytestmark = kernels.needs_compiled()
BROKER = "broker-a"
FULL = PROFILES["full"]
ZLIB_FLAG = 1
Damage = Callable[[Message], bytes]


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows of each batch the compiled decoder left to numpy."""
    return kernels.left_to_numpy(monkeypatch)


def slices_of(fake: FakeCluster, **more: Any) -> list[QueueSlice]:
    settings = ClusterSettings(name_servers=(fake.address,), limits=PATIENT, **more)
    origin = ClusterOrigin(settings, BROKER)
    return [
        QueueSlice(origin, BROKER, topic, queue_id, queue.low, queue.high)
        for (_, topic, queue_id), queue in fake.queues.items()
    ]


def both(fake: FakeCluster, settings: ScanSettings, **more: Any) -> kernels.Outcome:
    slices = slices_of(fake, **more)
    ours, theirs = kernels.with_both(lambda: kernels.outcome(slices, settings))
    kernels.assert_same(ours, theirs)
    return ours


def rows_of(found: kernels.Outcome) -> list[dict[str, Any]]:
    assert isinstance(found, list), found
    return [row for batch in found for row in batch.to_pylist()]


def change(queue: FakeQueue, at: int, **fields: Any) -> None:
    message = queue.messages[at]
    assert message is not None
    queue.messages[at] = replace(message, **fields)


def with_size(message: Message, size: int) -> bytes:
    return size.to_bytes(4, "big") + oracle.encode(message)[4:]


damages: dict[str, Damage] = {
    "no record": lambda _: b"\0" * 120,
    "cut": lambda m: oracle.encode(m)[:-7],
    "long": lambda m: oracle.encode(m) + b"more",
    "small size": lambda m: with_size(m, 40),
    "body length": lambda m: oracle.encode(m)[:84] + b"\0\1\0\0" + oracle.encode(m)[88:],
    "checksum": lambda m: oracle.encode(replace(m, body_crc=5)),
    "another topic": lambda m: oracle.encode(replace(m, topic="U")),
    "another queue": lambda m: oracle.encode(replace(m, queue_id=9)),
    "another offset": lambda m: oracle.encode(replace(m, queue_offset=m.queue_offset + 1)),
    "no zlib": lambda m: oracle.encode(replace(m, sys_flag=ZLIB_FLAG)),
    "nothing": lambda _: b"",
}


@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=3),
    most=st.integers(1, 40),
    packed=st.sets(st.integers(0, 59), max_size=20),
    damaged=st.dictionaries(st.integers(0, 59), st.sampled_from(sorted(damages)), max_size=3),
    lost=st.sets(st.integers(0, 59), max_size=2),
    settings=st.builds(
        ScanSettings,
        columns=st.sampled_from([FULL, PROFILES["standard"], PROFILES["kafka"], ("queueOffset",)]),
        tags=st.sampled_from(["*", "Aa", "Aa || C"]),
        on_corrupt=st.sampled_from(["fail", "skip", "rescue"]),
        batch_rows=st.sampled_from([3, 20, 1_000]),
        first_rows=st.sampled_from([1, 1_000]),
        batch_bytes=st.sampled_from([2_000, 1 << 20]),
        max_decompressed_bytes=st.sampled_from([60, 1 << 20]),
        verify_crc=st.booleans(),
        decompress=st.booleans(),
        fail_on_data_loss=st.booleans(),
    ),
)
def test_any_answers_decode_alike(
    counts: list[int],
    most: int,
    packed: set[int],
    damaged: dict[int, str],
    lost: set[int],
    settings: ScanSettings,
) -> None:
    with FakeCluster().running() as fake:
        fake.most = most
        for queue_id, count in enumerate(counts):
            queue = fake.fill(
                "T", count, queue_id=queue_id, low=7, tags=lambda i: ("Aa", "BB", "C")[i % 3]
            )
            for at in (n for n in packed if n < count):
                change(queue, at, body=zlib.compress(b"x" * 2 * at), sys_flag=ZLIB_FLAG)
            for at, kind in damaged.items():
                if at < count and (message := queue.messages[at]) is not None:
                    queue.raw[queue.low + at] = damages[kind](message)
            for at in (n for n in lost if n < count and n not in damaged):
                queue.messages[at] = None
        both(fake, settings, retry_timeout_ms=0)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("tags", ["*", "Aa || C"])
def test_numpy_has_nothing_to_do_with_sound_records(
    fake: FakeCluster, profile: str, tags: str, left: list[int]
) -> None:
    fake.fill("T", 300, tags=lambda i: ("Aa", "BB", "C")[i % 3])
    fake.fill("T", 90, queue_id=1, low=5, body=lambda i: b"x" * 4_000, tags=lambda i: "C")
    found = rows_of(both(fake, ScanSettings(PROFILES[profile], tags=tags)))
    assert len(found) == (290 if tags != "*" else 390)
    assert left
    assert not any(left)


def test_large_answers_are_taken_as_they_come_and_small_ones_together(
    fake: FakeCluster, left: list[int]
) -> None:
    fake.most, fake.most_bytes = 1_000, 900_000
    fake.fill("T", 60, body=lambda i: bytes([i]) * 20_000)
    fake.fill("T", 300, queue_id=1, body=lambda i: bytes([i % 251]) * (i * 37 % 3_000))
    found = rows_of(both(fake, ScanSettings(("queueId", "queueOffset", "body"))))
    assert [(row["queueId"], row["queueOffset"], row["body"]) for row in found] == [
        *((0, i, bytes([i]) * 20_000) for i in range(60)),
        *((1, i, bytes([i % 251]) * (i * 37 % 3_000)) for i in range(300)),
    ]
    assert not any(left)


def test_of_a_batch_with_a_body_that_does_not_decompress_no_row_comes_twice(
    fake: FakeCluster, left: list[int]
) -> None:
    queue = fake.fill("T", 30)
    for at in range(30):
        change(queue, at, body=zlib.compress(b"x" * 500), sys_flag=ZLIB_FLAG)
    change(queue, 17, body=b"no zlib at all")
    settings = ScanSettings(FULL, on_corrupt="skip", batch_bytes=2_000)
    found = rows_of(both(fake, settings))
    assert [row["queueOffset"] for row in found] == [n for n in range(30) if n != 17]
    assert any(left)


def test_an_answer_with_more_rows_than_a_batch_is_cut(fake: FakeCluster) -> None:
    fake.fill("T", 100)
    found = both(fake, ScanSettings(FULL, batch_rows=7, first_rows=3))
    assert [row["queueOffset"] for row in rows_of(found)] == list(range(100))
    assert max(batch.num_rows for batch in found) == 7  # type: ignore[union-attr]


def test_light_and_delayed_messages_decode_alike(fake: FakeCluster) -> None:
    light = fake.fill(f"{LMQ_PREFIX}a", 40)
    for at in range(40):
        change(light, at, topic="Parent", queue_id=3, queue_offset=1_000 + at)
    fake.fill(SCHEDULE_TOPIC, 40, queue_id=1)
    fake.codes[SCHEDULE_TOPIC, 1] = lambda at: 1_700_000_000_000 + at
    for columns in (FULL, PROFILES["standard"]):
        found = rows_of(both(fake, ScanSettings(columns)))
        assert [row["queueOffset"] for row in found] == [*range(40)] * 2
    codes = [row["tagsCode"] for row in rows_of(both(fake, ScanSettings(FULL)))]
    assert codes[40:] == [1_700_000_000_000 + at for at in range(40)]
