"""The one fetch: each rule is found at the row that breaks it, and sound records pass whole."""

from pathlib import Path

import numpy as np
import pytest

from mqstore.codec.decode import QueuePositions
from mqstore.derive.records import (
    IN_PLACE,
    LARGE_BYTES,
    SOUND_CHECKS,
    WHOLE,
    RecordChecks,
    fetch,
    fetch_at,
    is_of_unit,
    record_sizes,
    verify,
)
from mqstore.files.base.directory import Directory
from mqstore.files.log.commit_log import CommitLog
from support.oracle import Message
from support.stores import Laid, Layout, lay_out

BODY = b"b" * 20
QUEUES = [("T", 0, "b"), ("T", 1, "b"), ("U", 0, "b")]


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    messages = [Message(topic=t, queue_id=q, body=BODY) for t, q in (("T", 0), ("T", 1), ("U", 0))]
    return lay_out(tmp_path, [*messages, messages[0]], Layout(commit_log_bytes=1 << 20))


def places(laid: Laid) -> tuple[np.ndarray, np.ndarray]:
    found = [(m.physical_offset, m.size) for m in laid.messages]
    offsets, sizes = np.array(found, np.int64).T.copy()
    return offsets, sizes


def positions(
    queue: tuple[int, ...] = (0, 1, 2, 0), at: tuple[int, ...] = (0, 0, 0, 1)
) -> QueuePositions:
    return QueuePositions(QUEUES, np.array(queue), np.array(at), np.zeros(len(queue), np.int64))


def opened(laid: Laid) -> CommitLog:
    return CommitLog([Directory(str(laid.root / "commitlog"))])


def overwrite(laid: Laid, position: int, data: bytes) -> None:
    (path,) = (laid.root / "commitlog").iterdir()
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_sound_records_pass_every_check(laid: Laid) -> None:
    checks = RecordChecks(positions=positions(), checksum=True)
    with opened(laid) as log:
        found = fetch(log, *places(laid), checks)
    assert found.rows.tolist() == [0, 1, 2, 3]
    assert not found.problems
    assert found.headers.field("queue_offset").tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("queue", "at"),
    [((1, 1, 2, 0), (0, 0, 0, 1)), ((2, 1, 2, 0), (0, 0, 0, 1)), ((0, 1, 2, 0), (7, 0, 0, 1))],
    ids=["queue", "topic", "queue offset"],
)
def test_a_record_of_another_queue_is_told_from_its_units(
    laid: Laid, queue: tuple[int, ...], at: tuple[int, ...]
) -> None:
    with opened(laid) as log:
        found = fetch(log, *places(laid), RecordChecks(positions=positions(queue, at)))
    assert found.problems == {0: "the record is of another topic, queue or queue offset"}
    assert found.rows.tolist() == [1, 2, 3]


def test_a_light_queue_may_point_at_any_record(laid: Laid) -> None:
    light = QueuePositions(
        [("%LMQ%a", 0, "b")], np.zeros(4, np.int64), np.arange(9, 13), np.zeros(4, np.int64)
    )
    with opened(laid) as log:
        assert not fetch(log, *places(laid), RecordChecks(positions=light)).problems


def test_problems_have_the_rows_that_were_asked_for(laid: Laid) -> None:
    offsets, sizes = places(laid)
    overwrite(laid, int(offsets[2]) + 4, b"\0")
    offsets[0] = 1 << 40
    with opened(laid) as log:
        found = fetch(log, offsets, sizes, RecordChecks(positions=positions()))
    assert found.problems == {
        0: "the ConsumeQueue unit points outside the CommitLog",
        2: "no record starts here (bad magic)",
    }
    assert found.rows.tolist() == [1, 3]
    assert found.headers.field("queue_id").tolist() == [1, 0]


def test_a_record_that_says_another_place_is_only_whole(laid: Laid) -> None:
    offsets, sizes = places(laid)
    overwrite(laid, int(offsets[1]) + 28, (5).to_bytes(8, "big"))
    with opened(laid) as log:
        reason = "PHYSICALOFFSET is not the record's place in the CommitLog"
        assert fetch(log, offsets, sizes, IN_PLACE).problems == {1: reason}
        assert not fetch(log, offsets, sizes, WHOLE).problems


def test_a_body_that_went_bad_is_seen_by_its_checksum_only(laid: Laid) -> None:
    offsets, sizes = places(laid)
    overwrite(laid, int(offsets[3]) + 90, b"x")
    with opened(laid) as log:
        assert not fetch(log, offsets, sizes, IN_PLACE).problems
        found = fetch(log, offsets, sizes, SOUND_CHECKS)
        assert fetch_at(log, int(offsets[3]), SOUND_CHECKS) is None
        assert fetch_at(log, int(offsets[3])) is not None
    assert found.problems == {3: "the checksum does not hold"}


def test_a_large_size_that_the_record_does_not_say_is_not_read(tmp_path: Path) -> None:
    laid = lay_out(
        tmp_path, [Message(), Message(body=bytes(LARGE_BYTES))], Layout(commit_log_bytes=1 << 20)
    )
    offsets, sizes = places(laid)
    sizes[0] = LARGE_BYTES + 1
    with opened(laid) as log:
        found = fetch(log, offsets, sizes)
    assert found.problems == {0: "no record of that size and queue offset starts here"}
    assert found.rows.tolist() == [1]


def test_sizes_are_those_that_headers_say(laid: Laid) -> None:
    offsets, sizes = places(laid)
    with opened(laid) as log:
        assert record_sizes(log, offsets).tolist() == sizes.tolist()
        assert record_sizes(log, np.array([log.high, 1 << 60])).tolist() == [0, 0]
        assert fetch_at(log, int(offsets[1]) + 1) is None


def test_a_unit_is_believed_if_the_header_says_the_same(laid: Laid) -> None:
    last = laid.messages[-1]
    with opened(laid) as log:
        assert is_of_unit(log, last.physical_offset, last.size, ("T", 0, 1))
        assert is_of_unit(log, last.physical_offset, last.size, ("%LMQ%a", 3, 9))
        assert not is_of_unit(log, last.physical_offset, last.size, ("T", 0, 0))
        assert not is_of_unit(log, last.physical_offset, last.size, ("T", 1, 1))
        assert not is_of_unit(log, last.physical_offset, last.size + 1, ("T", 0, 1))
        assert not is_of_unit(log, last.physical_offset + 1, last.size, ("T", 0, 1))


def test_records_in_memory_are_checked_without_a_log(laid: Laid) -> None:
    offsets, sizes = places(laid)
    with opened(laid) as log:
        headers = fetch(log, offsets, sizes).headers
    assert not verify(headers, offsets, RecordChecks(positions=positions())).problems
    assert sorted(verify(headers, offsets + 1).problems) == [0, 1, 2, 3]
