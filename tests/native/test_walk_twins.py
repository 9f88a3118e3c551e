"""Sections of a log file: the compiled walk finds what numpy's finds."""

import struct
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.derive import log_sections
from mqstore.derive.log_sections import FileWalk, Section
from mqstore.files.base.directory import Directory
from mqstore.files.log.commit_log import CommitLog
from mqstore.native.registry import COMPILED
from mqstore.native.walk import UnitsKernel
from support import kernels, oracle, strategies
from support.oracle import Message
from support.stores import Laid, Layout, lay_out, packed, place

pytestmark = kernels.needs_compiled()
LAYOUT = Layout(commit_log_bytes=1 << 16)
MOST_QUEUES = 1 << 13  # of the kernel
plain = st.builds(
    Message,
    topic=st.sampled_from(["T", "a-longer-topic", "rmq_sys_x"]),
    queue_id=st.integers(-1, 2),
    properties=st.sampled_from([b"", b"TAGS\x01A\x02", b"TAGS\x01\xc3\xa9\x02"]),
    sys_flag=st.sampled_from([0, 0, 0, 4, 8, 0xC, 0x80]),
)
LIGHT = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x014,5\x02"


def by_queue(section: Section) -> dict[Any, list[Any]]:
    """The rows of each queue, in their order."""
    units = section.units
    rows = list(zip(*(c.tolist() for c in (*units.columns(), units.holds_several)), strict=True))
    edges = section.edges.tolist()
    spans = zip(section.queues, edges[:-1], edges[1:], strict=True)
    return {queue: rows[start:end] for queue, start, end in spans}


def walked(laid: Laid, most: int = 1 << 16) -> list[Any]:
    """All units of each file, and how its walk ended."""
    found: list[Any] = []
    with CommitLog([Directory(str(laid.root / "commitlog"))]) as log:
        for file in log.files.files:
            walk = FileWalk(log, file)
            found += [by_queue(section) for section in walk.sections(most) if section.queues]
            found += [walk.end, walk.is_closed, walk.has_rest, walk.damages, walk.damaged]
    return found


def joined(found: list[Any]) -> dict[Any, list[Any]]:
    """The rows of each queue in sections of any size, by physical offset."""
    rows: dict[Any, list[Any]] = {}
    for section in (part for part in found if isinstance(part, dict)):
        for queue, own in section.items():
            rows.setdefault(queue, []).extend(own)
    return {queue: sorted(own, key=lambda row: row[1]) for queue, own in rows.items()}


def assert_alike(messages: list[Message], change: Callable[[Laid], None] = lambda _: None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        laid = lay_out(Path(folder) / "store", messages, LAYOUT)
        change(laid)
        ours, theirs = kernels.with_both(lambda: walked(laid))
        assert ours == theirs


@given(batch=strategies.batches())
def test_any_records_have_the_same_sections(batch: list[Message]) -> None:
    assert_alike(batch)


@given(batch=st.lists(st.one_of(plain, strategies.delayed()), max_size=12))
def test_tags_delays_and_transactions_are_found_alike(batch: list[Message]) -> None:
    assert_alike(batch)


@given(
    batch=st.lists(plain, min_size=1, max_size=8),
    at=st.floats(0, 1, exclude_max=True),
    word=st.sampled_from([0, 1, -1, 91, 1 << 20, oracle.V1]),
)
def test_damage_is_named_alike(batch: list[Message], at: float, word: int) -> None:
    def damage(laid: Laid) -> None:
        with (laid.root / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(int(at * laid.high))
            file.write(struct.pack(">i", word))

    assert_alike(batch, damage)


@pytest.mark.parametrize("most", [1, 2, 7])
def test_small_sections_have_the_units_of_large_ones(tmp_path: Path, most: int) -> None:
    batch = [Message(topic=f"T{n % 3}", queue_id=n % 2, body=bytes(n)) for n in range(40)]
    batch[9] = replace(batch[9], properties=LIGHT)
    laid = lay_out(tmp_path / "store", batch, LAYOUT)
    with kernels.using(COMPILED):
        assert joined(walked(laid, most)) == joined(walked(laid))


def test_records_left_to_numpy_one_by_one_leave_the_others_to_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = [Message(body=b"x" * 300) for _ in range(150)]
    batch[75] = replace(batch[75], properties=LIGHT)
    laid = lay_out(tmp_path / "store", batch, LAYOUT)
    left = []
    chunks = log_sections.log_chunks

    def noted(log: CommitLog, start: int) -> Any:
        left.append(start)
        return chunks(log, start)

    monkeypatch.setattr(log_sections, "log_chunks", noted)
    with kernels.using(COMPILED):
        (found, *_) = walked(laid)
    assert left == [laid.messages[75].physical_offset]
    assert sorted(found) == [("%LMQ%a", 0), ("%LMQ%b", 0), ("T", 0)]


def test_more_queues_than_the_kernel_knows_are_handed_over_in_parts() -> None:
    kernel = UnitsKernel(MOST_QUEUES + 2, 1 << 40)
    batch = place(
        [Message(topic="T", queue_id=n) for n in range(MOST_QUEUES + 1)],
        Layout(commit_log_bytes=1 << 30),
    )
    data, starts, _ = packed(batch)
    buffer = np.frombuffer(data, np.uint8)
    with kernels.using(COMPILED):
        end, _ = kernel.walk(buffer, 0)
        assert end == starts[MOST_QUEUES]
        assert kernel.take().queues == [("T", n) for n in range(MOST_QUEUES)]
        assert kernel.walk(buffer[end:], end)[0] == len(data) - end
    assert kernel.take().queues == [("T", MOST_QUEUES)]
