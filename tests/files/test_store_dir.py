"""The root of a store: what a path that is none is told."""

from pathlib import Path

import pytest

from mqstore.errors import NotAStoreError, UnsafePathError
from mqstore.files.base.directory import Directory
from mqstore.files.base.store_dir import open_dir
from mqstore.files.copy_target import Copy
from support.oracle import Message
from support.stores import lay_out


def test_a_store_without_its_commit_log_is_told_both_ways_to_name_it(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    (laid.root / "commitlog").rename(tmp_path / "elsewhere")
    with pytest.raises(NotAStoreError, match=r"storePathCommitLog \(.*: --commit-log, once"):
        open_dir(laid.root)
    assert open_dir(laid.root, (str(tmp_path / "elsewhere"),))


def test_a_commit_log_that_is_a_link_is_told_the_two_ways_to_name_it(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    elsewhere = tmp_path / "elsewhere"
    (laid.root / "commitlog").rename(elsewhere)
    (laid.root / "commitlog").symlink_to(elsewhere)
    with pytest.raises(UnsafePathError) as raised:
        open_dir(laid.root)
    assert raised.value.message() == (
        f"{laid.root}/commitlog: a symbolic link; to read the store, name {elsewhere} in "
        "storePathCommitLog (with the command mqlog: --commit-log); to write to it, mount that "
        "folder there (mount --bind)"
    )
    assert open_dir(laid.root, (str(elsewhere),)).commit_log == (Directory(str(elsewhere)),)


def told(path: Path) -> str:
    with pytest.raises(NotAStoreError) as raised:
        open_dir(path)
    return raised.value.message()


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index", "config"])
def test_a_part_of_a_store_is_told_the_store(tmp_path: Path, part: str) -> None:
    root = lay_out(tmp_path / "store", [Message()]).root
    assert told(root / part).endswith(f"no folder commitlog in it; did you mean {root}?")
    (root / "commitlog").rename(tmp_path / "elsewhere")
    if part != "commitlog":
        assert "did you mean" not in told(root / part)


def test_the_parent_of_one_store_is_told_it(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "broker-a", [Message()]).root
    (tmp_path / "logs").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("hello")
    assert told(tmp_path).endswith(f"did you mean {root}?")
    lay_out(tmp_path / "broker-b", [Message()])
    assert told(tmp_path).endswith(f"did you mean {tmp_path}/*?")


def test_the_folder_of_several_brokers_is_told_the_glob_of_their_stores(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "broker-a" / "store", [Message()]).root
    assert told(tmp_path).endswith(f"did you mean {root}?")
    lay_out(tmp_path / "broker-b" / "store", [Message()])
    assert told(tmp_path).endswith(f"did you mean {tmp_path}/*/store?")


def test_of_many_names_none_is_guessed(tmp_path: Path) -> None:
    lay_out(tmp_path / "broker-a", [Message()])
    for number in range(100):
        (tmp_path / f"{number}").mkdir()
    assert "did you mean" not in told(tmp_path)
    (tmp_path / "0").rmdir()
    assert "did you mean" in told(tmp_path)


def test_a_copy_that_is_being_made_is_no_store(tmp_path: Path) -> None:
    with Copy(str(tmp_path / "copy")) as copy:
        copy.make_directory("commitlog")
        assert told(tmp_path / "copy.partial").endswith("is made in it, or was not finished")
    assert open_dir(tmp_path / "copy")
