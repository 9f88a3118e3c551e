"""A change of a repository: by one process at a time, and none that was killed leaves anything.

A note is made before the first change and removed behind the last. Where one is found, a run was
killed: whatever no manifest names is removed before anything else is done. The note of a change
that adds is the file ``unfinished``. A change that only removes must work on a full disk, so its
note is the first manifest to go, under another name: ``points/00000003.gone``.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Final, Self

from mqstore.errors import InvalidOptionError, StoreError
from mqstore.files.points.backing import LOCK_FILE, Backing
from mqstore.files.points.repository import (
    MARK_LINE,
    MOST_POINTS,
    OBJECT_FOLDERS,
    POINTS,
    UNFINISHED,
    Repository,
    is_begun,
    object_path,
    point_path,
)
from mqstore.format.names import REPOSITORY_MARK

_LOG: Final = logging.getLogger(__name__)
_GONE: Final = ".gone"


class PointChange:
    """A context manager: the repository is locked, and left as its manifests say."""

    def __init__(self, backing: Backing, *, makes: bool = False) -> None:
        """Take the place; with ``makes`` a repository that is not there is made.

        Entering raises NotARepositoryError, InvalidOptionError for a folder that holds something
        else, StoreLockedError, StoreUnavailableError, OSError. What a killed run left is removed
        first; a warning says so where it cannot be.
        """
        self._backing = backing
        self._makes = makes
        self._stack = ExitStack()
        self._notes: list[str] = []
        self._keeps_notes = False
        self.repository = Repository(backing)
        self.check_held: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        if self._makes:
            self._check_ours()
            self._backing.make()
        else:
            self.repository.check()
        with ExitStack() as stack:
            self.check_held = stack.enter_context(self._backing.locked())
            if self._makes:
                self._make()
            self.repository.check()
            left = self._left_notes()
            if left and self._swept():
                self._remove(left)
            elif left:
                self._keeps_notes = True
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        with self._stack:
            is_whole = self._notes and (self._is_held() if kind is None else self._swept())
            if is_whole and not self._keeps_notes:
                self._remove(self._notes)

    def begin(self) -> None:
        """Note that the repository is going to be changed. Raises NoSpaceError."""
        if UNFINISHED not in self._notes:
            try:
                self._backing.put(UNFINISHED, b"mqlog changes this repository, or was killed.\n")
            except BaseException:
                with suppress(StoreError, OSError):  # Else the next run sweeps.
                    self._backing.remove([f"{UNFINISHED}.new", UNFINISHED])
                raise
            self._notes.append(UNFINISHED)

    def _left_notes(self) -> list[str]:
        """Return the notes of runs that were killed."""
        gone = [f"{POINTS}/{e.name}" for e in self._backing.entries(POINTS) if _is_gone(e.name)]
        names = {entry.name for entry in self._backing.entries()}
        return [*gone, *({UNFINISHED} & names)]

    def next_number(self) -> int:
        """Return the number of the next point."""
        folders = [int(e.name) for e in self._backing.entries(OBJECT_FOLDERS) if e.name.isdecimal()]
        found = max([*self.repository.numbers(), *folders], default=0) + 1
        if found > MOST_POINTS:
            reason = f"has had {MOST_POINTS} points; begin another repository"
            raise InvalidOptionError("REPO", self.repository.address, reason)
        return found

    def tidy(self, names: Iterable[str]) -> None:
        """Remove objects that this process made and does not need, as of a first try."""
        self._remove(map(object_path, names))

    def publish(self, number: int, manifest: bytes) -> None:
        """Give the point its name: from here on it counts."""
        self.check_held()
        self._backing.put(point_path(number), manifest)

    def drop(self, numbers: Collection[int]) -> None:
        """Remove points, and what only they needed; needs no room on a disk."""
        if numbers:
            self.check_held()
            first, *others = sorted(numbers)
            if not self._notes and self._backing.move(point_path(first), f"{first:08d}{_GONE}"):
                self._notes.append(f"{point_path(first)}{_GONE}")
            else:
                self.begin()
                others = [first, *others]
            self._remove(map(point_path, others))
            self.sweep()

    def sweep(self) -> None:
        """Remove all objects that no manifest names.

        Raises CorruptStoreError, and removes nothing, if a manifest cannot be read: what it needs
        is not known then; StoreLockedError if another process took the repository over.
        """
        numbers = self.repository.numbers()
        needed: set[str] = set()
        for number in numbers:
            needed |= self.repository.manifest(number).objects()
        self.check_held()  # Else what no manifest names may be another process's work.
        self._remove(
            f"{POINTS}/{entry.name}"
            for entry in self._backing.entries(POINTS)
            if entry.name.endswith(".new")
        )
        for folder in self._backing.entries(OBJECT_FOLDERS):
            path = f"{OBJECT_FOLDERS}/{folder.name}"
            if not folder.is_directory:
                continue
            found = [entry.name for entry in self._backing.entries(path)]
            gone = [name for name in found if f"{folder.name}/{name}" not in needed]
            self._remove(f"{path}/{name}" for name in gone)
            if len(gone) == len(found):
                self._backing.remove_folder(path)
                self._backing.sync(OBJECT_FOLDERS)

    def _remove(self, paths: Iterable[str]) -> None:
        """Remove files durably: once the note of a change is gone, no run looks for them."""
        gone = list(paths)
        self._backing.remove(gone)
        for folder in sorted({path.rpartition("/")[0] for path in gone}):
            self._backing.sync(folder)

    def _is_held(self) -> bool:
        try:
            self.check_held()
        except (StoreError, OSError):
            return False
        return True

    def _swept(self) -> bool:
        try:
            self.sweep()
        except (StoreError, OSError) as error:
            _LOG.warning("%s: what is left over is removed by the next run: %s", self._where, error)
            return False
        return True

    @property
    def _where(self) -> str:
        return self.repository.address

    def _check_ours(self) -> None:
        names = {entry.name for entry in self._backing.entries()}
        if REPOSITORY_MARK not in names and not is_begun(names):
            reason = (
                f"is no repository, and has {min(names - {LOCK_FILE})} in it; name a new directory"
            )
            raise InvalidOptionError("REPO", self._where, reason)

    def _make(self) -> None:
        if all(entry.name != REPOSITORY_MARK for entry in self._backing.entries()):
            self._backing.make_folder(POINTS)
            self._backing.make_folder(OBJECT_FOLDERS)
            self._backing.put(REPOSITORY_MARK, MARK_LINE)


def _is_gone(name: str) -> bool:
    """Tell whether a file of ``points`` is the note of a change that removes."""
    return name.endswith(_GONE)
