"""When brokers will delete the first messages that groups have not consumed.

Queues in which no group lags cost nothing, and of the others the first _MOST_PLACED are looked at.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from mqstore.backlog import BacklogItem
from mqstore.backlog.standing import Standing
from mqstore.errors import StoreError
from mqstore.read.capabilities import DeletesFiles
from mqstore.read.retention import LogState, RetentionPolicy
from mqstore.read.source import BoundsSource, RecordSource, Snapshot
from mqstore.tables.absence import raise_absence
from mqstore.tables.looks import PastLook, QueueOfBroker, log_drifts
from mqstore.tables.table import TableRequest
from mqstore.verdicts.loss import Loss, Retention, StoredAt, loss_of

_LOG: Final = logging.getLogger(__name__)
_MOST_PLACED: Final = 500
_Pairs = Sequence[tuple[BoundsSource, Snapshot]]


@dataclass(frozen=True, slots=True)
class Retained:
    """Retention by broker, and where the first unconsumed message of a group in a queue lies.

    ``places`` has its physical offset, and when its file was last written, if that is known.
    """

    brokers: Mapping[str, Retention]
    places: Mapping[tuple[str, QueueOfBroker], tuple[int, int | None]]

    def loss(
        self, group: str, queue: QueueOfBroker, stored_ms: int | None, now_ms: int
    ) -> Loss | None:
        """Return when the first unconsumed message will be deleted; None: not known, or not."""
        broker, place = self.brokers.get(queue[0]), self.places.get((group, queue))
        if broker is None or place is None or stored_ms is None:
            return None
        return loss_of(StoredAt(place[0], min(stored_ms, now_ms), place[1]), broker, now_ms)


def retained(
    pairs: _Pairs,
    items: Sequence[BacklogItem],
    request: TableRequest,
    states: Mapping[str, LogState],
    looks: Sequence[PastLook],
    now_ms: int,
) -> Retained:
    """Return what is known of retention, for the groups that lag."""
    starts = Standing.of(items).start.tolist() if items else []
    # What tiered storage has is not lost with the files of the local log.
    behind = [
        (item, at)
        for item, at in zip(items, starts, strict=True)
        if at < item.high and item.local_low is None
    ]
    brokers: dict[str, Retention] = {}
    places: dict[tuple[str, QueueOfBroker], tuple[int, int | None]] = {}
    names = {item.broker_name for item, _ in behind}
    for source, held in pairs:
        name, state = held.broker_name, states.get(held.broker_name)
        if name not in names or state is None or not isinstance(source, DeletesFiles):
            continue
        try:
            policy = _policy(source, request)
            if policy is None:
                continue
            drifts = log_drifts(looks, name, state, now_ms)
            zone = datetime.now().astimezone().tzinfo if state.is_here else None
            brokers[name] = Retention(policy, state, *drifts, zone)
            found = _MessagePlaces(source, state)
            for item, start in behind[:_MOST_PLACED]:
                if item.broker_name == name:
                    place = found.of(item, start)
                    if place is not None:
                        places[item.group, (name, item.topic, item.queue_id)] = place
        except (StoreError, OSError) as error:
            raise_absence(error)
            _LOG.info("the retention of %s is not known: %s", name, error)
    return Retained(brokers, places)


def _policy(source: DeletesFiles, request: TableRequest) -> RetentionPolicy | None:
    """Return the option's settings, else the broker's; fileReservedTime is over both."""
    told = request.retention
    if told is None:
        told = source.retention_policy()
    if request.kept_ms is None:
        return told
    return replace(told or RetentionPolicy(), kept_ms=request.kept_ms)


class _MessagePlaces:
    """Where messages of one broker lie, and when the files of them were last written."""

    def __init__(self, source: DeletesFiles, state: LogState) -> None:
        self._source, self._state = source, state
        self._written: dict[int, int | None] = {}

    def of(self, item: BacklogItem, start: int) -> tuple[int, int | None] | None:
        """Return the physical offset of a message, and when its file was last written (ms)."""
        queue = item.topic, item.queue_id
        with closing(item.origin.records()) as records:
            units = next(iter(records.units(queue, start, start + 1)), None)
            if units is None or not len(units):
                return None
            physical_offset = int(units.physical_offsets[0])
            file = self._state.file_of(physical_offset)
            if file not in self._written:
                self._written[file] = self._file_written_ms(records, file)
        return physical_offset, self._written[file]

    def _file_written_ms(self, records: RecordSource, file: int) -> int | None:
        if self._state.is_here:
            return self._source.file_written_ms(file)
        if file >= self._state.last_file:
            return None
        # The next file begins with the message that was stored when this one was full.
        end = file + self._state.file_bytes
        following = records.locate({end: ""}).get(end)
        return None if following is None else following.store_timestamp_ms
