"""Writes of streams: the key of a micro-batch, and the staging folders that failed ones left.

Spark aborts a micro-batch through a writer that knows what the tasks said and nothing else. If
none said anything, only the stream itself knows that a folder is its own: by the file OWNER in
it, which holds a hash of what the stream is called.

    <staging>/<job>/OWNER     64 hex digits
"""

import hashlib
import os
from contextlib import suppress
from dataclasses import replace

from mqstore.errors import StoreLockedError
from mqstore.files.base import durable
from mqstore.files.base.directory import Directory, descriptor
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.lock.store_lock import StoreHold
from mqstore.files.txn import intent, staging
from mqstore.files.txn.ledger import Key
from mqstore.format.names import OURS, STAGING
from mqstore.write.stage.job import WriteJob
from mqstore.write.stage.settings import WriteSettings

_OWNER = "OWNER"
_HEX_DIGITS = 64


def of_batch(job: WriteJob, query_id: str, batch_id: int) -> WriteJob:
    """Return the job as that of a micro-batch, which is committed once however often it is run."""
    return replace(job, key=Key.of_stream(query_id, batch_id))


def claim(job: WriteJob, stream: str) -> None:
    """Say in the job's staging folder whose it is. Raises OSError."""
    fd = durable.create(f"{job.target.staging}/{_OWNER}")
    try:
        durable.write_at(fd, _hash(stream), 0)
    finally:
        durable.close(fd)


def sweep(settings: WriteSettings, stream: str, *, before_ns: int) -> int:
    """Remove what the stream staged before that time (epoch) and no commit needs.

    Returns how many folders that were. A store that another process writes to is left for later.
    Raises UnsupportedStoreError, CorruptConfigError, OSError.
    """
    folder = os.path.abspath(settings.staging_dir or f"{settings.root}/{OURS}/{STAGING}")  # noqa: PTH100
    if not _left(folder, stream, before_ns):
        return 0
    place = StoreDir.at(settings.root)
    hold = StoreHold(place.root, timeout_ms=0, allow_no_lease=settings.allow_no_lease)
    with suppress(StoreLockedError), hold:
        decided = intent.load(place)
        needed = decided.directory(place) if decided else None
        left = [path for path in _left(folder, stream, before_ns) if path != needed]
        for path in left:
            staging.remove(path)
        if settings.staging_dir is None:
            staging.remove_directories([folder])  # Unless other jobs stage there.
        return len(left)
    return 0


def _left(folder: str, stream: str, before_ns: int) -> list[str]:
    """Return the stream's own folders that are older than that."""
    try:
        jobs = filter(staging.JOB_ID.fullmatch, Directory(folder).names())
    except FileNotFoundError:
        return []
    paths = (f"{folder}/{name}" for name in jobs)
    return [path for path in paths if _is_of(path, stream, before_ns)]


def _is_of(directory: str, stream: str, before_ns: int) -> bool:
    try:
        fd = descriptor(Directory(directory), _OWNER)
    except OSError:
        return False
    try:
        made_ns = os.fstat(fd).st_mtime_ns
        return made_ns < before_ns and os.pread(fd, _HEX_DIGITS, 0) == _hash(stream)
    finally:
        os.close(fd)


def _hash(stream: str) -> bytes:
    return hashlib.sha256(stream.encode()).hexdigest().encode()
