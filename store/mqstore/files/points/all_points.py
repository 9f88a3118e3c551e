"""All points of a repository as one store: of each file the newest version that a point has.

Files of the CommitLog and of ConsumeQueues only grow until they are full, so the newest version
has what the older ones have. What brokers deleted between two points is in the older one. Index
files are taken the same way; all that has no such order, as config/, is that of the newest point.

Two points that follow each other must be of one store: see ``_follows``. Where the broker cut the
end of its log in a recovery, or a topic was deleted and made again, the newer point counts, and a
warning says what only the older one has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final

from mqstore.errors import InvalidOptionError, shown
from mqstore.files.points.backing import Backing
from mqstore.files.points.folder import PartsFile, PointFiles
from mqstore.files.points.manifest import PointFile, PointHead, PointManifest, digest_of
from mqstore.files.points.repository import Repository, WantedPoint
from mqstore.files.points.seal import SEAL_BYTES, seal_start
from mqstore.format import names
from mqstore.format.arrays import Span
from mqstore.format.consume_queue import FILLER_SIZE, UNIT
from mqstore.format.names import parse_mapped_file_name

_MANIFESTS_AT_ONCE: Final = 8
_GROWING: Final = (names.COMMIT_LOG, names.CONSUME_QUEUE)
_FILLER: Final = FILLER_SIZE.to_bytes(4, "big")


class _Relation(Enum):
    """What a newer version of a file is to an older one."""

    GOES_ON = "the older bytes are all there"
    WAS_CUT = "it begins as the older one does, and has another end"
    IS_OTHER = "it begins with other bytes"


@dataclass(frozen=True, slots=True)
class Version:
    """A file as one point has it; ``number`` is the point's."""

    file: PointFile
    number: int

    @property
    def held(self) -> int:
        """How many bytes from its start on the point has."""
        return _held(self.file)


@dataclass(slots=True)
class Joined:
    """What the points have together, oldest first; ``warnings`` say what is not among it."""

    backing: Backing
    last: PointManifest | None = None
    folders: dict[str, dict[str, Version]] = field(default_factory=dict)
    """Files of the CommitLog, of ConsumeQueues and of the index: by folder, then by name."""
    warnings: list[str] = field(default_factory=list)

    def take(self, manifest: PointManifest) -> None:
        """Take the next point. Raises InvalidOptionError where it is of another store."""
        number = manifest.head.number
        for folder, files in _growing(manifest).items():
            newer = {name: Version(file, number) for name, file in files.items()}
            older = self.folders.get(folder)
            if older is None:
                self.folders[folder] = newer
            elif folder == names.COMMIT_LOG:
                self._take_log(older, newer, manifest.head)
            elif folder.startswith(f"{names.CONSUME_QUEUE}/"):
                self._take_queue(folder, older, newer)
            else:
                older.update(newer)
        self.last = manifest

    def manifest(self) -> PointManifest:
        """Return the union as the newest point's manifest."""
        assert self.last is not None
        files = {
            f"{folder}/{name}": version.file
            for folder, versions in self.folders.items()
            for name, version in versions.items()
        }
        files |= {path: f for path, f in self.last.files.items() if _folder_of(path) is None}
        folders = tuple(dict.fromkeys((*self.last.folders, *self.folders)))
        return PointManifest(self.last.head, folders, files)

    def _take_log(
        self, older: dict[str, Version], newer: dict[str, Version], head: PointHead
    ) -> None:
        assert self.last is not None
        before = self.last.head
        relation = _follows(self.backing, older, newer, is_same_place=before.source == head.source)
        if relation is _Relation.IS_OTHER:
            reason = (
                f"point {head.number}, of {shown(head.source)}, does not go on from point "
                f"{before.number}, of {shown(before.source)}: they are of two stores. Name a "
                "point, or several as several paths with brokerName"
            )
            raise InvalidOptionError("path", f"{self.backing.address}@all", reason)
        if relation is _Relation.WAS_CUT:
            self.warnings.append(
                f"the broker cut the end of its CommitLog between points {before.number} and "
                f"{head.number}: what it cut off is in {self.backing.address}@{before.number} only"
            )
        _merge(older, newer)

    def _take_queue(
        self, folder: str, older: dict[str, Version], newer: dict[str, Version]
    ) -> None:
        relation = _follows(self.backing, older, newer, is_same_place=True)
        if relation is not _Relation.IS_OTHER:
            _merge(older, newer)
            return
        if any(version.held for version in older.values()):
            _, topic, queue_id = folder.split("/")
            last = max(version.number for version in older.values())
            high = max(_start(name) + version.held for name, version in older.items())
            self.warnings.append(
                f"{shown(topic)}/{queue_id} was deleted and made again after point {last}: its "
                f"messages of before, up to queue offset {high // UNIT.itemsize}, are in "
                f"{self.backing.address}@{last} only"
            )
        self.folders[folder] = newer


class AllPointFiles(PointFiles):
    """The files of all points. Pickles with the points' numbers, so that tasks read the same."""

    lacks_files = True

    def __init__(self, backing: Backing, numbers: tuple[int, ...] = ()) -> None:
        """Take those points, else all that there are when a file is first asked for."""
        super().__init__(backing, WantedPoint("latest"))
        self._numbers = numbers
        self._folders: dict[str, dict[str, Version]] = {}
        self.warnings: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        _ = self.manifest
        return (AllPointFiles, (self.backing, self._numbers))

    @property
    def manifest(self) -> PointManifest:
        """The union, made when it is first needed.

        Raises as ``Repository.manifest``, PointNotFoundError where there is no point, and
        InvalidOptionError for points of several stores.
        """
        if self._manifest is None:
            repository = Repository(self.backing)
            if not self._numbers:
                repository.find(self._wanted)  # Raises where there is none.
                self._numbers = tuple(repository.numbers())
            joined = Joined(self.backing)
            for start in range(0, len(self._numbers), _MANIFESTS_AT_ONCE):
                some = self._numbers[start : start + _MANIFESTS_AT_ONCE]
                for manifest in self.backing.each(repository.manifest, some):
                    joined.take(manifest)
            self._manifest, self._folders = joined.manifest(), joined.folders
            self.warnings = tuple(joined.warnings)
        return self._manifest

    def version(self, path: str) -> int:
        """Return the number of the point that a file is of."""
        newest = self.manifest.head.number
        folder, _, name = path.rpartition("/")
        version = self._folders.get(folder, {}).get(name)
        return newest if version is None else version.number

    def held(self, folder: str) -> dict[str, int]:
        """Return how many bytes of each file in a folder the points have, from its start on."""
        _ = self.manifest
        return {name: version.held for name, version in self._folders.get(folder, {}).items()}

    def check_restorable(self) -> None:
        """Raise InvalidOptionError where bytes are missing amid the log or a queue."""
        _ = self.manifest
        for folder in sorted(self._folders.keys() - {names.INDEX}):
            spans = sorted((_start(name), count) for name, count in self.held(folder).items())
            for (start, count), (following, _) in pairwise(spans):
                if start + count < following:
                    expected = (
                        f"has a gap: no point has bytes [{start + count}, {following}) of "
                        f"{folder}, which brokers deleted, and a broker opens no such store. "
                        "Restore a point, such as REPO@latest; reads pass over the gap"
                    )
                    raise InvalidOptionError("REPO@POINT", f"{self.backing.address}@all", expected)

    def log_spans(self) -> list[Span]:
        """Return the physical offsets [start, end) that points have, ascending, apart."""
        spans: list[Span] = []
        for name, size in sorted(self.held(names.COMMIT_LOG).items()):
            start = parse_mapped_file_name(name)
            if start is None or not size:
                continue
            low = spans.pop()[0] if spans and spans[-1][1] == start else start
            spans.append((low, start + size))
        return spans


def _growing(manifest: PointManifest) -> dict[str, dict[str, PointFile]]:
    """Return the files that are taken from all points, by folder and name."""
    by_folder: dict[str, dict[str, PointFile]] = {}
    for path, file in manifest.files.items():
        folder = _folder_of(path)
        if folder is not None:
            by_folder.setdefault(folder, {})[path.rpartition("/")[2]] = file
    return by_folder


def _folder_of(path: str) -> str | None:
    """Return the folder of a file of the log, a queue or the index; None for any other file."""
    folder, _, name = path.rpartition("/")
    if folder == names.INDEX:
        return folder
    if parse_mapped_file_name(name) is None:
        return None
    is_queue = folder.startswith(f"{names.CONSUME_QUEUE}/") and folder.count("/") == 2
    return folder if is_queue or folder == names.COMMIT_LOG else None


def _merge(older: dict[str, Version], newer: Mapping[str, Version]) -> None:
    """Take the newer files; older ones behind them were cut off."""
    last = max(newer, key=_start)
    for name in [name for name in older if _start(name) > _start(last)]:
        del older[name]
    older.update(newer)


def _follows(
    backing: Backing,
    older: Mapping[str, Version],
    newer: Mapping[str, Version],
    *,
    is_same_place: bool,
) -> _Relation:
    """Tell how the files of a newer point go on from those of older ones.

    Without a file in common they go on if they lie behind the older ones, of a store in the
    same place.
    """
    common = sorted(set(older) & set(newer), key=_start)
    if not common:
        lies_behind = min(map(_start, newer)) > max(map(_start, older))
        return _Relation.GOES_ON if lies_behind and is_same_place else _Relation.IS_OTHER
    last = common[-1]
    relation = _relation(backing, older[last], newer[last])
    behind = any(_start(name) > _start(last) and older[name].held for name in older)
    if relation is _Relation.GOES_ON and behind:
        return _Relation.WAS_CUT
    if relation is _Relation.IS_OTHER and len(common) > 1:
        first = _relation(backing, older[common[0]], newer[common[0]])
        return first if first is _Relation.IS_OTHER else _Relation.WAS_CUT
    return relation


def _relation(backing: Backing, older: Version, newer: Version) -> _Relation:
    old, new = older.file, newer.file
    if old.parts == new.parts[: len(old.parts)]:
        return _Relation.GOES_ON
    if old.grown and newer.held >= old.grown:
        start = seal_start(old.grown)
        if digest_of(_bytes(backing, newer, start, old.grown - start)) == old.seal:
            return _Relation.GOES_ON
    size = min(SEAL_BYTES, older.held, newer.held)
    is_equal = _bytes(backing, older, 0, size) == (data := _bytes(backing, newer, 0, size))
    if not size or not is_equal or data[8:12] == _FILLER:
        return _Relation.IS_OTHER
    return _Relation.GOES_ON if older.held <= newer.held and not old.grown else _Relation.WAS_CUT


def _bytes(backing: Backing, version: Version, start: int, size: int) -> bytes:
    file = PartsFile(backing, version.file, version.number)
    try:
        return file.read(size, start)
    finally:
        file.close()


def _held(file: PointFile) -> int:
    if file.grown or not file.parts:
        return file.grown
    return file.size


def _start(name: str) -> int:
    start = parse_mapped_file_name(name)
    assert start is not None
    return start
