"""The root of a store: what a path that is none is told."""

from pathlib import Path

import pytest

from mqstore.errors import NotAStoreError
from mqstore.files.store_dir import open_dir
from oracle import Message
from stores import lay_out


def test_a_store_without_its_commit_log_is_told_both_ways_to_name_it(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    (laid.root / "commitlog").rename(tmp_path / "elsewhere")
    with pytest.raises(NotAStoreError, match=r"storePathCommitLog \(.*: --commit-log, once"):
        open_dir(laid.root)
    assert open_dir(laid.root, (str(tmp_path / "elsewhere"),))
