"""Deliveries of messages to consumer groups, made of the events that consumers traced.

A delivery is a call of the listener with the message: SubBefore is its start, SubAfter its end, and
both have the call's requestId. Events of one message come in any order and some never come, so
nothing is said of a delivery that its events do not say.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mqstore.format.trace_entries import SUB_AFTER, SUB_BEFORE, TraceEntry

MAX_DELIVERIES: Final = 1_000_000
"""Held at the same time: about 300 bytes each; one with longer names counts as several."""
_DELIVERY_BYTES: Final = 300


class TooManyDeliveriesError(Exception):
    """There are more than MAX_DELIVERIES."""


@dataclass(slots=True)
class Delivery:
    """One delivery; times are epoch ms of the consumer's clock, None where no event says them."""

    start_ms: int | None = None
    end_ms: int | None = None
    success: bool | None = None
    reconsume_times: int | None = None
    result: str | None = None
    request_id: str | None = None

    @property
    def work_ms(self) -> int | None:
        """The duration of the call; None unless both its events are there."""
        if self.start_ms is None or self.end_ms is None:
            return None
        return self.end_ms - self.start_ms


@dataclass(slots=True)
class Delivered:
    """The deliveries of one message to one group, by requestId."""

    deliveries: dict[str, Delivery] = field(default_factory=dict)

    def first(self) -> Delivery | None:
        """Return the first delivery: that of no failed one before; None if it is not traced."""
        fresh = [one for one in self.deliveries.values() if one.reconsume_times == 0]
        return min(fresh, key=_in_time, default=None)

    def retries_ms(self) -> int | None:
        """Return the time from the end of the first delivery to the start of the last one.

        None unless both are traced, and differ.
        """
        first = self.first()
        again = [one.start_ms for one in self.deliveries.values() if one.reconsume_times]
        last_ms = max((start for start in again if start is not None), default=None)
        if first is None or first.end_ms is None or last_ms is None:
            return None
        return last_ms - first.end_ms

    def consumed_ms(self) -> int | None:
        """Return the end of the first delivery that succeeded; None if none is traced."""
        ends = (one.end_ms for one in self.deliveries.values() if one.success)
        return min((end for end in ends if end is not None), default=None)

    def in_order(self) -> list[Delivery]:
        """Return the deliveries by their start, those without one last."""
        return sorted(self.deliveries.values(), key=_in_time)


class Deliveries:
    """The deliveries of chosen messages, by the message's number and the group."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], Delivered] = {}
        self._count = 0

    def add(self, number: int, entry: TraceEntry) -> None:
        """Add an event of a message; one without a group, as of old clients, says nothing here.

        Raises TooManyDeliveriesError.
        """
        if entry.event not in {SUB_BEFORE, SUB_AFTER} or entry.group is None:
            return
        key = number, entry.group
        of_message = self._found.get(key)
        if of_message is None:
            of_message = self._found[key] = Delivered()
        request = entry.request_id or ""
        delivery = of_message.deliveries.get(request)
        if delivery is None:
            self._count += 1 + (len(request) + len(entry.group)) // _DELIVERY_BYTES
            if self._count > MAX_DELIVERIES:
                raise TooManyDeliveriesError
            delivery = of_message.deliveries[request] = Delivery(request_id=request)
        if entry.event == SUB_BEFORE:
            delivery.start_ms = entry.timestamp_ms
            delivery.reconsume_times = entry.reconsume_times
        else:
            delivery.end_ms = entry.timestamp_ms
            delivery.success, delivery.result = entry.success, entry.result

    def __iter__(self) -> Iterator[tuple[int, str, Delivered]]:
        """Yield each message's number, a group, and the deliveries to it."""
        return ((number, group, found) for (number, group), found in self._found.items())


def _in_time(delivery: Delivery) -> tuple[bool, int]:
    return delivery.start_ms is None, delivery.start_ms or 0


def of_one(entries: Iterable[TraceEntry]) -> dict[str, Delivered]:
    """Return the deliveries of one message by group."""
    found = Deliveries()
    for entry in entries:
        found.add(0, entry)
    return {group: delivered for _, group, delivered in found}
