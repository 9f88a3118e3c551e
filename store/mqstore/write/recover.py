"""``mqlog recover``: bring a store that was left in the middle of a write back into order.

A write finishes an earlier commit by itself; the other steps are for a store that is not written
to now, or whose derived files are lost.
"""

import os
from dataclasses import dataclass

from mqstore.derive.damage import BeyondLogEnd
from mqstore.derive.log_end import find_log_end
from mqstore.derive.rebuild import Rebuilt, recovery_start
from mqstore.errors import UncleanStoreError
from mqstore.files.base.store_dir import check_writable, open_dir
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.config import checkpoint, config_write
from mqstore.files.log.log_clear import remove_files_behind
from mqstore.files.store import Store
from mqstore.files.txn import intent, staging
from mqstore.files.txn.intent import Intent
from mqstore.files.txn.ledger import Key
from mqstore.format import names
from mqstore.write.apply import clear_tail
from mqstore.write.locked import LockedStore
from mqstore.write.resume import repair, resume
from mqstore.write.stage.settings import WriteSettings

_EVERYWHERE = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverSettings:
    """What ``recover`` may do.

    ``rebuild`` makes ConsumeQueues and IndexFiles anew from the whole CommitLog.
    ``recover_unclean`` goes on where a broker was killed: its last messages are entered into
    their queues, and what lies behind the end of the log is moved to .mqlog/quarantine.
    ``cut_at_damage`` lets a log that is damaged end there, whatever lies behind, which is moved
    there as well; it makes all anew, as ``rebuild`` does.
    ``assume`` says of a commit whose staged files are gone that it is ``published`` or ``lost``.
    """

    lock_timeout_ms: int = 0
    allow_no_lease: bool = False
    recover_unclean: bool = False
    rebuild: bool = False
    cut_at_damage: bool = False
    staging_dir: str | None = None
    assume: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What was found and done. Physical offsets are bytes of the CommitLog."""

    key: Key | None
    job_id: str | None
    """Of the commit that was finished; None if there was none."""
    state: str | None
    """What it was before: decided or published."""
    was_unclean: bool
    """There was a file ``abort``."""
    tail: int
    """Physical offset where the next record goes."""
    cleared_bytes: int
    """Bytes behind it that were no zeros and are now."""
    rebuilt: Rebuilt | None


def recover(root: str | os.PathLike[str], settings: RecoverSettings) -> Recovered:
    """Finish or undo what was left, and clear the tail of the log.

    Raises StoreLockedError while a broker or another writer holds the store, UncleanStoreError
    if a broker was killed on it and ``recover_unclean`` is not set, CommitInDoubtError,
    CorruptStoreError (where the log is damaged and ``cut_at_damage`` is not set: nothing was
    changed then), UnsupportedStoreError, NoSpaceError, OSError.
    """
    place = open_dir(root)
    check_writable(place)
    writing = WriteSettings(
        root=place.root,
        lock_timeout_ms=settings.lock_timeout_ms,
        allow_no_lease=settings.allow_no_lease,
        recover_unclean=settings.recover_unclean,
        staging_dir=settings.staging_dir,
    )
    with LockedStore(place, writing) as locked:
        was_unclean = place.is_unclean
        lost = _assumed(locked, settings.assume)
        behind = _behind(settings)
        gives_up = behind is BeyondLogEnd.ANY
        finished = resume(locked, behind if gives_up else None)
        left = finished or lost
        known_to = lost.end if lost else 0
        rebuilt: Rebuilt | None = None
        writer = locked.writer(locked.known_sizes())
        if settings.rebuild or gives_up:
            with Store(place) as store:
                low = store.log.low
            rebuilt = repair(writer, low, behind=behind, to_end=True)
        elif settings.recover_unclean:
            with Store(place) as store:
                start = recovery_start(store)
            rebuilt = repair(writer, start, behind=behind, to_end=True)
        with Store(place) as store:
            known_to = known_to if behind is BeyondLogEnd.NONE else _EVERYWHERE
            found = find_log_end(store, known_to=known_to)
        clear_tail(writer, found)
        remove_files_behind(writer, found.tail)
        _limit_index_time(writer, found.last_store_timestamp_ms)
        staging.collect(writer.path(f"{names.OURS}/{names.STAGING}"))
    low, high = found.garbage or (0, 0)
    return Recovered(
        key=left.key if left else None,
        job_id=left.job_id if left else None,
        state=left.state if left else None,
        was_unclean=was_unclean,
        tail=found.tail,
        cleared_bytes=high - low,
        rebuilt=rebuilt,
    )


def _behind(settings: RecoverSettings) -> BeyondLogEnd:
    """Return which records may lie behind the end of the log, and are given up then."""
    if settings.cut_at_damage:
        return BeyondLogEnd.ANY
    return BeyondLogEnd.TORN if settings.recover_unclean else BeyondLogEnd.NONE


def _limit_index_time(writer: StoreWriter, last_ms: int) -> None:
    """Lower the checkpoint's index time to that of the last record.

    A commit that was killed before it was decided may have raised it.
    """
    noted = checkpoint.load(writer.place)
    if noted is not None and int(noted["index_msg_timestamp"]) > last_ms:
        config_write.replace_checkpoint(writer, {"index_msg_timestamp": last_ms})


def _assumed(locked: LockedStore, assume: str | None) -> Intent | None:
    """Settle an intent as the user says; return it, or None if nothing was to be settled."""
    left = intent.load(locked.place) if assume else None
    if left is None:
        return None
    writer = locked.writer(left.sizes)
    if assume == intent.PUBLISHED:
        intent.store(writer, intent.published(left))
        return None
    if left.state == intent.PUBLISHED:
        reason = f"commit {left} is published, it cannot be assumed lost"
        raise UncleanStoreError(f"{locked.root}: {reason}")
    intent.raise_sequence(writer, left.tail)
    intent.remove(writer)
    return left
