"""Repositories for tests: a store that grows, its points, and what reads of them give."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from mqstore.copy.check_points import check_points
from mqstore.copy.restore_point import restore_point
from mqstore.copy.take_point import take_point
from mqstore.files.points.backing import Backing, LocalBacking
from mqstore.files.points.folder import PointFolder, point_folder
from mqstore.files.points.manifest import PointHead
from mqstore.files.points.repository import Repository, WantedPoint
from mqstore.read.at_rest import open_at_rest
from mqstore.request.repositories import point_at
from snapshot_copy.copied import Rows, messages, rows_in
from support.growing import grow
from support.stores import Laid, Layout, lay_out


def backing(folder: Path) -> LocalBacking:
    return LocalBacking(str(folder))


def at(place: Backing, number: int) -> PointFolder:
    return point_folder(
        place, WantedPoint("number", number, str(number)), f"{place.address}@{number}"
    )


def rows_of(point: PointFolder) -> Rows:
    """What a read of a point gives, without a restore."""
    with closing(open_at_rest(point).bounds()) as source:
        return rows_in(source.snapshot())


def all_of(repository: Path) -> PointFolder:
    found = point_at(f"{repository}@all", {})
    assert found is not None
    return found


def in_any_point(repository: Path) -> Rows:
    """What the points have, read one by one."""
    found: dict[tuple[str, int], set[tuple[int, int, bytes]]] = {}
    place = backing(repository)
    for number in Repository(place).numbers():
        for queue, held in rows_of(at(place, number)).items():
            found.setdefault(queue, set()).update(held)
    return {queue: sorted(held) for queue, held in found.items()}


def kept_at(folder: Path, counts: Sequence[int], layout: Layout) -> tuple[Laid, list[PointHead]]:
    """Lay out a store below ``folder``, and make a point each time that it has so many messages."""
    laid = lay_out(folder / "store", messages(counts[0]), layout)
    heads = [take_point(laid.root, backing(folder / "repository"))]
    for count in counts[1:]:
        grow(laid, messages(count), layout)
        heads.append(take_point(laid.root, backing(folder / "repository")))
    return laid, heads


def files(repository: Path) -> set[str]:
    """All files of a repository but its lock."""
    found = {str(p.relative_to(repository)) for p in repository.rglob("*") if p.is_file()}
    return found - {"lock"}


def needed(repository: Path) -> set[str]:
    """The files that its points need, and its mark."""
    found = Repository(backing(repository))
    numbers = found.numbers()
    objects = {f"objects/{name}" for n in numbers for name in found.manifest(n).objects()}
    return objects | {f"points/{n:08d}" for n in numbers} | {"mqlog-repository"}


def is_whole(repository: Path) -> bool:
    return check_points(Repository(backing(repository))) == []


def restored(repository: Path, number: int, target: Path) -> Path:
    restore_point(at(backing(repository), number), target)
    return target
