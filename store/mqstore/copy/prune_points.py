"""Points that go, and the objects that no other point needs."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mqstore.copy.keep_rules import KeepRule, kept
from mqstore.copy.point_change import PointChange
from mqstore.errors import CorruptStoreError
from mqstore.files.points.backing import Backing
from mqstore.files.points.manifest import PointHead
from mqstore.files.points.repository import Repository, WantedPoint


@dataclass(frozen=True, slots=True)
class Pruned:
    """The points that went and those that stay, oldest first."""

    gone: tuple[PointHead, ...]
    stay: tuple[PointHead, ...]


def prune_points(backing: Backing, rules: Sequence[KeepRule], *, dry_run: bool = False) -> Pruned:
    """Remove the points that the rules do not keep; with ``dry_run`` only say which.

    A byte that a point which stays needs is never removed. Raises NotARepositoryError,
    StoreLockedError, CorruptStoreError for a damaged manifest (nothing is removed then),
    StoreUnavailableError, OSError.
    """
    if dry_run:
        return _sorted(Repository(backing), rules)
    with PointChange(backing) as change:
        found = _sorted(change.repository, rules)
        change.drop([head.number for head in found.gone])
    return found


def prune_named(backing: Backing, named: Collection[int], *, dry_run: bool = False) -> Pruned:
    """Remove the points of those numbers, also the newest; with ``dry_run`` only say which.

    A point whose manifest is damaged goes too, and is not among the result. Raises as
    ``prune_points``, PointNotFoundError for a number that is no point.
    """
    if dry_run:
        return _chosen(Repository(backing), named)
    with PointChange(backing) as change:
        found = _chosen(change.repository, named)
        change.drop(sorted(set(named)))
    return found


def _chosen(repository: Repository, named: Collection[int]) -> Pruned:
    heads: list[PointHead] = []
    gone = {repository.find(WantedPoint("number", number, str(number))) for number in named}
    for number in repository.numbers():
        try:
            heads.append(repository.manifest(number).head)
        except CorruptStoreError:
            if number not in gone:
                raise
    return _parted(heads, {head.number for head in heads} - gone)


def _sorted(repository: Repository, rules: Sequence[KeepRule]) -> Pruned:
    # Whole manifests: a damaged one is an error before anything is removed.
    heads = [repository.manifest(number).head for number in repository.numbers()]
    return _parted(heads, kept(heads, rules, time.time_ns() // 1_000_000))


def _parted(heads: Sequence[PointHead], stays: Collection[int]) -> Pruned:
    return Pruned(
        tuple(head for head in heads if head.number not in stays),
        tuple(head for head in heads if head.number in stays),
    )
