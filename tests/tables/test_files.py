"""The table of files against the directory, whole and with something wrong in it."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from mqstore.tables import files
from mqstore.tables.choice import open_root
from mqstore.write.recover import RecoverSettings, recover
from support import killed_commit, parts, strategies
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore, lay_out
from support.writing import SMALL, append, rows


def read(root: Path) -> dict[str, dict[str, Any]]:
    planned = files.plan(open_root(str(root), broker_name="b"))
    return {row["path"]: row for row in parts.rows("files", planned)}


def problems(root: Path) -> dict[str, str]:
    return {path: row["problem"] for path, row in read(root).items() if row["problem"]}


def on_disk(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): path.stat().st_size
        for path in root.rglob("*")
        if path.is_file()
    }


def test_golden_files_are_all_there_and_nothing_is_wrong(golden: tuple[str, Path]) -> None:
    found = read(golden[1])
    assert {path: row["sizeBytes"] for path, row in found.items()} == on_disk(golden[1])
    assert [row["problem"] for row in found.values() if row["problem"]] == []
    kinds = {row["kind"] for row in found.values()}
    assert kinds >= {"commitlog", "consumequeue", "index", "config", "checkpoint", "lock"}


@given(messages=strategies.batches(max_size=15), layout=strategies.layouts())
def test_files_are_written_as_far_as_messages_were_laid_out(
    messages: list[Message], layout: Layout, tmp_path_factory: pytest.TempPathFactory
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store"), messages, layout)
    found = read(laid.root)
    assert {path: row["sizeBytes"] for path, row in found.items()} == on_disk(laid.root)
    for path, row in found.items():
        if row["kind"] == "commitlog":
            assert row["startOffset"] == int(Path(path).name)
            end = laid.high - row["startOffset"]
            assert row["wrotePosition"] == min(max(end, 0), row["sizeBytes"])
        elif row["kind"] == "consumequeue":
            _, topic, queue_id, name = path.rsplit("/", 3)
            high = laid.bounds[topic, int(queue_id)][1] * 20
            assert row["wrotePosition"] == min(high - int(name), row["sizeBytes"])
    assert problems(laid.root) == {}


@pytest.fixture
def broken(tmp_path: Path) -> Laid:
    return lay_out(tmp_path / "store", [Message(body=bytes(3000)) for _ in range(3)])


def test_what_a_broker_would_refuse_is_told(broken: Laid) -> None:
    root = broken.root
    log, queue = root / "commitlog", root / "consumequeue" / "T" / "0"
    names = sorted(path.name for path in log.iterdir())
    (log / names[1]).unlink()
    (log / "note.txt").write_text("x")
    (log / f"{10**6:020d}").touch()
    (log / f"{10**7:020d}").symlink_to(log / names[0])
    (queue / f"{320:020d}").write_bytes(bytes(320))
    (queue / f"{640:020d}").write_bytes(bytes(20))
    (root / "config" / "topics.json").write_text("{")
    (root / "config" / "delayOffset.json").write_text("[]")
    (root / "index" / "odd").touch()
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(b"x")
    found = {path.removeprefix("commitlog/"): told for path, told in problems(root).items()}
    beginnings = {
        names[2]: "bytes 4096 to 8192 before it are missing",
        "note.txt": "not named after a position",
        f"{10**6:020d}": "empty",
        f"{10**7:020d}": "a symbolic link",
        f"consumequeue/T/0/{320:020d}": "all zeros",
        f"consumequeue/T/0/{640:020d}": "the others have 320 bytes",
        "config/topics.json": "a broker cannot use it and reads topics.json.bak",
        "config/delayOffset.json": f"{root}/config/delayOffset.json at byte 0",
        "index/odd": "not named after a time",
        "abort": "the store was not closed",
        "checkpoint": "shorter than its 48 bytes",
    }
    assert found.keys() == beginnings.keys()
    for path, beginning in beginnings.items():
        assert found[path].startswith(beginning), path


def test_links_and_foreign_names_are_told_and_not_followed(broken: Laid, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    queues = broken.root / "consumequeue"
    (queues / "Linked").symlink_to(outside)
    (queues / "T" / "1").symlink_to(outside)
    (queues / "T" / "x").mkdir()
    (broken.root / "odd").mkdir()
    Path(os.fsdecode(os.fsencode(broken.root) + b"/odd/\xff")).touch()
    found = read(broken.root)
    assert "secret" not in "".join(found)
    assert found["consumequeue/Linked"]["problem"].startswith("a symbolic link")
    assert found["consumequeue/T/1"]["problem"].startswith("no queue of a topic")
    assert found["consumequeue/T/x"]["problem"].startswith("no queue of a topic")
    assert "odd/�" in found


def test_ends_are_not_looked_for_unless_asked_for(store: MakeStore) -> None:
    (part, *_) = files.plan(open_root(str(store([Message()]).root)))
    (batch,) = part.batches(["path", "sizeBytes"])
    assert batch.to_pylist()[0]["wrotePosition"] is None


@pytest.mark.parametrize("state", ["decided", "published"])
def test_an_abort_of_our_own_says_what_it_is(tmp_path: Path, state: str) -> None:
    root = tmp_path / "store"
    append(root, rows(5), **SMALL)
    killed_commit.leave(root, state)
    found = problems(root)
    if state == "published":  # Decided is a commit before its abort is made.
        assert "the next write finishes it" in found["abort"]
    recover(root, RecoverSettings())
    assert problems(root) == {}
