"""What cat and find do at a message that is broken."""

import json
from pathlib import Path

import pytest

from jobs.command import Run
from support import goldens

AT = 409_185  # The physical offset of GTopic/1@100.
FILE_BYTES = 262_144
BODY = 88  # Where in a record of IPv4 hosts its body begins.
MAGIC = 4


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return goldens.unpack("5.5.0", tmp_path)


def flip(root: Path, physical_offset: int, position: int = BODY) -> None:
    start = physical_offset // FILE_BYTES * FILE_BYTES
    with (root / "commitlog" / f"{start:020d}").open("r+b") as log:
        log.seek(physical_offset - start + position)
        byte = log.read(1)[0]
        log.seek(-1, 1)
        log.write(bytes([byte ^ 1]))


def stored_before(physical_offset: int, queue_id: int | None = None) -> list[int]:
    return sorted(
        m["physicalOffset"]
        for m in goldens.expected("5.5.0")
        if m["topic"] == "GTopic"
        and m["physicalOffset"] < physical_offset
        and queue_id in (None, m["queueId"])
    )


def places(out: str) -> list[int]:
    return [json.loads(line)["physicalOffset"] for line in out.splitlines()]


@pytest.mark.parametrize("position", [BODY, MAGIC])
@pytest.mark.parametrize(
    ("place", "queue_id"), [("GTopic", None), ("GTopic/1", 1), ("GTopic/2", 2)]
)
def test_all_that_was_stored_before_is_printed_then_the_error(
    run: Run,
    root: Path,
    place: str,
    queue_id: int | None,
    position: int,
) -> None:
    flip(root, AT, position)
    done = run("cat", root, place, "-n", "0", "--json")

    if queue_id == 2:  # The record is of another queue.
        assert (done.code, done.err) == (0, "")
        return
    assert done.code == 2
    assert done.err.startswith("mqlog: [MQLOG_CORRUPT_STORE]")
    assert f"at byte {AT % FILE_BYTES}" in done.err
    assert places(done.out) == stored_before(AT, queue_id)


def test_what_lies_behind_the_lines_asked_for_is_not_an_error(
    run: Run,
    root: Path,
) -> None:
    flip(root, AT)
    done = run("cat", root, "GTopic", "-n", "400", "--json")

    assert (done.code, done.err) == (0, "")
    assert places(done.out) == stored_before(AT)
    assert len(stored_before(AT)) == 400
    assert run("cat", root, "GTopic", "-n", "401", "--json").code == 2


def test_the_first_of_several_is_the_one_that_is_told(
    run: Run,
    root: Path,
) -> None:
    """A broken frame is seen before a checksum of the same batch, and lies behind it."""
    first, second = stored_before(2**63, 1)[10], stored_before(2**63, 1)[20]
    flip(root, first, BODY)
    flip(root, second, MAGIC)
    done = run("cat", root, "GTopic/1", "--json")

    assert f"at byte {first % FILE_BYTES}" in done.err
    assert places(done.out) == stored_before(first, 1)


def test_a_table_is_drawn_of_what_came_before(run: Run, root: Path) -> None:
    flip(root, AT)
    done = run("cat", root, "GTopic/1@98")

    assert done.code == 2
    assert [line.split()[1] for line in done.out.splitlines()[2:]] == ["98", "99"]
    assert run("cat", root, "GTopic/1@100").out == ""


@pytest.mark.parametrize(
    ("way", "queue_offsets"), [("skip", [98, 99, 101, 102]), ("rescue", [98, 99, 100, 101])]
)
def test_a_broken_message_may_be_left_out_or_shown(
    run: Run,
    root: Path,
    way: str,
    queue_offsets: list[int],
) -> None:
    flip(root, AT, MAGIC)
    done = run("cat", root, "GTopic/1@98", "-n", "4", "--on-corrupt", way, "--json")

    assert done.code == 0
    assert [row["queueOffset"] for row in done.rows] == queue_offsets


def test_find_shows_a_broken_message_unless_told_otherwise(
    run: Run,
    root: Path,
) -> None:
    (row,) = run("find", root, "--key", "late78", "--json").rows
    flip(root, int(str(row["physicalOffset"])))
    words = ("find", root, "--key", "late78", "--json")

    (found,) = run(*words).rows
    assert found["crcOk"] is False
    assert run(*words, "--on-corrupt", "skip").code == 1
    assert run(*words, "--on-corrupt", "fail").err.startswith("mqlog: [MQLOG_CORRUPT_STORE]")


def test_another_way_is_refused(run: Run, root: Path) -> None:
    done = run("cat", root, "GTopic", "--on-corrupt", "mend")

    assert done.code == 2
    assert "option --on-corrupt='mend': must be one of fail, skip, rescue" in done.err


def test_a_log_may_be_let_end_at_the_damage_and_a_copy_of_the_rest_is_told(
    run: Run,
    root: Path,
) -> None:
    flip(root, AT)
    assert run("recover", root, "--rebuild").code == 2
    done = run("recover", root, "--cut-at-damage")
    assert (done.code, done.err) == (0, "")
    assert f"behind the end of the CommitLog; a copy is in {root}/.mqlog/quarantine\n" in done.out
    assert any((root / ".mqlog" / "quarantine").iterdir())
    assert places(run("cat", root, "GTopic", "-n", "0", "--json").out) == stored_before(AT)
