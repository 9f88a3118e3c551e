"""Check what only a replica of a controller's group has: its epochs, and its unconfirmed tail."""

from mqstore.check.finding import FindingPlace, Findings
from mqstore.derive.log_walk import LogWalk
from mqstore.derive.unconfirmed import records_behind
from mqstore.errors import StoreError
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
    end, confirmed = log.committed_end, log.confirmed or 0
    behind = records_behind(store.place, end)
    if behind:
        problem = (
            f"{behind} records lie behind physical offset {end}, and nothing here tells that the "
            "group of this replica agreed on them: no consumer gets them"
        )
        findings.warning(place, problem)
    entered = records_behind(store.place, confirmed, end) if confirmed < end else 0
    if entered:
        problem = (
            f"{entered} records that consumers get lie behind the confirmed offset {confirmed}: "
            "agreed on if this broker was master alone, else perhaps not"
        )
        findings.warning(place, problem)
    return end


def last_behind(store: Store, end: int, last: tuple[int, int]) -> tuple[int, int]:
    """Return storeTimestamp in ms and physical offset of the last record, also behind the agreed.

    A broker flushes records before they are confirmed, and its checkpoint tells of these.
    """
    with CommitLog(store.place.commit_log) as log:
        walk = LogWalk(log, after_blank(log, end)).to_end()
    if walk.last_physical_offset < 0:
        return last
    return max(last[0], walk.last_store_timestamp_ms), walk.last_physical_offset
