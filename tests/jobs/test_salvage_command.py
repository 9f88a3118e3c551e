"""`mqlog salvage`: what it says, as text and as JSON, and its exit codes."""

from pathlib import Path

from jobs.command import Run
from mqstore.check import check
from support.oracle import Message
from support.stores import Laid, Layout, lay_out

SIZE = 4096


def laid_out(folder: Path) -> Laid:
    layout = Layout(commit_log_bytes=SIZE, index_units=400)
    return lay_out(folder / "store", [Message(body=bytes(300)) for _ in range(40)], layout)


def hole(laid: Laid) -> None:
    path, position = laid.file_of(laid.messages[2])
    data = bytearray(path.read_bytes())
    data[position + 20 : position + 140] = bytes(120)
    path.write_bytes(data)


def test_a_store_of_which_nothing_is_lost_ends_with_0(run: Run, tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    done = run("salvage", laid.root, tmp_path / "new")
    assert (done.code, done.err) == (0, "")
    assert "40 messages in 1 queue are in" in done.out
    assert "lost" not in done.out


def test_losses_are_told_and_end_with_1(run: Run, tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    hole(laid)
    done = run("salvage", laid.root, tmp_path / "new")
    assert (done.code, done.err) == (1, "")
    assert "lost: 1 message between others of their queues" in done.out
    assert f"all physical offsets are {2 * SIZE:,} higher" in done.out
    text = (tmp_path / "new" / ".mqlog" / "salvage" / "report.txt").read_text()
    assert "no whole record has these queue offsets" in text
    assert check(tmp_path / "new") == []


def test_a_disk_of_a_dledger_group_says_that_all_places_are_others(
    run: Run, tmp_path: Path
) -> None:
    layout = Layout(commit_log_bytes=SIZE, index_units=400, dledger="n0")
    laid = lay_out(tmp_path / "store", [Message(body=bytes(300)) for _ in range(40)], layout)
    done = run("salvage", laid.root, tmp_path / "new")
    assert done.code == 0
    assert "each record has another physical offset, and another message id" in done.out
    assert check(tmp_path / "new") == []


def test_the_result_is_a_row_of_json(run: Run, tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    hole(laid)
    (row,) = run("salvage", laid.root, tmp_path / "new", "--json", "--file-size", SIZE).rows
    assert row["messages"] == row["records"] == 39
    assert (row["lostMessages"], row["movedBy"], row["low"]) == (1, 2 * SIZE, SIZE)
    assert row["report"] == f"{tmp_path / 'new'}/.mqlog/salvage"


def test_a_directory_that_is_there_is_one_line_and_2(run: Run, tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    done = run("salvage", laid.root, tmp_path)
    assert done.code == 2
    assert f"option DEST='{tmp_path}': is there already" in done.err
    assert len(done.err.splitlines()) == 1
