"""Findings about ConsumeQueues: the first ten of a rule are shown, the others counted."""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from check.damages import FIRST, errors, write
from mqstore.check import check
from mqstore.files.base.read_file import LocalFile
from support import oracle
from support.oracle import Message
from support.stores import Laid, Layout, lay_out


def test_records_without_units_are_found(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(40)])
    laid.unit_of(("T", 0), 39)[0].unlink()
    assert {finding.queue_offset for finding in errors(laid.root)} >= set(range(32, 40))


def units_gone(laid: Laid) -> None:
    path, _ = laid.unit_of(("T", 0), 0)
    write(path, 7 * 20, bytes(25 * 20))


def tags_changed(laid: Laid) -> None:
    path, _ = laid.unit_of(("T", 0), 0)
    for unit in range(7, 32):
        write(path, unit * 20 + 12, struct.pack(">q", 77))


def files_gone(laid: Laid) -> None:
    path, _ = laid.unit_of(("T", 0), 0)
    for file in sorted(path.parent.iterdir())[1:]:
        file.unlink()


def units_repeated(laid: Laid) -> None:
    path, _ = laid.unit_of(("T", 0), 0)
    write(path, 7 * 20, oracle.unit(laid.messages[6]) * 25)


@pytest.mark.parametrize(
    ("damage", "rule", "first", "more", "last"),
    [
        (units_gone, "an empty unit before the queue's end", 7, 15, 31),
        (units_gone, "the unit does not point to the queue's record", 7, 15, 31),
        (tags_changed, "tagsCode is not the record's", 7, 15, 31),
        (units_repeated, "physical offsets do not ascend", 7, 15, 31),
        (files_gone, "the record has no unit", 32, 158, 199),
    ],
)
def test_what_is_wrong_with_a_queue_is_shown_ten_times_and_then_counted(
    tmp_path: Path, damage: Callable[[Laid], None], rule: str, first: int, more: int, last: int
) -> None:
    """Over all of the log: it has many files here, and is read file by file."""
    messages = [Message(body=bytes(400), properties=b"TAGS\x01A\x02") for _ in range(200)]
    laid = lay_out(tmp_path / "store", messages, Layout(queue_units=32, index=False))
    damage(laid)
    found = errors(laid.root)
    told = f"and {more} more from queue offset {first + 10} to {last}: {rule}"
    (at,) = [at for at, f in enumerate(found) if f.problem == told]
    assert (found[at].file, found[at].topic, found[at].queue_id) == ("consumequeue/T/0", "T", 0)
    assert found[at].queue_offset == first + 10
    start = "tagsCode is 77" if damage is tags_changed else rule
    shown = [f.queue_offset for f in found if f.problem.startswith(start)]
    assert shown == list(range(first, first + 10))


def test_a_queue_without_files_is_told_ten_times_and_then_counted(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(topic=t) for _ in range(30) for t in "TU"])
    shutil.rmtree(laid.root / "consumequeue/T")
    found = [f for f in errors(laid.root) if "the queue has no ConsumeQueue" in f.problem]
    assert len(found) == 11
    assert found[-1].problem.startswith("and 20 more from queue offset 10 to 29: ")


def test_units_of_a_log_that_is_gone_are_counted(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=bytes(400)) for _ in range(40)])
    last = sorted((laid.root / "commitlog").iterdir())[-2:]
    lost = sum(path.read_bytes().count(b"\xda\xa3\x20\xa7") for path in last)
    for path in last:
        path.write_bytes(bytes(4096))
    found = errors(laid.root)
    assert [f.queue_offset for f in found if f.problem == "the unit's record is not there"] == (
        list(range(40 - lost, 50 - lost))
    )
    (more,) = [f for f in found if f.problem.startswith("and ")]
    span = f"from queue offset {50 - lost} to 39"
    assert more.problem == f"and {lost - 10} more {span}: no record has this unit"
    assert more.queue_offset == 50 - lost


LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,0"}


def test_light_queues_are_matched_with_the_records_that_name_them(tmp_path: Path) -> None:
    properties = oracle.join_properties(LIGHT)
    laid = lay_out(tmp_path / "store", [Message(), Message(properties=properties)])
    folder = laid.root / "consumequeue"
    unit = oracle.unit(laid.messages[1])
    for name in ("a", "b"):
        (folder / f"%LMQ%{name}" / "0").mkdir(parents=True)
        (folder / f"%LMQ%{name}" / "0" / FIRST).write_bytes(unit.ljust(320, b"\0"))
    assert check(laid.root) == []
    path = folder / "%LMQ%a" / "0" / FIRST
    write(path, 0, oracle.unit(laid.messages[0]))
    assert {f.topic for f in check(laid.root)} == {"%LMQ%a"}
    write(path, 0, unit * 2)
    assert {f.topic for f in check(laid.root)} == {"%LMQ%a"}
    write(path, 0, unit + bytes(20))
    path.rename(laid.root / "elsewhere")
    assert {f.topic for f in check(laid.root)} == {"%LMQ%a"}
    assert errors(laid.root) == []


def test_a_light_queue_offset_beyond_any_queue_is_passed_over(tmp_path: Path) -> None:
    """19 digits need not fit into a long; the broker does not parse what does not."""
    texts = {**LIGHT, "INNER_MULTI_QUEUE_OFFSET": f"0,{'9' * 19}"}
    laid = lay_out(tmp_path / "store", [Message(properties=oracle.join_properties(texts))])
    found = check(laid.root)
    assert [f.topic for f in found] == ["%LMQ%a"]


def sparse(laid: Laid) -> Path:
    """Let the only queue file be as a broker makes it: long, and a hole behind its units."""
    path, _ = laid.unit_of(("T", 0), 0)
    os.truncate(path, 40 * 20)
    os.truncate(path, laid.layout.queue_units * 20)
    return path


def test_what_a_broker_made_ahead_of_a_queue_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = lay_out(tmp_path / "store", [Message()] * 40, Layout(queue_units=300_000, index=False))
    sparse(laid)
    read = LocalFile.read
    count = 0

    def counted(file: LocalFile, size: int, position: int) -> bytes:
        nonlocal count
        data = read(file, size, position)
        count += len(data)
        return data

    monkeypatch.setattr(LocalFile, "read", counted)
    assert check(laid.root) == []
    assert count < 100_000


@pytest.mark.parametrize("number", [41, 5_000, 299_999])
def test_a_unit_far_behind_the_end_of_a_queue_is_found(tmp_path: Path, number: int) -> None:
    laid = lay_out(tmp_path / "store", [Message()] * 40, Layout(queue_units=300_000, index=False))
    write(sparse(laid), number * 20, oracle.unit(laid.messages[3]))
    found = [f for f in errors(laid.root) if f.problem == "a unit behind the queue's end"]
    assert [(f.queue_offset, f.position) for f in found] == [(number, number * 20)]
