"""Runs that change a repository or restore a point, and what must be so whenever one was killed."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.copy.hold_points import Budget, guard_once
from mqstore.copy.keep_rules import KeepRule
from mqstore.copy.prune_points import prune_points
from mqstore.copy.take_point import take_point
from mqstore.files.base import durable
from mqstore.files.points.repository import Repository
from snapshot_copy.copied import SMALL, messages, rows
from snapshot_copy.pointed import at, backing, files, is_whole, kept_at, needed, restored, rows_of
from support.growing import grow
from support.stores import lay_out

COUNTS = [5, 12, 18]
ALL = [KeepRule(10**12, 0)]
NONE = [KeepRule(1, 0)]

Act = Callable[[Path], object]


def _by_bytes(root: Path) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link", source, None, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "link", refuse)
        take_point(root / "store", backing(root / "repository"))


ACTS: dict[str, Act] = {
    "snapshot": lambda root: take_point(root / "store", backing(root / "repository")),
    "first-snapshot": lambda root: take_point(root / "store", backing(root / "new")),
    "snapshot-by-bytes": _by_bytes,
    "guard": lambda root: guard_once(
        root / "store", backing(root / "repository"), Budget(-1), told=lambda _: None
    ),
    "prune": lambda root: prune_points(backing(root / "repository"), NONE),
    "restore": lambda root: restored(root / "repository", 2, root / "restored"),
}


def prepared(root: Path) -> None:
    """Lay out a store, with a repository of three points, and let it grow."""
    laid, _ = kept_at(root, COUNTS, SMALL)
    grow(laid, messages(25), SMALL)


def check_after(root: Path, then: dict[int, object]) -> None:
    """All points that there are read as they did; the next runs go on and leave nothing over."""
    for name in ("repository", "new"):
        repository = root / name
        if not repository.exists():
            continue
        if (repository / "mqlog-repository").exists():
            assert is_whole(repository)
            for number in Repository(backing(repository)).numbers():
                found = rows_of(at(backing(repository), number))
                assert found == (then[number] if name == "repository" else then[4])
        head = take_point(root / "store", backing(repository))
        assert rows_of(at(backing(repository), head.number)) == then[4]
        assert files(repository) == needed(repository)
        prune_points(backing(repository), ALL)
        assert files(repository) == needed(repository)
        assert is_whole(repository)
    if (root / "restored").exists():
        assert rows(root / "restored") == then[2]
        shutil.rmtree(root / "restored")
    if 2 in Repository(backing(root / "repository")).numbers():
        assert rows(restored(root / "repository", 2, root / "restored")) == then[2]
        assert not (root / "restored.partial").exists()


def states(root: Path) -> dict[int, object]:
    """What a read of each point gives; 4 is the store as ``prepared`` leaves it."""
    found = {
        n: rows(lay_out(root / f"s{n}", messages(c), SMALL).root) for n, c in enumerate(COUNTS, 1)
    }
    return found | {4: rows(lay_out(root / "s4", messages(25), SMALL).root)}
