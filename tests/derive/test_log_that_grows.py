"""A walk over the log of a broker that runs: a record under way, or new since, is no damage."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.derive import log_sections
from mqstore.derive.log_sections import FileWalk
from mqstore.derive.resync import Resync
from mqstore.files.base.store_dir import open_dir
from mqstore.files.log.entry_log import open_log
from support.oracle import Message
from support.stores import Laid, lay_out

FIRST = 4  # The first record that is not there, or not whole, as the walk comes by.


def laid_out(root: Path) -> Laid:
    return lay_out(root, [Message(body=b"%03d" % n * 9) for n in range(8)])


def walked(root: Path) -> tuple[int, list[tuple[int, int]]]:
    """Walk over the only file; return how many units it has, and where damages lie."""
    with open_log(open_dir(root)) as log:
        walk = FileWalk(log, log.files.files[0])
        count = sum(len(section.units) for section in walk.sections())
        return count, [(one.start, one.end) for one in walk.damages]


def held_back(laid: Laid, kept: int) -> Callable[[], None]:
    """Take a record but its first ``kept`` bytes, and what follows; return what undoes it."""
    path, start = laid.file_of(laid.messages[FIRST])
    whole = path.read_bytes()

    def write(data: bytes) -> None:
        with path.open("r+b") as file:
            file.write(data)

    torn = whole[: start + kept]
    write(torn + bytes(len(whole) - len(torn)))
    return lambda: write(whole)


@pytest.mark.parametrize("kept", [0, 4, 8, 60, 100])
def test_records_that_were_written_since_the_walk_came_by_are_no_damage(
    kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = laid_out(tmp_path)
    write = held_back(laid, kept)
    search = Resync.after

    def after(resync: Resync, *args: int) -> int | None:
        write()
        return search(resync, *args)

    monkeypatch.setattr(Resync, "after", after)
    assert walked(laid.root) == (8, [])


def test_a_record_that_the_search_saw_before_it_was_whole_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read of many bytes may have a later record and not yet the one before it."""
    laid = laid_out(tmp_path)
    write = held_back(laid, 0)
    found: list[int | None] = []
    search = Resync.after

    def after(resync: Resync, *args: int) -> int | None:
        write()
        if not found:
            found.append(laid.messages[FIRST + 1].physical_offset)
            return found[0]
        return search(resync, *args)

    monkeypatch.setattr(Resync, "after", after)
    assert walked(laid.root) == (8, [])


def test_the_last_record_is_looked_at_again_while_a_broker_may_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = laid_out(tmp_path)
    write = held_back(laid, 60)
    monkeypatch.setattr(log_sections.time, "sleep", lambda _: write())
    assert walked(laid.root) == (8, [])


def test_a_last_record_that_stays_torn_is_damage(tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    held_back(laid, 60)
    _, start = laid.file_of(laid.messages[FIRST])
    assert walked(laid.root) == (FIRST, [(start, start + 1)])
