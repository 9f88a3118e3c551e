"""A repository: its points, and how one is found by its number or by a time.

REPO/mqlog-repository      the mark, made last: what a folder without it holds does not count
REPO/points/00000003       the manifest of point 3; the point is there once this name is
REPO/objects/00000003/     what point 3 was the first to take: pack has the bytes of many files,
                           17 is a whole file, often by a hard link
REPO/unfinished            there while a run changes the repository, and after one was killed
REPO/lock                  locked by the process that does
REPO/damaged               bytes of objects that verify found damaged: they are taken anew

Reading takes no lock: a point never changes, and a manifest is the last thing that a run makes of
a point and the first that it removes.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, Literal

from mqstore.errors import CorruptStoreError, NotARepositoryError, PointNotFoundError
from mqstore.files.points.backing import LOCK_FILE, Backing
from mqstore.files.points.damaged_parts import MOST_BYTES, DamagedParts, decode_damaged
from mqstore.files.points.manifest import (
    MOST_MANIFEST_BYTES,
    PointHead,
    PointManifest,
    decode,
    decode_head,
)
from mqstore.format.names import REPOSITORY_MARK

MARK_LINE: Final = b"mqlog repository 1\n"
POINTS: Final = "points"
OBJECT_FOLDERS: Final = "objects"
UNFINISHED: Final = "unfinished"
DAMAGED: Final = "damaged"
MOST_POINTS: Final = 10**8 - 1

_POINT_NAME: Final = re.compile(r"[0-9]{8}")
_OWN: Final = frozenset(
    {REPOSITORY_MARK, f"{REPOSITORY_MARK}.new", POINTS, OBJECT_FOLDERS, LOCK_FILE}
)


@dataclass(frozen=True, slots=True)
class WantedPoint:
    """Which point is meant: the last, one by its number, or the last not after a time (ms)."""

    kind: Literal["latest", "number", "time"]
    value: int = 0
    text: str = "latest"


class Repository:
    """A repository that is there, to be read."""

    def __init__(self, backing: Backing) -> None:
        """Take it as it is; nothing is asked."""
        self.backing = backing

    @property
    def address(self) -> str:
        """What errors call it."""
        return self.backing.address

    def check(self) -> None:
        """Raise NotARepositoryError where the mark is not, or is one of a newer mqlog."""
        try:
            data = self._read(REPOSITORY_MARK, 4096)
        except FileNotFoundError:
            advice = "mqlog snapshot STORE REPO makes one"
            raise NotARepositoryError(self.address, f"no repository of points; {advice}") from None
        if data != MARK_LINE:
            reason = f"its file {REPOSITORY_MARK} is of another version, or damaged"
            raise NotARepositoryError(self.address, reason)

    def numbers(self) -> list[int]:
        """Return the numbers of all points, ascending. Raises as ``check``."""
        self.check()
        return sorted(
            int(entry.name)
            for entry in self.backing.entries(POINTS)
            if _POINT_NAME.fullmatch(entry.name) and not entry.is_directory
        )

    def find(self, wanted: WantedPoint) -> int:
        """Return the number of a point. Raises PointNotFoundError, which names those there are."""
        numbers = self.numbers()
        if not numbers:
            raise PointNotFoundError(self.address, wanted.text, "it has no points")
        if wanted.kind == "latest":
            return numbers[-1]
        if wanted.kind == "number":
            if wanted.value in numbers:
                return wanted.value
            told = f"it has points from {numbers[0]} to {numbers[-1]}, {len(numbers)} in all"
            raise PointNotFoundError(self.address, wanted.text, told)
        found = self._last_by(wanted.value, numbers)
        if found is None:
            told = f"its first point, {numbers[0]}, is later"
            raise PointNotFoundError(self.address, wanted.text, told)
        return found

    def _last_by(self, time_ms: int, numbers: list[int]) -> int | None:
        """Return the last of the points that was begun by a time, by the clock that it saw."""
        if not self.head(numbers[-1]).was_set_back:  # Times ascend.
            count = bisect_right(numbers, time_ms, key=lambda n: self.head(n).began_ms)
            return numbers[count - 1] if count else None
        heads = self.backing.each(self.head, reversed(numbers))
        return next((head.number for head in heads if head.began_ms <= time_ms), None)

    def head(self, number: int) -> PointHead:
        """Return the head of a point. Raises as ``manifest``."""
        return self._of(number, decode_head(self._where(number), self._manifest(number)))

    def manifest(self, number: int) -> PointManifest:
        """Return a point. Raises PointNotFoundError, CorruptStoreError, StoreUnavailableError."""
        found = decode(self._where(number), self._manifest(number))
        self._of(number, found.head)
        return found

    def damaged(self) -> DamagedParts:
        """Return what was noted as damaged. Raises CorruptStoreError, StoreUnavailableError."""
        try:
            return decode_damaged(self._read(DAMAGED, MOST_BYTES))
        except FileNotFoundError:
            return DamagedParts()

    def _of(self, number: int, head: PointHead) -> PointHead:
        if head.number != number:
            reason = f"it is the manifest of point {head.number}"
            raise CorruptStoreError(self._where(number), 0, reason)
        return head

    def _manifest(self, number: int) -> bytes:
        try:
            return self._read(point_path(number), MOST_MANIFEST_BYTES)
        except FileNotFoundError:
            told = "it was removed meanwhile"
            raise PointNotFoundError(self.address, str(number), told) from None

    def _where(self, number: int) -> str:
        return f"{self.address}/{point_path(number)}"

    def _read(self, path: str, most: int) -> bytes:
        file = self.backing.open(path)
        try:
            if file.size > most:
                where = f"{self.address}/{path}"
                raise CorruptStoreError(where, most, f"more than {most} bytes")
            return file.read(file.size, 0)
        finally:
            file.close()


def point_path(number: int) -> str:
    """Return the path of a manifest."""
    return f"{POINTS}/{number:08d}"


def object_folder(number: int) -> str:
    """Return the folder of the objects that a point was the first to take."""
    return f"{OBJECT_FOLDERS}/{number:08d}"


def object_path(name: str) -> str:
    """Return the path of an object by the name that parts have."""
    return f"{OBJECT_FOLDERS}/{name}"


def is_begun(names: set[str]) -> bool:
    """Tell whether a folder has nothing but what a killed first run may leave."""
    return names <= _OWN
