"""Messages of the log that no queue names, counted; and where index and queueOffset part."""

import shutil
from pathlib import Path

import pytest

from mqstore.check import check, unnamed
from support.oracle import Message
from support.stores import Laid, Layout, lay_out

COUNT = 40
KEPT, NEXT = 6, 25


def skipping(root: Path) -> Laid:
    """As a 4.9.7 broker left a disk after kill -9: unit 6 has the record of queueOffset 25."""
    laid = lay_out(root, [Message(body=b"%d" % n) for n in range(COUNT)], Layout(queue_units=64))
    path, _ = laid.unit_of(("T", 0), 0)
    units = path.read_bytes()
    kept = units[: KEPT * 20] + units[NEXT * 20 : COUNT * 20]
    path.write_bytes(kept.ljust(len(units), b"\0"))
    return laid


def warnings(root: Path) -> list[tuple[str | None, int | None, int | None, str]]:
    found = [finding for finding in check(root) if finding.severity == "warning"]
    return [(f.topic, f.queue_id, f.queue_offset, f.problem) for f in found]


def _parted(index: int, said: int, count: int) -> str:
    start = f"index and queueOffset part: unit {index} has the record of queueOffset {said}"
    return f"{start}, and {count} units have records of another one"


def test_messages_that_a_queue_skips_are_counted(tmp_path: Path) -> None:
    laid = skipping(tmp_path / "store")
    named, parted = warnings(laid.root)
    assert named[:3] == ("T", 0, KEPT)
    assert named[3].startswith(
        f"{NEXT - KEPT} messages of the log that no unit names, the first has queueOffset {KEPT}. "
        "queues=log"
    )
    assert parted == (
        "T",
        0,
        KEPT,
        _parted(KEPT, NEXT, COUNT - NEXT),
    )
    assert any(finding.severity == "error" for finding in check(laid.root))


def test_messages_of_a_queue_that_is_gone_are_counted(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(), Message(queue_id=1), Message(queue_id=1)])
    shutil.rmtree(laid.root / "consumequeue" / "T" / "1")
    ((topic, queue_id, number, problem),) = warnings(laid.root)
    assert (topic, queue_id, number) == ("T", 1, 0)
    assert problem.startswith("2 messages of the log that no unit names")


def test_a_whole_store_has_none(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=b"%d" % n) for n in range(COUNT)])
    assert check(laid.root) == []


def test_only_so_many_queues_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unnamed, "_MOST_LISTED", 2)
    laid = lay_out(tmp_path / "store", [Message(queue_id=n) for n in (0, 1, 2, 3, 3)])
    shutil.rmtree(laid.root / "consumequeue")
    found = [problem for _, _, _, problem in warnings(laid.root)]
    assert len([problem for problem in found if "that no unit names" in problem]) == 2
    assert "3 records of more queues are not where their units should be" in found
