"""The guard: points again and again, and the oldest go once the repository holds too much.

A repository on the disk of the store holds full files by hard links. The broker that deletes such a
file frees nothing, as long as a point has it: the bytes that only the repository still holds are
what the budget is of.
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mqstore.copy.point_change import PointChange
from mqstore.copy.point_continues import NOTHING_ACCEPTED, Accepted
from mqstore.copy.take_point import add_point, check_apart_from
from mqstore.errors import NoSpaceError
from mqstore.files.base.store_dir import StoreDir, open_dir
from mqstore.files.points.backing import Backing, LocalBacking
from mqstore.files.points.manifest import PointHead
from mqstore.files.points.repository import OBJECT_FOLDERS, object_path

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Guarded:
    """A point of the guard, the bytes that only the repository holds, and points that went.

    The bytes are None where there is no budget.
    """

    head: PointHead
    held_bytes: int | None
    dropped: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Budget:
    """How many bytes a repository may hold that no store has any more; None: any number.

    With ``makes_room`` points also go where the disk has no room for the next one.
    """

    most_bytes: int | None = None
    makes_room: bool = False


def held_bytes(backing: Backing) -> int:
    """Return the bytes of disk that would be free without the repository."""
    return sum(
        backing.held_bytes(object_path(f"{folder.name}/{entry.name}"))
        for folder in backing.entries(OBJECT_FOLDERS)
        if folder.is_directory
        for entry in backing.entries(f"{OBJECT_FOLDERS}/{folder.name}")
    )


def guard_once(
    root: str | os.PathLike[str],
    backing: Backing,
    budget: Budget,
    *,
    commit_log: Sequence[str] = (),
    accepted: Accepted = NOTHING_ACCEPTED,
    told: Callable[[str], None] = _LOG.warning,
) -> Guarded:
    """Add a point; remove the oldest points while the repository holds more than the budget.

    To make room for the point, the oldest that hold bytes alone go first: where a number of bytes
    is given, and else if the repository lies on the disk of the store. The newest point stays.
    ``told`` gets a line for each point that goes. Raises as ``take_point``.
    """
    place = open_dir(root, commit_log, in_rocksdb=True)
    check_apart_from(backing, place)
    with PointChange(backing, makes=True) as change:
        limited = budget.most_bytes is not None
        may_drop = budget.makes_room and (limited or _is_beside(backing, place))
        holdings = _Holdings(change, backing, budget.most_bytes, told)
        holdings.limit(is_last=False)
        head = _added(holdings, place, accepted, may_drop=may_drop)
        held = holdings.limit(is_last=True)
    return Guarded(head, held, tuple(holdings.dropped))


def _added(
    holdings: "_Holdings", place: StoreDir, accepted: Accepted, *, may_drop: bool
) -> PointHead:
    """Add the point, without the oldest points where there is no room for it else."""
    while True:
        try:
            return add_point(holdings.change, holdings.backing, place, accepted)
        except NoSpaceError as error:
            if not may_drop or not holdings.make_room(error):
                raise


def _is_beside(backing: Backing, place: StoreDir) -> bool:
    """Tell whether the repository lies on the disk of the store: its links hold room there."""
    if not isinstance(backing, LocalBacking):
        return False
    paths = [place.root, *(folder.real_path for folder in place.commit_log)]
    return Path(backing.address).stat().st_dev in {Path(path).stat().st_dev for path in paths}


class _Holdings:
    """Which points go, oldest first, so that no more is held than is allowed."""

    def __init__(
        self,
        change: PointChange,
        backing: Backing,
        most_bytes: int | None,
        told: Callable[[str], None],
    ) -> None:
        self.change, self.backing = change, backing
        self.dropped: list[int] = []
        self._most_bytes, self._told = most_bytes, told

    def limit(self, *, is_last: bool) -> int | None:
        """Remove points while too much is held; return what is held then. The newest stays."""
        if self._most_bytes is None:
            return None
        held = held_bytes(self.backing)
        while held > self._most_bytes:
            numbers = self.change.repository.numbers()
            if len(numbers) < 2:
                if is_last:
                    self._told(_NOT_ENOUGH.format(self.backing.address, held, self._most_bytes))
                break
            self._drop(numbers[0])
            before, held = held, held_bytes(self.backing)
            told = _POINT_GOES.format(self.backing.address, numbers[0], before, self._most_bytes)
            self._told(told)
        return held

    def make_room(self, full: NoSpaceError) -> bool:
        """Remove the oldest points up to the first that gives room; False if none can."""
        self.change.sweep()  # What the point took that could not be made.
        numbers = self.change.repository.numbers()
        before = held_bytes(self.backing)
        going = self._oldest_with_room(numbers)
        for number in going:
            self._drop(number)
        if going:
            freed = before - held_bytes(self.backing)
            gone = ", ".join(map(str, going))
            self._told(_ROOM_MADE.format(self.backing.address, gone, freed, full.what))
        return bool(going)

    def _oldest_with_room(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the fewest of the oldest points without which the disk has more room."""
        needed = {n: self.change.repository.manifest(n).objects() for n in numbers}
        for count in range(1, len(numbers)):
            later = set().union(*(needed[n] for n in numbers[count:]))
            gone = set().union(*(needed[n] for n in numbers[:count])) - later
            if any(self.backing.held_bytes(object_path(name)) for name in gone):
                return numbers[:count]
        return ()

    def _drop(self, number: int) -> None:
        self.change.drop([number])
        self.dropped.append(number)


_POINT_GOES: Final = (
    "{}: point {} is removed: the repository held {:,} bytes that no store has any more, more than "
    "{:,}. What had expired at the broker and was in that point only is gone"
)
_ROOM_MADE: Final = (
    "{}: THE DISK IS FULL: removed point {}, which gives {:,} bytes back, as there is no room for "
    "the next one ({}). What had expired at the broker and was in them only is gone"
)
_NOT_ENOUGH: Final = "{}: the last point alone holds {:,} bytes that no store has, more than {:,}"
