"""How many records of a replica lie behind where its group agreed, and are left out of reads."""

from dataclasses import dataclass

from mqstore.derive.log_walk import LogWalk
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.log.log_end import after_blank
from mqstore.files.log.replica_log import READ_UNCOMMITTED, ReplicaLog


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """Records from physical offset ``start`` on that a log has and a read leaves out."""

    root: str
    start: int
    count: int

    def __str__(self) -> str:
        return self.left_out(f"{READ_UNCOMMITTED}=true takes all that the log has")

    def left_out(self, advice: str) -> str:
        """Return a line about it that ends in ``advice``."""
        records, are = ("records", "are") if self.count > 1 else ("record", "is")
        return (
            f"{self.root}: {self.count} {records} behind physical offset {self.start} {are} left "
            "out: nothing on this disk tells that the group of this replica agreed on more. "
            f"{advice}"
        )


def unconfirmed(place: StoreDir, log: CommitLog) -> Unconfirmed | None:
    """Return what a read of a replica by its log leaves out; None if that is nothing."""
    if not isinstance(log, ReplicaLog):
        return None
    count = records_behind(place, log.committed_end)
    return Unconfirmed(place.root, log.committed_end, count) if count else None


def records_behind(place: StoreDir, physical_offset: int, end: int | None = None) -> int:
    """Return how many sound records follow each other from there on, up to ``end`` if it is given.

    Where a log was cut, what was there before may still follow its end.
    """
    with CommitLog(place.commit_log) as log:
        walk, count = LogWalk(log, after_blank(log, physical_offset)), 0
        for records in walk.records():
            if end is not None and walk.tail >= end:
                return count + int((records.physical_offsets < end).sum())
            count += len(records)
        return count
