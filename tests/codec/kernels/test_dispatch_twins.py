"""What ConsumeQueues hold of records, found by the compiled kernel as numpy finds it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.dispatch import DispatchRecords
from mqstore.codec.gather import RecordHeaders
from mqstore.codec.kernels.dispatch import dispatched
from mqstore.derive.queue_units import QueueUnits, units_of
from support import kernels, strategies
from support.oracle import Message
from support.stores import packed, place

pytestmark = kernels.needs_compiled()
MOST_QUEUES = 512  # of the kernel

tags = st.sampled_from(
    ["TAGS\x01TagA\x02", "TAGS\x01TagA\x02TAGS\x01B\x02", "TAGS\x01标签\x02", ""]
)
light = st.sampled_from(
    [
        "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x014,5\x02",
        "INNER_MULTI_DISPATCH\x01%LMQ%a\x02",
        "",
    ]
)
blocks = st.tuples(tags, light, st.sampled_from(["DELAY\x013\x02", ""])).map("".join)
plain = st.builds(
    Message,
    topic=st.sampled_from(["T", "U", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x"]),
    queue_id=st.integers(-1, 2),
    properties=blocks.map(str.encode),
    sys_flag=st.sampled_from([0, 0, 4, 8, 0xC]),
)


def records_of(batch: list[Message]) -> DispatchRecords:
    data, starts, sizes = packed(batch)
    arrays = np.array(starts, np.int64), np.array(sizes, np.int64)
    headers = RecordHeaders(np.frombuffer(data, np.uint8), *arrays)
    return DispatchRecords(headers, np.array([m.physical_offset for m in batch], np.int64))


def as_lists(units: QueueUnits) -> list[Any]:
    expected = units.expected
    return [
        units.queues,
        units.codes.tolist(),
        expected.queue_offsets.tolist(),
        expected.units.tolist(),
        expected.delayed_from_ms.tolist(),
        expected.is_second.tolist(),
    ]


def found_in(batch: list[Message]) -> list[Any]:
    records = records_of(batch)
    codes, certain = records.tags_codes
    return [
        as_lists(units_of(records)),
        records.topic_names,
        records.topic_codes.tolist(),
        records.queue_ids.tolist(),
        records.stated_offsets.tolist(),
        records.store_timestamps_ms.tolist(),
        records.sys_flags.tolist(),
        records.in_queue.tolist(),
        codes.tolist(),
        certain.tolist(),
        list(records.light_queues()),
    ]


@given(batch=strategies.batches())
def test_any_records_have_the_same_units(batch: list[Message]) -> None:
    ours, theirs = kernels.with_both(lambda: found_in(place(batch)))
    assert ours == theirs


@given(batch=st.lists(plain, max_size=12))
def test_tags_delays_and_light_queues_are_found_alike(batch: list[Message]) -> None:
    ours, theirs = kernels.with_both(lambda: found_in(place(batch)))
    assert ours == theirs


def looked_at(batch: list[Message]) -> Any:
    headers = records_of(batch).headers
    with kernels.using("c"):
        return dispatched(headers.buffer, headers.starts, headers.sizes)


def test_the_kernel_tells_queues_apart_by_topic_and_number() -> None:
    batch = [Message(topic=f"topic-{n % 7}", queue_id=n % 3) for n in range(42)]
    found = looked_at(batch)
    assert found.first.tolist() == list(range(21))
    assert found.queue.tolist() == [n % 21 for n in range(42)]
    assert not found.names_light


def test_a_tag_that_is_not_ascii_leaves_the_other_fields_to_the_kernel() -> None:
    batch = [Message(properties="TAGS\x01é\x02".encode(), queue_id=n) for n in range(4)]
    found = looked_at(batch)
    assert found.tags_codes is None
    assert found.queue.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [MOST_QUEUES, MOST_QUEUES + 1])
def test_more_queues_than_the_kernel_knows_are_found_all_the_same(count: int) -> None:
    batch = place([Message(topic="T", queue_id=n, body=b"b") for n in range(count)])
    assert (looked_at(batch) is not None) == (count <= MOST_QUEUES)
    with kernels.using("c"):
        assert len(units_of(records_of(batch)).queues) == count


@pytest.mark.parametrize("start", [-1, 1, 150, 2**63 - 1, -(2**63)])
def test_a_record_outside_is_not_the_kernels(start: int) -> None:
    places = np.full(9, start, np.int64), np.full(9, 150, np.int64)
    with kernels.using("c"):
        assert dispatched(np.zeros(150, np.uint8), *places) is None
