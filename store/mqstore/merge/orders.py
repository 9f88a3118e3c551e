"""The order of changes whose producer gives no sequence: by the queue in which they lie."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from mqstore.merge.errors import NoChangeOrderError


@dataclass(slots=True)
class QueueOrder:
    """What is known of the order of one table's changes, which have no sequence.

    The sequence of such a change is (time at which its message was stored, its offset), which is an
    order within a queue. Where a row's key changed, its change lies in the queue of the new key
    alone, so there is no order if the table's changes are in several queues.

    queues: those that have changes of the table. moved: where a key changed first; "" if none did.
    latest_ms: by queue, the latest time at which a message was stored.
    """

    queues: set[str] = field(default_factory=set)
    moved: str = ""
    latest_ms: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the order that ``as_json`` gave."""
        return cls(set(value["queues"]), value["moved"], dict(value["latestMs"]))

    def as_json(self) -> dict[str, Any]:
        """Return the order as a value of JSON."""
        return {"queues": sorted(self.queues), "moved": self.moved, "latestMs": self.latest_ms}

    def see(self, queue: str, queue_offset: int, stored_ms: int, *, is_moved: bool) -> bool:
        """Take a change; return whether the clock of its broker went back before it."""
        self.queues.add(queue)
        if is_moved and not self.moved:
            self.moved = f"{queue}, offset {queue_offset}"
        latest = self.latest_ms.get(queue, stored_ms)
        self.latest_ms[queue] = max(latest, stored_ms)
        return stored_ms < latest

    def check(self, table: str) -> None:
        """Raise NoChangeOrderError if the table's changes have no order."""
        if self.moved and len(self.queues) > 1:
            raise NoChangeOrderError(table, f"{len(self.queues)} queues", self.moved)
