"""One more point of a repository: a store at one moment, of which only the new bytes are taken."""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mqstore.copy.copy_store import Filled, fill, filled_again
from mqstore.copy.point_change import PointChange
from mqstore.copy.point_continues import NOTHING_ACCEPTED, Accepted, check_clock, check_continues
from mqstore.copy.point_databases import databases_of, take_database
from mqstore.copy.point_target import PointTarget
from mqstore.errors import CorruptStoreError, InvalidOptionError, shown
from mqstore.files.base.store_above import store_above
from mqstore.files.base.store_dir import StoreDir, open_dir
from mqstore.files.points.backing import Backing, LocalBacking
from mqstore.files.points.folder import PointFiles, PointFolder
from mqstore.files.points.manifest import PointHead, PointManifest, encode
from mqstore.files.points.repository import WantedPoint
from mqstore.read.at_rest import take_at_rest
from mqstore.read.source import Snapshot
from mqstore.read.tier_bounds import warn_of_living_tier

_LOG: Final = logging.getLogger(__name__)
_REPOSITORY: Final = "REPO"
_CLOCK_BACK: Final = (
    "%s: the clock is behind the time of point %d. REPO@TIME finds the last point that was made by "
    "that time, as the clock of each point had it; if the clock was wrong at point %d, mqlog prune "
    "REPO --point %d removes it"
)


def take_point(
    root: str | os.PathLike[str],
    backing: Backing,
    *,
    commit_log: Sequence[str] = (),
    accepted: Accepted = NOTHING_ACCEPTED,
) -> PointHead:
    """Add a point of the store at ``root`` to a repository, which is made if it is not there.

    The source is only read. Raises InvalidOptionError for a repository in the store, or a folder
    that holds something else, OtherStoreError for a store that does not go on from the last point
    and ClockJumpError for a clock far ahead of it unless they are ``accepted``, StoreLockedError
    if a write to the store began or ended meanwhile
    or another process works on the repository, what ``mqstore.read.directory.take`` raises,
    CorruptStoreError for a damaged manifest, NoSpaceError, StoreUnavailableError, OSError. The
    repository is then as it was.
    """
    place = open_dir(root, commit_log, in_rocksdb=True)
    check_apart_from(backing, place)
    with PointChange(backing, makes=True) as change:
        return add_point(change, backing, place, accepted)


def add_point(
    change: PointChange, backing: Backing, place: StoreDir, accepted: Accepted = NOTHING_ACCEPTED
) -> PointHead:
    """Add a point within a change of the repository. Raises as ``take_point``."""
    numbers = change.repository.numbers()
    before = change.repository.manifest(numbers[-1]) if numbers else None
    number = change.next_number()
    began_ms = time.time_ns() // 1_000_000
    if before is not None:
        if not accepted.other_store:
            check_continues(backing, before, place)
        if not accepted.clock:
            check_clock(before, place, began_ms)
        if began_ms < before.head.began_ms:
            _LOG.warning(_CLOCK_BACK, backing.address, *[before.head.number] * 3)
    change.begin()
    target = PointTarget(backing, number, before, change.repository.damaged())
    try:
        filled = filled_again(target, lambda: _filled(target, place), place.root)
        target.finish()
    except BaseException:
        target.leave()
        raise
    made = _manifest(number, began_ms, place, target, filled)
    was_set_back = before is not None and (
        before.head.was_set_back or began_ms < before.head.began_ms
    )
    try:
        found = _read_back(backing, made)
    except CorruptStoreError:
        change.check_held()  # Else another process removed what this one had made.
        raise
    head = replace(_head(made.head, found), was_set_back=was_set_back)
    change.tidy(target.made - made.objects())
    change.publish(number, encode(PointManifest(head, made.folders, made.files)))
    warn_of_living_tier(place.folder, f"{backing.address}@{number}")
    return head


def _filled(target: PointTarget, place: StoreDir) -> Filled:
    for path in databases_of(place):
        take_database(target, place, path)
    return fill(target, place)


def check_apart_from(backing: Backing, place: StoreDir) -> None:
    """Raise InvalidOptionError if one of store and repository lies in the other."""
    if not isinstance(backing, LocalBacking):
        return
    made_in = os.path.realpath(backing.address)
    for source in (place.folder.real_path, *(one.real_path for one in place.commit_log)):
        if os.path.commonpath([source, made_in]) == source:
            raise InvalidOptionError(_REPOSITORY, backing.address, "lies in the store itself")
        if os.path.commonpath([source, made_in]) == made_in:
            raise InvalidOptionError(_REPOSITORY, backing.address, "the store lies in it")
    found = store_above(backing.address)
    if found is not None:
        reason = f"lies in {shown(found)}, which is a store or a repository"
        raise InvalidOptionError(_REPOSITORY, backing.address, reason)


def _manifest(
    number: int, began_ms: int, place: StoreDir, target: PointTarget, filled: Filled
) -> PointManifest:
    head = PointHead(
        number=number,
        began_ms=began_ms,
        ended_ms=max(time.time_ns() // 1_000_000, began_ms),
        broker_name=filled.broker_name,
        source=place.root,
        queues=0,
        messages=0,
        low=0,
        high=0,
        bytes=sum(part.length for file in target.files.values() for part in file.parts),
        linked_bytes=target.linked_bytes,
        written_bytes=target.written_bytes,
        left_out=filled.left_out,
    )
    return PointManifest(head, target.folders, target.files)


def _read_back(backing: Backing, manifest: PointManifest) -> Snapshot:
    """Return the bounds of the point as a read of it finds them; raises if it cannot be read."""
    number = manifest.head.number
    wanted = WantedPoint("number", number, str(number))
    files = PointFiles(backing, wanted, manifest)
    return take_at_rest(PointFolder(f"{backing.address}@{number}", files))


def _head(head: PointHead, found: Snapshot) -> PointHead:
    return replace(
        head,
        queues=len(found.queues),
        messages=sum(queue.high - queue.low for queue in found.queues),
        low=found.low,
        high=found.high,
    )
