"""Walks what is new of a CommitLog, and takes the rest from what earlier walks left in a cache.

A log file is known by its place in the log, its size, inode and times: a later read walks only
files that are new or have changed, and looks behind the end of those that may still grow.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

from mqstore.derive.log_queues import LogFile, LogQueues
from mqstore.derive.log_sections import FileWalk
from mqstore.derive.records import IN_PLACE, fetch_at
from mqstore.derive.section_files import (
    FileEnd,
    SectionFile,
    private_folder,
    section_name,
    write_section,
)
from mqstore.errors import CorruptStoreError, NoSpaceError
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.entry_log import open_log
from mqstore.files.log.log_end import after_blank
from mqstore.format.names import mapped_file_name

_SIDE_BY_SIDE: Final = 4
_MOST_SECTIONS: Final = 4_096  # of one log file: 2 GiB of the smallest records have 50
_OLD_S: Final = 86_400
_NO_END: Final = 2**62


def cache_of(place: StoreDir, cache: str) -> str:
    """Return the directory below ``cache`` for the sections of one store's CommitLog."""
    folders = "\0".join(folder.real_path for folder in place.commit_log)
    return f"{cache}/{hashlib.sha256(os.fsencode(folders)).hexdigest()[:32]}"


def open_log_queues(
    place: StoreDir,
    cache: str,
    known: Sequence[str] = (),
    limit: int | None = None,
    start: int = 0,
    planned_low: int | None = None,
) -> LogQueues:
    """Return the queues of a store's CommitLog; walk what the directory ``cache`` does not have.

    ``known`` are keys of files as a read was planned with: their sections are taken, if they
    are there, though the file has grown since. Records from physical offset ``limit`` on, of a
    commit under way, are left out, and so is what lies before the record at ``start``. Files from
    ``planned_low`` on that expired since a read was planned keep their units, as far as the
    cache directory has them.
    Raises FileNotFoundError; NoSpaceError or CorruptStoreError
    where sections cannot be kept; OSError.
    """
    folder = cache_of(place, cache)
    try:
        private_folder(cache)
        private_folder(folder)
    except OSError as error:
        raise _not_kept(folder, error) from error
    with open_log(place) as log:
        if log.committed_end is not None:
            if not known:
                log.check_committed()
            limit = log.committed_end if limit is None else min(limit, log.committed_end)
        last = _NO_END if limit is None else limit
        files = [file for file in log.files.files if file.end > start and file.start < last]
        by_start = {key.partition("-")[0]: key for key in known}
    opened = partial(_opened, place, log, (folder, by_start), (start, limit))
    with ThreadPoolExecutor(min(_SIDE_BY_SIDE, os.cpu_count() or 1)) as workers:
        found = list(workers.map(opened, files))
    if not known and not start:
        _remove_old(folder, [file.key for file in found])
    if planned_low is None or (files and planned_low >= files[0].start):
        return LogQueues(found)
    gone = _expired(folder, files[0], planned_low, by_start) if files else [None]
    return LogQueues([*filter(None, gone), *found], forgets=None in gone)


def _expired(
    folder: str, first: MappedFile, planned_low: int, known: Mapping[str, str]
) -> list[LogFile | None]:
    """Return the sections of the log's files before ``first``; None for those not kept.

    Of a file that grew while it was there the last walk counts.
    """
    with os.scandir(folder) as entries:
        stamps = {entry.name.partition(".")[0]: entry.stat().st_mtime_ns for entry in entries}
    found: list[LogFile | None] = []
    for start in range(planned_low, first.start, first.size):
        name = mapped_file_name(start)
        file = MappedFile(first.folder, name, start, first.size)
        keys = [key for key in stamps if key.startswith(f"{name}-") and "from" not in key]
        keys.sort(key=lambda key: (key == known.get(name), stamps[key]), reverse=True)
        kept = (_kept(folder, key, file) for key in keys)
        found.append(next((one for one in kept if one is not None), None))
    return found


def _opened(
    place: StoreDir,
    like: CommitLog,
    cached: tuple[str, Mapping[str, str]],
    span: tuple[int, int | None],
    file: MappedFile,
) -> LogFile:
    """Return one log file's sections, of records in ``span``: those that are kept, or new ones."""
    (folder, known), (start, limit) = cached, span
    with open_log(place, known=like) as log:
        planned = known.get(mapped_file_name(file.start))
        if planned is not None:
            kept = _kept(folder, planned, file)
            if kept is not None:
                return kept
        key = _key(file, start, limit)
        kept = _kept(folder, key, file)
        if kept is not None and not _has_grown(log, kept, limit):
            return kept
        walk = FileWalk(log, file, limit, start)
        try:
            _keep(folder, key, walk)
        except OSError as error:
            raise _not_kept(folder, error) from error
    made = _kept(folder, key, file)
    if made is None:
        reason = "sections of a log's queues that were just written are not there: is it shared?"
        raise CorruptStoreError(folder, 0, reason)
    return made


def _keep(folder: str, key: str, walk: FileWalk) -> None:
    """Walk over a file and write its sections; each when the next one, or the end, is known."""
    number, waiting = 0, None
    for section in walk.sections():
        if waiting is not None:
            write_section(folder, key, number, waiting, None)
            number += 1
        waiting = section
    end = FileEnd(walk.end, walk.is_closed, walk.has_rest, tuple(walk.damages), walk.damaged)
    write_section(folder, key, number, waiting or walk.nothing(), end)


def _kept(folder: str, key: str, file: MappedFile) -> LogFile | None:
    """Return the sections of a file that are there; None if one is missing or not believable."""
    sections = []
    for number in range(_MOST_SECTIONS):
        try:
            section = SectionFile(folder, section_name(key, number), key, number)
        except (OSError, CorruptStoreError):
            return None
        sections.append(section)
        end = section.end
        if end is not None:
            is_inside = file.start <= end.end <= file.end
            return LogFile(file, key, tuple(sections), end) if is_inside else None
    return None


def _has_grown(log: CommitLog, kept: LogFile, limit: int | None) -> bool:
    """Tell whether a record follows where the walk ended: a mapped file's times show no change."""
    if kept.end.is_closed or (limit is not None and kept.end.end >= limit):
        return False
    place = kept.end.end
    return fetch_at(log, place, IN_PLACE) is not None or after_blank(log, place) != place


def _key(file: MappedFile, start: int, limit: int | None) -> str:
    """Return what a log file is known by."""
    opened = file.open()
    try:
        parts = [*opened.version()]
    finally:
        opened.close()
    if limit is not None and limit < file.end:
        parts.append(limit)
    begun = [f"from{start:x}"] if start > file.start else []
    return "-".join([mapped_file_name(file.start), *(f"{part:x}" for part in parts), *begun])


def _remove_old(folder: str, keys: Sequence[str]) -> None:
    """Remove what no read of this log takes any more, once it is a day old."""
    current = set(keys)
    with suppress(OSError), os.scandir(folder) as entries:
        newest = os.stat(folder).st_mtime  # noqa: PTH116
        for entry in entries:
            if entry.name.partition(".")[0] not in current:
                with suppress(OSError):
                    if newest - entry.stat(follow_symlinks=False).st_mtime > _OLD_S:
                        os.unlink(entry.path)  # noqa: PTH108


def _not_kept(folder: str, error: OSError) -> NoSpaceError:
    return NoSpaceError(
        f"{folder}: the queues of the log cannot be kept here ({error}); name another directory "
        "in the option cacheDir, or in XDG_CACHE_HOME"
    )
