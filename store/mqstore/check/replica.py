"""Check what only a replica of a controller's group has: its epochs, and its unconfirmed tail."""

from collections.abc import Iterator, Sequence

from mqstore.check.finding import FindingPlace, Findings
from mqstore.derive.log_walk import LogWalk
from mqstore.derive.unconfirmed import records_behind
from mqstore.errors import StoreError
from mqstore.files.base.folder import Folder
from mqstore.files.base.store_dir import Root, StoreDir, open_dir
from mqstore.files.config.epochs import load_epochs
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_end import after_blank
from mqstore.files.log.replica_log import ReplicaLog
from mqstore.files.store import Store
from mqstore.format.epochs import EPOCH_FILE
from mqstore.format.names import CHECKPOINT

_CONFIRM_POSITION = 32


def confirmed_end(store: Store, findings: Findings) -> int | None:
    """Return where the group agreed; report what lies behind it, and epochs that are damaged.

    Where it cannot be known that is an error, and all that is written counts.
    """
    try:
        load_epochs(store.place)
    except StoreError as error:
        findings.error(FindingPlace(EPOCH_FILE), error.message())
    log, place = store.log, FindingPlace(CHECKPOINT, _CONFIRM_POSITION)
    if not isinstance(log, ReplicaLog):
        return None
    try:
        log.check_committed()
    except StoreError as error:
        findings.error(place, error.message())
        return log.committed_end
    for problem in doubts(store.place, log):
        findings.warning(place, problem)
    return log.committed_end


def doubts(place: StoreDir, log: ReplicaLog) -> Iterator[str]:
    """Yield what is not known of the records of a replica: how many of them, and which."""
    end, confirmed = log.committed_end, log.confirmed or 0
    behind = records_behind(place, end)
    if behind:
        yield (
            f"{behind} records lie behind physical offset {end}, and nothing here tells that the "
            "group of this replica agreed on them: no consumer gets them"
        )
    entered = records_behind(place, confirmed, end) if confirmed < end else 0
    if entered:
        yield (
            f"{entered} records that consumers get lie behind the confirmed offset {confirmed}: "
            "agreed on if this broker was master alone, else perhaps not"
        )


def doubts_of(root: Root, commit_log: Sequence[str | Folder] = ()) -> list[str]:
    """Return what ``doubts`` says of the store at ``root``; nothing of any other than a replica.

    Raises as ``open_dir``, and CorruptStoreError where nothing tells how far the group agreed.
    """
    place = open_dir(root, commit_log, by_log=True)
    if not place.is_replica:
        return []
    log = ReplicaLog(place)
    with log:
        log.check_committed()
        return list(doubts(place, log))


def last_behind(store: Store, end: int, last: tuple[int, int]) -> tuple[int, int]:
    """Return storeTimestamp in ms and physical offset of the last record, also behind the agreed.

    A broker flushes records before they are confirmed, and its checkpoint tells of these.
    """
    with CommitLog(store.place.commit_log) as log:
        walk = LogWalk(log, after_blank(log, end)).to_end()
    if walk.last_physical_offset < 0:
        return last
    return max(last[0], walk.last_store_timestamp_ms), walk.last_physical_offset
