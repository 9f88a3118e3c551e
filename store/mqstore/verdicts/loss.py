"""When a broker will delete a message: by age, or by the room on its disk.

A file goes when it has expired: ``kept_ms`` after it was last written, at an hour of
``deleteWhen``, or at once while the disk is fuller than diskMaxUsedSpaceRatio. And above
diskSpaceCleanForciblyRatio ten files go every ten seconds, the first ones, expired or not, but
never the one that is written.

Reference: DefaultMessageStore.CleanCommitLogService#deleteExpiredFiles, #isSpaceToDelete;
MappedFileQueue#deleteExpiredFileByTime; MessageStoreConfig#cleanResourceInterval.
"""

from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Final

from mqstore.read.retention import HOUR_MS, DiskUse, LogState, RetentionPolicy
from mqstore.verdicts.rates import FOR_EVER_MS, Drift, Spread

LOST_BY_TIME: Final = "TIME"
LOST_BY_DISK: Final = "DISK"
_FILES_AT_ONCE: Final = 10
"""MessageStoreConfig#deleteFileBatchMax."""
_TICK_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Retention:
    """What is known of a broker's retention: its settings, its CommitLog, how fast this grows.

    ``log_drift`` is in bytes of the CommitLog, ``disk_drift`` in bytes of its disk; None: not
    known. ``zone`` is that of the broker's hours; None: not known.
    """

    policy: RetentionPolicy
    log: LogState
    log_drift: Drift | None = None
    disk_drift: Drift | None = None
    zone: tzinfo | None = None

    @property
    def growth(self) -> Drift | None:
        """How fast the disk fills: as was seen of a disk here, else as the CommitLog grows.

        What brokers tell of their disks is rounded.
        """
        if self.log.is_here:
            return self.disk_drift or self.log_drift
        return self.log_drift or self.disk_drift


@dataclass(frozen=True, slots=True)
class StoredAt:
    """Where a message lies, and when its file was last written, as far as that is known (ms)."""

    physical_offset: int
    stored_ms: int
    file_written_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """When a message is deleted (epoch ms), at the earliest and the latest, and why.

    ``latest_ms`` is None where it may never be.
    """

    at_ms: int
    earliest_ms: int
    latest_ms: int | None
    by: str


def loss_of(message: StoredAt, broker: Retention, now_ms: int) -> Loss | None:
    """Return when a message will be deleted; None if that is not known, or will not be."""
    found = [one for rule in (_by_time, _by_disk) if (one := rule(message, broker, now_ms))]
    if not found:
        return None
    first = min(found, key=lambda one: one.at_ms)
    latest = [one.latest_ms for one in found if one.latest_ms is not None]
    earliest = min(one.earliest_ms for one in found)
    return Loss(first.at_ms, earliest, min(latest, default=None), first.by)


def _by_time(message: StoredAt, broker: Retention, now_ms: int) -> Loss | None:
    written = _written(message, broker, now_ms)
    if written is None:
        return None
    at, earliest, latest = written
    kept_ms = broker.policy.kept_ms
    if at + kept_ms > now_ms + FOR_EVER_MS:
        return None
    due = _deleted_ms(at + kept_ms, broker, now_ms)
    first = max(earliest + kept_ms, now_ms)
    if broker.zone is not None and broker.growth is None:
        first = _deleted_ms(earliest + kept_ms, broker, now_ms)
    if latest is None:
        return Loss(due, min(first, due), None, LOST_BY_TIME)
    last = max(latest + kept_ms, now_ms) + _longest_gap_ms(broker.policy)
    if broker.zone is not None:
        last = _next_hour(latest + kept_ms, broker, now_ms) + 2 * _TICK_MS
    return Loss(due, min(first, due), max(last, due), LOST_BY_TIME)


def _written(
    message: StoredAt, broker: Retention, now_ms: int
) -> tuple[int, int, int | None] | None:
    """Return when the message's file is full: at the earliest and the latest; None: not known."""
    log, grows = broker.log, broker.log_drift
    file = log.file_of(message.physical_offset)
    if message.file_written_ms is not None and file < log.last_file:
        return message.file_written_ms, message.file_written_ms, message.file_written_ms
    end = file + log.file_bytes
    if file < log.last_file:  # Full, and when it became full is not told.
        fills = grows.reach_ms(end - message.physical_offset) if grows else None
        latest = now_ms
        if fills is None:
            return message.stored_ms, message.stored_ms, latest
        at = min(message.stored_ms + int(fills.value), now_ms)
        if fills.high is not None:
            latest = min(message.stored_ms + int(fills.high), now_ms)
        return at, message.stored_ms, max(latest, at)
    since_ms, start = log.filled[-1][::-1] if log.filled else (now_ms, log.high)
    fills = grows.reach_ms(max(end - start, 1)) if grows else None
    if fills is None:
        return None
    low, high = fills.low or 0.0, fills.high
    at = max(since_ms + int(fills.value), now_ms)
    upto = None if high is None else max(since_ms + int(high), at)
    return at, max(min(since_ms + int(low), at), now_ms), upto


def _by_disk(message: StoredAt, broker: Retention, now_ms: int) -> Loss | None:
    log, forced = broker.log, broker.policy.forced_above
    if forced is None or log.disk is None:
        return None
    batch = log.index_of(message.physical_offset) // _FILES_AT_ONCE
    over = forced * log.disk.size - log.disk.used + batch * _FILES_AT_ONCE * log.file_bytes
    if log.file_of(message.physical_offset) >= log.last_file:
        over = max(over, float(log.file_bytes))
    if over < 0:
        ms = now_ms + (batch + 1) * _TICK_MS
        return Loss(ms, now_ms, ms + _TICK_MS, LOST_BY_DISK)
    fills = broker.growth.reach_ms(over) if broker.growth else None
    if fills is None or fills.high is None:
        return None  # Or the error of the rate is as large as the rate.
    return _from_now(fills, now_ms, LOST_BY_DISK)


def _from_now(ahead: Spread, now_ms: int, by: str) -> Loss:
    latest = None if ahead.high is None else now_ms + int(ahead.high) + 2 * _TICK_MS
    at = now_ms + int(ahead.value)
    return Loss(at, now_ms + int(ahead.low or 0.0), latest, by)


def _deleted_ms(due_ms: int, broker: Retention, now_ms: int) -> int:
    """Return when a file that expires then is deleted: at an hour, or while the disk is full."""
    at = _next_hour(due_ms, broker, now_ms)
    disk, above = broker.log.disk, broker.policy.reclaimed_above
    if disk is None or not disk.size:
        return at
    if _is_above(disk, above):
        return max(due_ms, now_ms)
    fills = broker.growth.reach_ms(above * disk.size - disk.used) if broker.growth else None
    return at if fills is None else min(at, max(due_ms, now_ms + int(fills.value)))


def _is_above(disk: DiskUse, part: float) -> bool:
    return disk.used > part * disk.size


def _next_hour(due_ms: int, broker: Retention, now_ms: int) -> int:
    """Return the first ms from then on that is in one of the hours; of this machine's zone."""
    at_ms = max(due_ms, now_ms)
    for _ in range(2 * 24):
        local = datetime.fromtimestamp(at_ms / 1000, broker.zone).astimezone(broker.zone)
        if local.hour in broker.policy.hours:
            return at_ms
        past = (local.minute * 60 + local.second) * 1000 + local.microsecond // 1000
        at_ms += HOUR_MS - past
    return at_ms


def _longest_gap_ms(policy: RetentionPolicy) -> int:
    """Return the longest time from the end of one of the hours to the next one."""
    hours = sorted(policy.hours)
    ends = [*hours[1:], hours[0] + 24]
    return max(after - hour - 1 for hour, after in zip(hours, ends, strict=True)) * HOUR_MS
