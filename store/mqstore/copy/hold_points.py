"""The guard: points again and again, and the oldest go once the repository holds too much.

A repository on the disk of the store holds full files by hard links. The broker that deletes such a
file frees nothing, as long as a point has it: the bytes that only the repository still holds are
what the budget is of.
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mqstore.copy.point_change import PointChange
from mqstore.copy.take_point import add_point, check_apart_from
from mqstore.files.base.store_dir import open_dir
from mqstore.files.points.backing import Backing
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
    most_bytes: int | None,
    *,
    commit_log: Sequence[str] = (),
    told: Callable[[str], None] = _LOG.warning,
) -> Guarded:
    """Add a point; remove the oldest points while the repository holds more than ``most_bytes``.

    The newest point stays. ``told`` gets a line for each point that goes. Raises as ``take_point``.
    """
    place = open_dir(root, commit_log, in_rocksdb=True)
    check_apart_from(backing, place)
    with PointChange(backing, makes=True) as change:
        head = add_point(change, backing, place)
        dropped: list[int] = []
        if most_bytes is None:
            return Guarded(head, None, ())
        held = held_bytes(backing)
        while held > most_bytes:
            number = next((n for n in change.repository.numbers() if n != head.number), None)
            if number is None:
                told(_NOT_ENOUGH.format(backing.address, held, most_bytes))
                break
            change.drop([number])
            dropped.append(number)
            before, held = held, held_bytes(backing)
            told(_POINT_GOES.format(backing.address, number, before, most_bytes))
    return Guarded(head, held, tuple(dropped))


_POINT_GOES: Final = (
    "{}: point {} is removed: the repository held {:,} bytes that no store has any more, more than "
    "{:,}. What had expired at the broker and was in that point only is gone"
)
_NOT_ENOUGH: Final = "{}: the last point alone holds {:,} bytes that no store has, more than {:,}"
