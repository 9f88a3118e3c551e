"""CommitLog files that are missing, or that two folders have: as a broker does, or by name."""

import logging
import shutil
from pathlib import Path

import pytest

import mqlog
from mqstore.errors import CorruptStoreError
from support.oracle import Message
from support.stores import Laid, Layout, lay_out

LAYOUT = Layout(commit_log_bytes=4096, group_offsets={("T", "G"): {0: 5}})


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    return lay_out(tmp_path / "store", [Message(body=bytes(500)) for _ in range(60)], LAYOUT)


@pytest.fixture
def folders(laid: Laid, tmp_path: Path) -> list[Path]:
    """Two folders, with every other file in each."""
    own, other = laid.root / "commitlog", tmp_path / "disk2"
    other.mkdir()
    for path in sorted(own.iterdir())[1::2]:
        shutil.move(path, other / path.name)
    return [own, other]


def counted(laid: Laid, folders: list[Path], **options: object) -> int:
    place = mqlog.open(str(laid.root), store_path_commit_log=[str(folder) for folder in folders])
    return int(place.scan("T", **options).to_table().num_rows)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("size", [0, 4096])
def test_a_file_that_was_made_ahead_in_another_folder_is_passed_over(
    laid: Laid, folders: list[Path], size: int, first: int
) -> None:
    for number, path in enumerate(sorted([*folders[0].iterdir(), *folders[1].iterdir()])):
        if number in (0, 3, 5):
            (folders[path.parent == folders[0]] / path.name).write_bytes(bytes(size))
    assert counted(laid, folders[:: -1 if first else 1]) == 60


def test_two_files_with_records_of_one_name_are_an_error(laid: Laid, folders: list[Path]) -> None:
    path = sorted(folders[0].iterdir())[0]
    shutil.copy(path, folders[1] / path.name)
    with pytest.raises(CorruptStoreError, match="has the same name, and both have records"):
        counted(laid, folders)


def test_a_hole_in_the_log_names_what_reads_the_rest(laid: Laid) -> None:
    sorted((laid.root / "commitlog").iterdir())[1].unlink()
    place = mqlog.open(str(laid.root))
    for options in ({}, {"fail_on_data_loss": False}):
        with pytest.raises(CorruptStoreError, match="onCorrupt=skip"):
            place.scan("T", **options).to_table()
    read = place.scan("T", on_corrupt="skip").to_table().num_rows
    assert 0 < read < 60


def test_the_backlog_needs_a_hole_in_the_log_for_times_only(
    laid: Laid, caplog: pytest.LogCaptureFixture
) -> None:
    first, hole = sorted((laid.root / "commitlog").iterdir())[:2]
    del first
    hole.unlink()
    with caplog.at_level(logging.WARNING):
        found = mqlog.open(str(laid.root)).table("backlog").to_table().to_pylist()
    (row,) = found
    assert (row["lag"], row["brokerOffset"]) == (55, 60)
    assert "as their times, is null" in caplog.text
