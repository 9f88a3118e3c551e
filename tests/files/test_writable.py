"""Which stores are refused to a writer, and what it is told."""

import os
from pathlib import Path

import pytest

from mqstore.errors import CorruptStoreError, UnsupportedStoreError
from mqstore.files.base.store_dir import check_writable, open_dir
from support.oracle import Message
from support.stores import Laid, lay_out


def three_files(tmp_path: Path) -> Laid:
    return lay_out(tmp_path / "store", [Message(body=bytes(400)) for _ in range(20)])


def test_a_file_that_was_cut_short_is_called_truncated(tmp_path: Path) -> None:
    laid = three_files(tmp_path)
    check_writable(open_dir(laid.root))
    os.truncate(laid.root / "commitlog" / f"{4096:020d}", 1000)
    with pytest.raises(CorruptStoreError, match=r"1000 bytes long, the others 4096: truncated"):
        check_writable(open_dir(laid.root))


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_file_that_is_lost_may_lie_in_another_folder(tmp_path: Path, is_empty: bool) -> None:
    laid = three_files(tmp_path)
    lost = laid.root / "commitlog" / f"{4096:020d}"
    lost.unlink()
    if is_empty:
        lost.touch()
    with pytest.raises(UnsupportedStoreError, match=r"MULTI_PATH.*no file, or an empty one") as e:
        check_writable(open_dir(laid.root))
    assert "storePathCommitLog names several" in e.value.message()


def test_a_store_of_several_folders_is_read_and_not_written_to(tmp_path: Path) -> None:
    laid = three_files(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    store = open_dir(laid.root, (str(laid.root / "commitlog"), str(other)))
    with pytest.raises(UnsupportedStoreError, match=r"MULTI_PATH.*does not write to them"):
        check_writable(store)
