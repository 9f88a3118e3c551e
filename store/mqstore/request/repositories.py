"""Repositories and their points, as paths name them.

/backup/broker-a                          the repository
/backup/broker-a@latest                   its last point
/backup/broker-a@3                        point 3
/backup/broker-a@2026-11-22T09:00Z        the last point that was begun by that time
/backup/broker-a@-1d                      the last one a day ago
/backup/broker-a@1795824067000            the same by epoch milliseconds
/backup/broker-a@all                      all points as one store, each message once
s3://backup/broker-a@latest               of a repository in an object store

Every path of a read is looked at here, and few name points: what reads them is imported for those.
"""

# ruff: noqa: PLC0415

import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mqstore.errors import InvalidOptionError, shown
from mqstore.files.objects.address import is_object_store, parse_object_store
from mqstore.format.names import REPOSITORY_MARK
from mqstore.options import grammar, store_paths

if TYPE_CHECKING:
    from mqstore.files.points.backing import Backing
    from mqstore.files.points.folder import PointFolder
    from mqstore.files.points.manifest import PointHead
    from mqstore.files.points.repository import Repository, WantedPoint

__all__ = [
    "PointFolder",
    "PointHead",
    "Repository",
    "is_repository",
    "open_repository",
    "point_at",
    "repository_at",
]

_POINT: Final = re.compile(r"(.+)@([^@/]*)", re.DOTALL)
_LOOKS: Final = re.compile(r"latest|all|[0-9]{1,15}|-[0-9]+[A-Za-z]+|[0-9]{4}-[0-9]{2}-[^@/]*")
_MOST_NUMBER_DIGITS: Final = 8
"""More digits are epoch milliseconds: no repository has so many points."""
_FORMS: Final = "REPO@latest, REPO@3, REPO@2026-11-22T09:00Z or REPO@all"
_ALL_POINTS: Final = "all"


def open_repository(path: str, texts: Mapping[str, str]) -> "Repository":
    """Return the repository that ``path`` names; it may not be there yet.

    ``texts`` are the options of object stores. Raises InvalidOptionError, also for a point.
    """
    match = None if os.path.lexists(path) else _POINT.fullmatch(path)
    if match is not None:
        base, text = match.groups()
        if is_repository(base) or (is_object_store(path) and _LOOKS.fullmatch(text)):
            expected = f"names a point, not the repository: write {shown(base)}"
            raise InvalidOptionError("REPO", path, expected)
    from mqstore.files.points.repository import Repository

    return Repository(_backing(path, texts))


def point_at(path: str, texts: Mapping[str, str]) -> "PointFolder | None":
    """Return the point that a path names; None for any other path. Connects to nothing.

    Raises InvalidOptionError for a repository without a point, and for one named in another form.
    """
    match = None if os.path.lexists(path) else _POINT.fullmatch(path)
    if match is None:
        if is_repository(path):
            raise InvalidOptionError("path", path, f"is a repository: name a point, {_FORMS}")
        return None
    base, text = match.groups()
    if not _LOOKS.fullmatch(text):
        if is_repository(base):
            raise InvalidOptionError("path", path, f"names no point: write {_FORMS}")
        return None
    from mqstore.files.points.folder import PointFolder, point_folder

    if text == _ALL_POINTS:
        from mqstore.files.points.all_points import AllPointFiles

        return PointFolder(path, AllPointFiles(_backing(base, texts)))
    return point_folder(_backing(base, texts), _wanted(text), path)


def repository_at(path: str, texts: Mapping[str, str]) -> "Repository | None":
    """Return the repository that a path is, without a point; None for any other path.

    Asks the object store, if it is the address of one. Raises as ``Repository.check``.
    """
    if not is_object_store(path):
        return open_repository(path, texts) if is_repository(path) else None
    found = open_repository(path, texts)
    return found if any(e.name == REPOSITORY_MARK for e in found.backing.entries()) else None


def is_repository(path: str) -> bool:
    """Tell whether a path is a repository in a directory, without a point."""
    if is_object_store(path):
        return False
    local = os.path.expanduser(path)  # noqa: PTH111 - a path may be an address
    return os.path.lexists(f"{local}/{REPOSITORY_MARK}")


def _backing(path: str, texts: Mapping[str, str]) -> "Backing":
    from mqstore.files.points.backing import LocalBacking

    if is_object_store(path):
        from mqstore.files.objects.repository import ObjectBacking

        return ObjectBacking(parse_object_store(path, texts))
    return LocalBacking(store_paths.absolute("path", path))


def _wanted(text: str) -> "WantedPoint":
    from mqstore.files.points.repository import WantedPoint

    if text == "latest":
        return WantedPoint("latest")
    if text.isdecimal() and len(text) <= _MOST_NUMBER_DIGITS:
        return WantedPoint("number", int(text), text)
    now_ms = time.time_ns() // 1_000_000
    moment = grammar.timestamp("path", text, now_ms=now_ms)
    return WantedPoint("time", moment, text)
