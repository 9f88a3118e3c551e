"""A damaged record is one finding: what is broken only because of it is counted there."""

from pathlib import Path

import pytest

from check.damages import FIRST, flip, in_record, write
from mqstore.check import Finding, check
from support.oracle import Message
from support.stores import Laid, Layout, lay_out


def many_queues(tmp_path: Path, count: int = 600) -> Laid:
    messages = [
        Message(
            topic=f"T{i % 20}",
            queue_id=i % 5,
            body=b"b" * 240,
            properties=b"TAGS\x01A\x02KEYS\x01k",
        )
        for i in range(count)
    ]
    return lay_out(tmp_path / "store", messages)


def test_a_record_whose_lengths_do_not_add_up_is_one_finding(tmp_path: Path) -> None:
    """Its unit, its two index units, and the gap in its queue's offsets."""
    laid = many_queues(tmp_path)
    path, position = in_record("body_length", 50)(laid)
    assert check(laid.root) == [
        Finding(
            "error",
            str(path.relative_to(laid.root)),
            position,
            None,
            None,
            None,
            "topic length reaches out of the record",
            4,
        )
    ]


@pytest.mark.parametrize("is_zeroed", [False, True])
def test_where_the_log_breaks_off_all_that_follows_is_one_finding(
    tmp_path: Path, *, is_zeroed: bool
) -> None:
    """A wrong TOTALSIZE leads nowhere; zeros are what lies behind a log's end."""
    laid = many_queues(tmp_path)
    path, position = laid.file_of(laid.messages[200])
    write(path, position, bytes(8) if is_zeroed else b"\x7f")
    lost = laid.messages[200:]
    files = {laid.file_of(m)[0] for m in lost if laid.file_of(m)[0] != path}
    behind = len(files) + 1  # A file each, the rest of the file, and the blank record.
    found = check(laid.root)
    start = "the log ends here without" if is_zeroed else "no record starts here"
    assert [(f.severity, f.problem.startswith(start)) for f in found] == [("error", True)]
    # A unit and two index units for each record, and logicsPhysicalOffset of the checkpoint.
    assert 3 * len(lost) + behind <= found[0].consequences <= 3 * len(lost) + behind + 4


def test_bytes_behind_the_log_that_queues_point_to_are_an_error(tmp_path: Path) -> None:
    """Alone they are a warning: a broker leaves such bytes when it cuts a log off."""
    laid = lay_out(tmp_path / "store", [Message(body=b"b")] * 9, Layout(index=False))
    path, position = laid.file_of(laid.messages[4])
    write(path, position, bytes(8))
    (found,) = check(laid.root)
    assert found.severity == "error"
    assert found.problem.startswith("bytes behind the end of the log")
    assert found.consequences >= 5
    (laid.root / "checkpoint").unlink()
    for file in (laid.root / "consumequeue/T/0").iterdir():
        write(file, 4 * 20, bytes(5 * 20))
    assert [(f.severity, f.consequences) for f in check(laid.root)] == [("warning", 0)]


def test_a_missing_file_of_the_log_is_one_finding(tmp_path: Path) -> None:
    laid = many_queues(tmp_path)
    (laid.root / "commitlog" / f"{4096:020d}").unlink()
    found = check(laid.root)
    assert [f.problem for f in found] == ["the file before this one is missing"]
    gone = [m for m in laid.messages if 4096 <= m.physical_offset < 8192]
    assert found[0].consequences >= 3 * len(gone)


def test_what_points_behind_all_files_of_a_damaged_log_keeps_its_own_finding(
    tmp_path: Path,
) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=b"b" * 240)] * 40, Layout(index=False))
    path, position = laid.file_of(laid.messages[20])
    write(path, position, b"\x7f")
    path, position = laid.unit_of(("T", 0), 30)
    write(path, position, (1 << 40).to_bytes(8, "big"))
    (laid.root / "checkpoint").unlink()
    first, *others = check(laid.root)
    assert first.problem.startswith("no record starts here")
    assert first.consequences >= 19
    assert {f.queue_offset for f in others} >= {30}


def test_damage_beside_a_damaged_record_keeps_its_own_finding(tmp_path: Path) -> None:
    """In the same queue: a unit that points elsewhere, and a record that has no unit."""
    laid = lay_out(tmp_path / "store", [Message(body=b"b" * 240)] * 40, Layout(index=False))
    in_record("body_length", 5)(laid)
    path, position = laid.unit_of(("T", 0), 20)
    write(path, position + 7, b"\x01")
    found = check(laid.root)
    assert found[0].consequences == 2
    assert {f.queue_offset for f in found[1:]} >= {20}
    assert all(f.consequences == 0 for f in found[1:])


def test_a_gap_that_damage_does_not_fill_stays_a_finding(tmp_path: Path) -> None:
    """Record 5 is damaged, and the unit of the same queue offset points to another record."""
    laid = lay_out(tmp_path / "store", [Message(body=b"b" * 240)] * 40, Layout(index=False))
    in_record("body_length", 5)(laid)
    path, position = laid.unit_of(("T", 0), 5)
    write(path, position, (7).to_bytes(8, "big"))
    problems = {f.problem for f in check(laid.root)}
    assert "queueOffset 6 comes after 4" in problems


def test_causes_come_first(tmp_path: Path) -> None:
    laid = many_queues(tmp_path)
    flip(laid.root / "commitlog" / FIRST, 8)
    in_record("body_length", 50)(laid)
    path, position = laid.unit_of(("T3", 3), 2)
    write(path, position, bytes(20))
    assert [f.consequences > 0 for f in check(laid.root)][:2] == [True, False]


def test_the_thousand_first_damaged_record_is_counted(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()] * 1100, Layout(index=False))
    for number in range(1100):
        in_record("body_length", number)(laid)
    found = check(laid.root)
    assert sum(f.severity == "error" for f in found) <= 1001
    assert found[-1].problem.startswith("and ")
    assert found[-1].problem.endswith(" more of this severity")
