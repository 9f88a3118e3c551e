"""Is a repository whole: every manifest, and every byte that a point needs.

What two points share is read once.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mqstore.copy.point_change import PointChange
from mqstore.errors import CorruptStoreError, PointNotFoundError
from mqstore.files.base.read_file import ReadFile
from mqstore.files.points.backing import Backing
from mqstore.files.points.damaged_parts import DamagedParts
from mqstore.files.points.manifest import DIGEST_CHARS, PointPart
from mqstore.files.points.repository import DAMAGED, OBJECT_FOLDERS, Repository, object_path

_BYTES_AT_ONCE: Final = 1 << 20
_TakenBytes: TypeAlias = tuple[str, int, int, str]
"""The object, start, length and digest of a part."""
_PointSpan: TypeAlias = tuple[int, int]
"""The first and the last of points in a row, by their places among all."""


@dataclass(frozen=True, slots=True)
class PointProblem:
    """Something that is wrong in a repository, and the points that it harms."""

    file: str
    position: int
    problem: str
    points: tuple[int, ...]
    length: int = 0
    """Bytes from ``position`` on that are not what they were; 0 where the file is at fault."""


def check_points(
    repository: Repository, progress: Callable[[int, int], None] | None = None
) -> list[PointProblem]:
    """Return what is wrong in a repository; nothing if each of its points can be restored.

    Nothing is changed. Raises NotARepositoryError, StoreUnavailableError, OSError.
    """
    problems: list[PointProblem] = []
    needed: dict[_TakenBytes, list[_PointSpan]] = {}
    numbers = repository.numbers()
    for place, number in enumerate(numbers):
        try:
            manifest = repository.manifest(number)
        except CorruptStoreError as error:
            problems.append(PointProblem(error.path, error.position, error.reason, (number,)))
            continue
        except PointNotFoundError:  # It was pruned meanwhile.
            continue
        for file in manifest.files.values():
            for part in file.parts:
                spans = needed.setdefault((part.name, part.start, part.length, part.digest), [])
                if spans and spans[-1][1] >= place - 1:
                    spans[-1] = spans[-1][0], place
                else:
                    spans.append((place, place))
    return problems + list(_of_objects(repository.backing, needed, numbers, progress))


def mend_points(repository: Repository, problems: Sequence[PointProblem]) -> int:
    """Note the bytes that ``check_points`` found changed: the next point takes them anew.

    Returns how many parts there are; none is removed, as points may need what is whole of their
    objects. Raises StoreLockedError, NoSpaceError, StoreUnavailableError, OSError.
    """
    noted = [
        (problem.file.removeprefix(f"{OBJECT_FOLDERS}/"), problem.position, problem.length)
        for problem in problems
        if problem.length
    ]
    with PointChange(repository.backing):
        if noted:
            repository.backing.put(DAMAGED, DamagedParts(noted).encode())
        else:
            repository.backing.remove([DAMAGED])
    return len(noted)


def _of_objects(
    backing: Backing,
    needed: dict[_TakenBytes, list[_PointSpan]],
    numbers: Sequence[int],
    progress: Callable[[int, int], None] | None,
) -> Iterator[PointProblem]:
    total, done = sum(length for _, _, length, _ in needed), 0
    by_object: dict[str, list[PointPart]] = {}
    for name, start, length, digest in sorted(needed):
        by_object.setdefault(name, []).append(PointPart(name, start, start, length, digest))
    for name, parts in by_object.items():
        path = object_path(name)
        try:
            file = backing.open(path)
        except FileNotFoundError:
            yield PointProblem(path, 0, "the object is missing", _harmed(parts, needed, numbers))
            continue
        try:
            for part in parts:
                reason = _problem(file, part)
                if reason:
                    harmed = _harmed([part], needed, numbers)
                    yield PointProblem(path, part.start, reason, harmed, part.length)
                done += part.length
                if progress is not None:
                    progress(done, total)
        finally:
            file.close()


def _harmed(
    parts: Sequence[PointPart], needed: dict[_TakenBytes, list[_PointSpan]], numbers: Sequence[int]
) -> tuple[int, ...]:
    """Return the points that need one of the parts."""
    spans = {span for p in parts for span in needed[p.name, p.start, p.length, p.digest]}
    return tuple(sorted({n for first, last in spans for n in numbers[first : last + 1]}))


def _problem(file: ReadFile, part: PointPart) -> str:
    """Return what is wrong with the bytes of a part; nothing if they are as they were."""
    made, position = hashlib.sha256(), part.start
    end = part.start + part.length
    while position < end:
        data = file.read(min(_BYTES_AT_ONCE, end - position), position)
        if not data:
            return f"the object ends before byte {end}"
        made.update(data)
        position += len(data)
    found = made.hexdigest()[:DIGEST_CHARS]
    return "" if found == part.digest else "the bytes do not match their checksum"
