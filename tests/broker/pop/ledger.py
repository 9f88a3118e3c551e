"""What a group was given and what it acknowledged, as its client knows it.

A message is acknowledged when no delivery of it is open and it was delivered. A delivery is open
from its pop until it is acknowledged, or replaced: by a change of its time, by the pop of the copy
that the broker made when its time was over, in a FIFO group by the next pop of the same place.

A broker may copy a message twice: one that was killed does so with all that it had copied since it
wrote its offsets. So what its retry topic holds and nobody popped waits too, acknowledged or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.pop.remote import Handle

Place = tuple[str, int, int]
"""Topic, queueId, queue offset."""
LATEST_ACK_MS = 2_500
"""An acknowledgement later than this before the time is over may come too late: none is sent."""


@dataclass
class Ledger:
    """One group and one topic."""

    topic: str
    group: str
    is_fifo: bool = False
    sent: dict[str, Place] = field(default_factory=dict)
    never_popped: set[str] = field(default_factory=set)
    open: dict[str, list[Handle]] = field(default_factory=dict)
    popped_places: set[Place] = field(default_factory=set)
    deliveries: list[Handle] = field(default_factory=list)
    acked_ms: dict[str, int] = field(default_factory=dict)
    """When a message was acknowledged last."""

    def send(self, uniq_key: str, place: Place) -> None:
        """Note a message that the broker stored."""
        self.sent[uniq_key] = place
        self.never_popped.add(uniq_key)

    def pop(self, handle: Handle) -> None:
        """Note a delivery."""
        self.deliveries.append(handle)
        self.never_popped.discard(handle.uniq_key)
        held = self.open.setdefault(handle.uniq_key, [])
        is_again = handle.place in self.popped_places
        self.popped_places.add(handle.place)
        if self.is_fifo:
            held.clear()
        elif handle.topic != self.topic and not is_again:
            revived = [h for h in held if h.visible_ms <= handle.pop_ms]
            if revived:
                held.remove(min(revived, key=lambda h: h.visible_ms))
        held.append(handle)

    def ack(self, handle: Handle, now_ms: int) -> None:
        """Note an acknowledgement."""
        self.open[handle.uniq_key].remove(handle)
        self.acked_ms[handle.uniq_key] = now_ms

    def change(self, old: Handle, new: Handle) -> None:
        """Note another time of a delivery."""
        held = self.open[old.uniq_key]
        held[held.index(old)] = new

    @property
    def unacknowledged(self) -> set[str]:
        """The messages that were never delivered, or of which a delivery is open."""
        return self.never_popped | {key for key, held in self.open.items() if held}

    def expected(self, copies: Mapping[Place, str]) -> set[str]:
        """Return the messages that wait, where ``copies`` are what the retry topic holds."""
        waiting = {key for place, key in copies.items() if place not in self.popped_places}
        return self.unacknowledged | waiting

    def handles(self) -> list[Handle]:
        """Return the deliveries that are open."""
        return [handle for held in self.open.values() for handle in held]
