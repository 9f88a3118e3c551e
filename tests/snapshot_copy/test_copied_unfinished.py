"""A copy of a store in which a commit is not finished."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mqstore.check import check
from mqstore.copy.copy_store import copy_store
from mqstore.errors import StoreLockedError
from mqstore.files.base import durable
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.txn import intent, ledger
from mqstore.write.errors import CommitInDoubtError
from snapshot_copy.copied import rows
from support import writing
from support.writing import append


def test_a_commit_that_is_not_finished_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "s", writing.rows(3), **writing.SMALL)
    before, replace = rows(tmp_path / "s"), durable.replace

    def replace_but_the_ledger(source: str, target: str) -> None:
        if target.endswith("jobs.json"):
            raise OSError("injected")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "replace", replace_but_the_ledger)
        with pytest.raises(CommitInDoubtError):
            append(tmp_path / "s", writing.rows(4))
    copy_store(tmp_path / "s", tmp_path / "copy")
    assert rows(tmp_path / "copy") == before
    assert check(tmp_path / "copy") == []
    assert len(ledger.entries(StoreDir.at(tmp_path / "copy"))) == 1


def test_a_commit_that_is_hidden_is_not_told_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between its line in the ledger and its end: the copy has neither, and takes it."""
    key: Mapping[str, Any] = {"txn_app_id": "loader", "txn_version": 2}
    append(tmp_path / "s", writing.rows(3), **writing.SMALL, txn_app_id="loader", txn_version=1)
    with monkeypatch.context() as patch:
        patch.setattr(intent, "remove", _fail)
        with pytest.raises(CommitInDoubtError):
            append(tmp_path / "s", writing.rows(4), **key)
    assert ledger.last_version(StoreDir.at(tmp_path / "s"), "loader") == 2
    copy_store(tmp_path / "s", tmp_path / "copy")
    assert ledger.last_version(StoreDir.at(tmp_path / "copy"), "loader") == 1
    assert append(tmp_path / "copy", writing.rows(4), **key).messages == 4
    append(tmp_path / "s", writing.rows(1))
    copy_store(tmp_path / "s", tmp_path / "whole")
    assert ledger.last_version(StoreDir.at(tmp_path / "whole"), "loader") == 2


def test_a_commit_that_a_broker_has_entered_is_told_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published, and then a broker came and went: its messages are copied, so it must be known."""
    key: Mapping[str, Any] = {"txn_app_id": "loader", "txn_version": 2}
    append(tmp_path / "s", writing.rows(3), **writing.SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "record", _fail)
        with pytest.raises(CommitInDoubtError):
            append(tmp_path / "s", writing.rows(4), **key)
    (tmp_path / "s" / "abort").unlink()  # The broker stopped cleanly.
    copy_store(tmp_path / "s", tmp_path / "copy")
    assert sum(map(len, rows(tmp_path / "copy").values())) == 7
    assert append(tmp_path / "copy", writing.rows(4), **key).is_repeated
    assert append(tmp_path / "s", writing.rows(4), **key).is_repeated


def _fail(*_: object) -> None:
    raise OSError("injected")


def test_a_commit_that_ends_meanwhile_is_waited_for_by_whoever_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "s", writing.rows(3), **writing.SMALL)
    link, left = durable.create, [1]

    def append_first(path: str) -> int:
        if left and "/copy/" in path:
            left.clear()
            append(tmp_path / "s", writing.rows(1))
        return link(path)

    monkeypatch.setattr(durable, "create", append_first)
    with pytest.raises(StoreLockedError, match="copy it again"):
        copy_store(tmp_path / "s", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    copy_store(tmp_path / "s", tmp_path / "copy")
    assert rows(tmp_path / "copy") == rows(tmp_path / "s")
