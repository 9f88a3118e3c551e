"""Points that go, and the objects that no other point needs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from mqstore.copy.keep_rules import KeepRule, kept
from mqstore.copy.point_change import PointChange
from mqstore.files.points.backing import Backing
from mqstore.files.points.manifest import PointHead
from mqstore.files.points.repository import Repository


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


def _sorted(repository: Repository, rules: Sequence[KeepRule]) -> Pruned:
    # Whole manifests: a damaged one is an error before anything is removed.
    heads = [repository.manifest(number).head for number in repository.numbers()]
    stays = kept(heads, rules, time.time_ns() // 1_000_000)
    return Pruned(
        tuple(head for head in heads if head.number not in stays),
        tuple(head for head in heads if head.number in stays),
    )
