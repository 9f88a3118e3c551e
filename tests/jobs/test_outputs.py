"""What an option names as an output is replaced if it is a file, else written into."""

import io
import os
import pty
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.command import Run
from mqlog_jobs.output import picture, whole_file
from mqlog_jobs.output.whole_file import check_file, is_standard_output, is_terminal, replace_file
from support.oracle import Message
from support.stores import Layout, MakeStore

START = 1_700_000_000_000
COMMANDS = {
    "report": ("report", "STORE", "--no-verify", "-o", "FILE"),
    "sql": ("sql", "STORE", "SELECT body FROM T", "--parquet", "FILE"),
    "backlog": ("backlog", "STORE", "--prometheus", "FILE"),
    "forecast": ("forecast", "STORE", "--prometheus", "FILE"),
    "record": ("record", "STORE", "SAMPLES", "--count", "1", "--prometheus", "FILE"),
}


@pytest.fixture
def root(store: MakeStore) -> Path:
    messages = [Message(topic="T", store_timestamp_ms=START + n, queue_id=n % 2) for n in range(20)]
    offsets = {("T", "g"): {0: 4, 1: 10}, ("T", "h"): {0: 10, 1: 10}}
    return store(messages, Layout(commit_log_bytes=1 << 20, group_offsets=offsets)).root


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def of(name: str, store: Path, file: object) -> list[str]:
    words = {"STORE": str(store), "FILE": str(file), "SAMPLES": str(store.parent / "samples")}
    return [words.get(word, word) for word in COMMANDS[name]]


def begins(name: str) -> bytes:
    return {"report": b"<!doctype html>", "sql": b"PAR1"}.get(name, b"# HELP ")


def read_to_end(path: Path, into: list[bytes]) -> None:
    into.append(path.read_bytes())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_fifo_a_link_and_a_mode_stay_and_a_dash_is_standard_output(
    run: Run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    samples = tmp_path / "of-a-forecast"
    if name == "forecast":  # One look has no times: its gauges come from samples.
        assert run("record", root, samples, "--count", "2", "--every", "1ms").code == 0
        monkeypatch.setitem(COMMANDS, name, (*COMMANDS[name], "--samples", str(samples)))
    fifo, link, real = (tmp_path / word for word in ("fifo", "link", "real"))
    os.mkfifo(fifo)
    real.write_text("old")
    real.chmod(0o604)
    link.symlink_to("real")
    told: list[bytes] = []
    reader = threading.Thread(target=read_to_end, args=(fifo, told), daemon=True)
    reader.start()

    into_fifo = run(*of(name, root, fifo))
    reader.join(60)
    through_link = run(*of(name, root, link))
    new = run(*of(name, root, tmp_path / "new"))
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.chdir(tmp_path)
    dashed = run(*of(name, root, "-"))
    out.flush()

    assert [into_fifo.code, through_link.code, new.code, dashed.code] == [0] * 4
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert link.is_symlink()
    written = [told[0], real.read_bytes(), (tmp_path / "new").read_bytes(), out.buffer.getvalue()]  # type: ignore[attr-defined]
    assert [content[:20].startswith(begins(name)) for content in written] == [True] * 4
    assert (mode(real), mode(tmp_path / "new")) == (0o604, 0o640)
    assert not list(tmp_path.glob(".mqlog*")) + list(tmp_path.glob("-"))
    if name == "sql":
        assert {pq.read_table(io.BytesIO(one)).num_rows for one in written} == {20}


def test_a_picture_is_written_as_every_output_is(tmp_path: Path) -> None:
    (tmp_path / "real.svg").touch(0o600)
    (tmp_path / "link.svg").symlink_to("real.svg")

    picture.save(str(tmp_path / "link.svg"), "title", lambda console: console.print("text"))

    assert (tmp_path / "link.svg").is_symlink()
    assert (tmp_path / "real.svg").read_text(encoding="utf-8").startswith("<svg")
    assert mode(tmp_path / "real.svg") == 0o600


def test_a_link_to_nothing_makes_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/new")
    replace_file(tmp_path / "link", "text")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "new").read_text(encoding="utf-8") == "text"
    with pytest.raises(IsADirectoryError):
        check_file(tmp_path / "folder")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match=r"loop"):
        check_file(tmp_path / "loop")


def test_a_descriptor_of_the_process_is_written_to_as_it_is(tmp_path: Path) -> None:
    """As /dev/fd/3 of a shell: opened again, a file would begin anew, and a socket fail."""
    ours, theirs = socket.socketpair()
    with (tmp_path / "file").open("w+b") as file, closing(ours), closing(theirs):
        file.write(b"before ")
        file.flush()
        (tmp_path / "link").symlink_to(f"/proc/self/fd/{file.fileno()}")
        check_file(tmp_path / "link")
        replace_file(tmp_path / "link", "after")
        replace_file(f"/proc/self/fd/{theirs.fileno()}", "sent")
        assert ours.recv(10) == b"sent"
        assert (tmp_path / "file").read_bytes() == b"before after"
        assert not is_standard_output(tmp_path / "link")
        assert is_standard_output("/proc/self/fd/1")
        assert is_standard_output("-")
        assert not is_standard_output("./-")
    with (tmp_path / "file").open("rb") as file, pytest.raises(OSError, match="Bad file"):
        check_file(f"/proc/self/fd/{file.fileno()}")


def test_a_terminal_and_a_socket_with_a_name_stay_what_they_are(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs)
    (tmp_path / "terminal").symlink_to(name)
    assert is_terminal(name)
    assert is_terminal(tmp_path / "terminal")
    assert not is_terminal(tmp_path / "nothing")
    check_file(tmp_path / "terminal")
    replace_file(tmp_path / "terminal", "text\n")
    assert os.read(ours, 100) == b"text\r\n"
    assert stat.S_ISCHR(Path(name).stat().st_mode)
    for end in (ours, theirs):
        os.close(end)
    with closing(socket.socket(socket.AF_UNIX)) as named:
        named.bind(str(tmp_path / "s"))
        with pytest.raises(OSError, match="No such device or address"):
            check_file(tmp_path / "s")
        assert stat.S_ISSOCK((tmp_path / "s").stat().st_mode)


def test_parquet_is_not_written_to_a_terminal(run: Run, root: Path) -> None:
    ours, theirs = pty.openpty()
    done = run(*of("sql", root, os.ttyname(theirs)))
    for end in (ours, theirs):
        os.close(end)
    assert done.code == 2
    assert "is a terminal; name a file" in done.err


def test_a_reader_of_a_fifo_that_goes_ends_the_command(
    run: Run, root: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")

    def look_at_little() -> None:
        with (tmp_path / "fifo").open("rb") as fifo:
            fifo.read(1)

    reader = threading.Thread(target=look_at_little, daemon=True)
    reader.start()
    done = run(*of("report", root, tmp_path / "fifo"))
    reader.join(60)
    assert done.code in {0, 141}  # The page may fit the pipe before its reader is gone.
    assert done.err == ""


def test_a_new_content_is_never_readable_by_more_than_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").touch(0o600)
    modes = []
    opened = os.open

    def watched(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        fd = opened(path, flags, mode, **more)
        modes.append(stat.S_IMODE(os.fstat(fd).st_mode))
        return fd

    monkeypatch.setattr(whole_file.os, "open", watched)
    replace_file(tmp_path / "x", "secret")
    assert modes == [0o600]
    assert mode(tmp_path / "x") == 0o600


def test_standard_output_has_the_page_alone(root: Path, tmp_path: Path) -> None:
    program = "from mqlog_jobs.cli import main; main()"
    words = [sys.executable, "-c", program, "report", str(root), "--no-verify", "-o"]
    for name in ("-", "/proc/self/fd/1"):
        done = subprocess.run(
            [*words, name], capture_output=True, check=True, timeout=120, cwd=tmp_path
        )
        assert done.stdout.startswith(b"<!doctype html>")
        assert done.stdout.rstrip().endswith(b"</html>")
        assert done.stderr.startswith(name.encode() + b": ")


def test_a_report_that_nobody_named_replaces_no_file(
    run: Run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("report", root, "--no-verify").out.startswith("report.html: ")
    (tmp_path / "report.html").write_text("mine")
    done = run("report", root, "--no-verify")
    assert done.code == 2
    assert "-o='report.html': is there already; -o report.html replaces it" in done.err
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == "mine"
    assert run("report", root, "--no-verify", "-o", "report.html").code == 0


def test_gauges_on_standard_output_are_alone_there(run: Run, root: Path) -> None:
    for name in ("backlog", "forecast"):
        done = run(*of(name, root, "-"), "--json")
        assert done.code == 2
        assert "--prometheus='-': choose one of the formats" in done.err
