"""A repository has the history of one store: another one is refused by name, unless it is meant."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.copy.errors import OtherStoreError
from mqstore.copy.point_continues import Accepted
from mqstore.copy.restore_point import restore_point
from mqstore.copy.take_point import take_point
from mqstore.files.points.repository import Repository
from snapshot_copy.copied import SMALL, messages, rows
from snapshot_copy.pointed import at, backing, is_whole, kept_at, rows_of
from support.growing import grow
from support.stores import Laid, lay_out


@pytest.mark.parametrize("count", [3, 30, 31, 60])
@pytest.mark.parametrize("same_path", [True, False])
def test_another_store_is_refused_by_name_unless_it_is_meant(
    tmp_path: Path, count: int, same_path: bool
) -> None:
    laid, _ = kept_at(tmp_path, [5, 30], SMALL)
    place = backing(tmp_path / "repository")
    root = laid.root
    if same_path:
        shutil.rmtree(root)
    else:
        root = tmp_path / "other" / "store"
    changed = [replace(m, store_timestamp_ms=m.store_timestamp_ms + 9) for m in messages(count)]
    lay_out(root, changed, SMALL)
    told = rf"{root}: not the store .* other records .* Point 2 was made of {laid.root}"
    with pytest.raises(OtherStoreError, match=told):
        take_point(root, place)
    assert Repository(place).numbers() == [1, 2]
    take_point(root, place, accepted=Accepted(other_store=True))
    assert rows_of(at(place, 3)) == rows(root)
    take_point(root, place)
    assert is_whole(tmp_path / "repository")


def moved(laid: Laid, tmp_path: Path) -> Path:
    target = tmp_path / "moved" / "store"
    shutil.copytree(laid.root, target)
    shutil.rmtree(laid.root)
    return target


@pytest.mark.parametrize("count", [5, 30, 31])
def test_a_store_that_was_moved_goes_on_where_the_last_point_ends(
    tmp_path: Path, count: int
) -> None:
    laid, _ = kept_at(tmp_path, [count], SMALL)
    grow(laid, messages(60), SMALL)
    root = moved(laid, tmp_path)
    take_point(root, backing(tmp_path / "repository"))
    assert rows_of(at(backing(tmp_path / "repository"), 2)) == rows(root)


def test_a_store_whose_log_expired_behind_the_last_point_goes_on_at_its_path_only(
    tmp_path: Path,
) -> None:
    laid, _ = kept_at(tmp_path, [20], SMALL)
    grow(laid, messages(120), SMALL)
    shutil.copytree(laid.root, tmp_path / "whole")
    for path in sorted((laid.root / "commitlog").iterdir())[:-2]:
        path.unlink()
    shutil.copytree(laid.root, tmp_path / "elsewhere" / "store")
    place = backing(tmp_path / "repository")
    with pytest.raises(OtherStoreError, match="no byte in common with the last point"):
        take_point(tmp_path / "elsewhere" / "store", place)
    take_point(laid.root, place)
    assert Repository(place).numbers() == [1, 2]


def test_a_log_whose_end_was_cut_by_a_recovery_goes_on_at_its_path(tmp_path: Path) -> None:
    laid, _ = kept_at(tmp_path, [40], SMALL)
    place = backing(tmp_path / "repository")
    restore_point(at(place, 1), tmp_path / "copy")
    shutil.rmtree(laid.root)
    rewritten = [*messages(25), *(replace(m, body=m.body + b"!") for m in messages(45)[25:])]
    lay_out(laid.root, rewritten, SMALL)
    take_point(laid.root, place)
    assert rows_of(at(place, 2)) == rows(laid.root)
    # A restored point that went its own way is a second history.
    shutil.copytree(laid.root, tmp_path / "twin" / "store")
    grow(laid, [*rewritten, *messages(60)[45:]], SMALL)
    take_point(laid.root, place)
    with pytest.raises(OtherStoreError):
        take_point(tmp_path / "copy", place)


def test_a_point_without_messages_is_gone_on_from_by_any_store(tmp_path: Path) -> None:
    kept_at(tmp_path, [0], SMALL)
    other = lay_out(tmp_path / "other" / "store", messages(9), SMALL)
    take_point(other.root, backing(tmp_path / "repository"))
    assert Repository(backing(tmp_path / "repository")).numbers() == [1, 2]
