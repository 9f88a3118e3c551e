"""``mqlog recover``: bring a store that was left in the middle of a write back into order.

A write does the first of these steps by itself; the others are for whom has no write to do, or
whose store's derived files are lost.
"""

import os
import secrets
from dataclasses import dataclass

from mqstore.derive.damage import BeyondLogEnd
from mqstore.derive.log_end import find_log_end
from mqstore.derive.rebuild import Rebuilt, recovery_start
from mqstore.errors import UncleanStoreError
from mqstore.files.config import checkpoint, config_write
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_clear import remove_files_behind
from mqstore.files.store_dir import check_writable, open_dir
from mqstore.files.undo import Undo
from mqstore.format import names
from mqstore.stage.settings import WriteSettings
from mqstore.txn import intent, staging
from mqstore.txn.intent import Intent
from mqstore.txn.ledger import Key
from mqstore.write.log_tail import clear_tail
from mqstore.write.resume import fresh_temp_dir, hold, repair, roll, sizes_of

_EVERYWHERE = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverSettings:
    """What ``recover`` may do.

    ``rebuild`` makes ConsumeQueues and IndexFiles anew from the whole CommitLog.
    ``recover_unclean`` goes on where a broker was killed: its last messages are entered into
    their queues, and what lies behind the end of the log is moved to .mqlog/quarantine.
    ``cut_at_damage`` lets a log that is damaged end there, whatever lies behind, which is moved
    there as well; it makes all anew, as ``rebuild`` does.
    ``assume`` says of a commit nobody can look up any more that it is ``published`` or ``lost``.
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
    store = open_dir(root)
    check_writable(store)
    writing = WriteSettings(
        root=store.root,
        lock_timeout_ms=settings.lock_timeout_ms,
        allow_no_lease=settings.allow_no_lease,
        recover_unclean=settings.recover_unclean,
        staging_dir=settings.staging_dir,
    )
    with hold(store.root, writing) as check:
        was_unclean = store.is_unclean
        lost = _assumed(store.root, settings.assume)
        behind = _behind(settings)
        gives_up = behind is BeyondLogEnd.ANY
        finished = roll(store, writing, check, behind if gives_up else None)
        left = finished or lost
        known_to = lost.end if lost else 0
        rebuilt: Rebuilt | None = None
        temp_dir = fresh_temp_dir(store.root, secrets.token_hex(16))
        if settings.rebuild or gives_up:
            with CommitLog(store.commit_log) as log:
                low = log.low
            rebuilt = repair(store, low, sizes_of(store), temp_dir, behind=behind)
        elif settings.recover_unclean:
            start = recovery_start(store)
            rebuilt = repair(store, start, sizes_of(store), temp_dir, behind=behind)
        found = find_log_end(
            store, known_to=known_to if behind is BeyondLogEnd.NONE else _EVERYWHERE
        )
        clear_tail(store, found, Undo())
        remove_files_behind(store, found.tail)
        _calm_index_clock(store.root, found.last_store_timestamp_ms, temp_dir)
        staging.remove_directories([temp_dir])
        staging.collect(f"{store.root}/{names.OURS}/{names.STAGING}")
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


def _calm_index_clock(root: str, last_ms: int, temp_dir: str) -> None:
    """Let the checkpoint allow for no commit that was killed before it was decided."""
    noted = checkpoint.load(root)
    if noted is not None and int(noted["index_msg_timestamp"]) > last_ms:
        fields = {"index_msg_timestamp": last_ms}
        config_write.replace_checkpoint(root, fields, temp_dir, Undo())


def _assumed(root: str, assume: str | None) -> Intent | None:
    """Settle an intent as the user says; return it, or None if nothing was to be settled."""
    left = intent.load(root) if assume else None
    if left is None:
        return None
    temp_dir = fresh_temp_dir(root, left.job_id)
    if assume == intent.PUBLISHED:
        intent.store(root, intent.published(left), temp_dir)
        return None
    if left.state == intent.PUBLISHED:
        raise UncleanStoreError(f"{root}: commit {left} is published, it cannot be assumed lost")
    intent.raise_sequence(root, left.tail)
    intent.remove(root)
    return left
