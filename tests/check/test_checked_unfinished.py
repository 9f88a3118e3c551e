"""The checker on stores whose commit was killed."""

from pathlib import Path

import pytest

from check.damages import errors, write
from mqstore.check import check
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.txn import intent
from mqstore.write.recover import RecoverSettings, recover
from support import killed_commit
from support.writing import SMALL, append, rows


@pytest.mark.parametrize("state", ["decided", "published"])
def test_a_commit_that_is_not_finished_is_a_warning(tmp_path: Path, state: str) -> None:
    root = tmp_path / "store"
    append(root, rows(5), **SMALL)
    killed_commit.leave(root, state)
    found = check(root)
    assert {finding.severity for finding in found} == {"warning"}
    told = {finding.file: finding.problem for finding in found}
    assert told[".mqlog/txn/pending.json"].startswith(
        f"commit killed version 7 is {state}, and not finished"
    )
    if state == "published":
        assert told["abort"].startswith("a commit of mqlog")
    recover(root, RecoverSettings())
    assert check(root) == []


def test_a_note_of_a_commit_that_nobody_can_read_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "store"
    append(root, rows(5), **SMALL)
    killed_commit.leave(root, "decided")
    path = root / ".mqlog" / "txn" / "pending.json"
    path.write_bytes(path.read_bytes()[:-2])
    (error,) = errors(root)
    assert error.file == ".mqlog/txn/pending.json"
    assert "not what mqlog writes there" in error.problem


@pytest.mark.parametrize("interlock", [False, True])
def test_hidden_bytes_of_a_commit_are_no_damage(tmp_path: Path, interlock: bool) -> None:
    """From where it begins to write anything may lie, until it is finished."""
    root = tmp_path / "store"
    append(root, rows(5), **SMALL)
    killed_commit.leave(root, "decided")
    pending = intent.load(StoreDir.at(root))
    assert pending is not None
    (path,) = (root / "commitlog").iterdir()
    write(path, pending.tail, b"\0\0\0\xc8\0\xa3\x20\xa7" + bytes(range(192)))
    if interlock:
        (root / "commitlog" / f"{'9' * 20}.mqlog-commit-in-progress").write_bytes(b"!")
    assert {finding.severity for finding in check(root)} == {"warning"}
    write(path, 4, b"?")  # What lies before it is damage all the same.
    assert errors(root)
