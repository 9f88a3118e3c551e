"""Consumers of one group that do as a seed says: pop, acknowledge every k-th, change times, die."""

import random
import time
from dataclasses import dataclass
from typing import Final

from broker.pop.ledger import LATEST_ACK_MS, Ledger
from broker.pop.remote import Handle, Remote
from support.processes import until

SHORT_MS: Final = 3_000
LONG_MS: Final = 900_000


def now_ms() -> int:
    """Return the time."""
    return int(time.time() * 1000)


@dataclass
class Player:
    """One group on a topic of its own; everything is drawn from ``rng``."""

    rng: random.Random
    ledger: Ledger
    queues: int = 2

    @classmethod
    def of(cls, name: str, seed: int, *, is_fifo: bool = False) -> "Player":
        """Return the consumers of a seed; topic and group have names of the same beginning."""
        rng = random.Random(f"{name} {seed}")
        # Underscores, so that %RETRY%GROUP_TOPIC is ambiguous.
        topic, group = f"{name}_t{seed}", f"{name}_g{seed}"
        return cls(rng, Ledger(topic, group, is_fifo), queues=rng.randrange(1, 4))

    def send(self, remote: Remote, count: int) -> None:
        """Send messages to random queues."""
        topic, held = self.ledger.topic, len(self.ledger.sent)
        for number in range(held, held + count):
            key, queue_id = f"{topic}-{number:05d}", self.rng.randrange(self.queues)
            offset = remote.send(topic, queue_id, key, self.queues)
            self.ledger.send(key, (topic, queue_id, offset))

    def pop(self, remote: Remote, most: int, invisible_ms: int, queue_id: int = -1) -> list[Handle]:
        """Pop once, and note it. A FIFO pop is of one queue."""
        ledger = self.ledger
        if ledger.is_fifo and queue_id < 0:
            queue_id = self.rng.randrange(self.queues)
        found = remote.pop(
            ledger.topic,
            ledger.group,
            most,
            invisible_ms,
            queue_id=queue_id,
            fifo=ledger.is_fifo,
            attempt=f"attempt-{self.rng.random()}" if ledger.is_fifo else None,
        )
        for handle in found:
            ledger.pop(handle)
        return found

    def settle(self, remote: Remote, handle: Handle) -> None:
        """Acknowledge, change the time of, or leave a delivery."""
        chance = self.rng.random()
        if now_ms() > handle.visible_ms - LATEST_ACK_MS:
            return
        if chance < 0.5:
            self.ack(remote, handle)
        elif chance < 0.7 and not self.ledger.is_fifo:
            # The change's checkpoint has the time of the change: in the pop's own millisecond
            # nobody, the broker neither, could tell the two apart.
            until(lambda: now_ms() > handle.pop_ms)
            time_ms = self.rng.choice((SHORT_MS, LONG_MS))
            changed = remote.change(self.ledger.group, handle, time_ms)
            self.ledger.change(handle, changed)

    def ack(self, remote: Remote, handle: Handle) -> None:
        """Acknowledge one delivery."""
        remote.ack(self.ledger.group, handle)
        self.ledger.ack(handle, now_ms())

    def play(self, remote: Remote, steps: int) -> None:
        """Send and consume; some deliveries stay open, with long and short times."""
        for _ in range(steps):
            if not self.ledger.sent or self.rng.random() < 0.3:
                self.send(remote, self.rng.randrange(1, 25))
            time_ms = LONG_MS if self.rng.random() < 0.6 else SHORT_MS
            queue_id = self.rng.choice((-1, self.rng.randrange(self.queues)))
            handles = self.pop(remote, self.rng.choice((1, 3, 8, 16, 32)), time_ms, queue_id)
            for handle in handles:
                self.settle(remote, handle)

    def drain(self, remote: Remote, invisible_ms: int = LONG_MS) -> list[Handle]:
        """Pop what is ready, until nothing is; nothing is acknowledged."""
        found: list[Handle] = []
        empty = 0
        while empty < 3:
            before = len(found)
            for queue_id in range(self.queues):
                found += self.pop(remote, 32, invisible_ms, queue_id)
            if not self.ledger.is_fifo:
                found += self.pop(remote, 32, invisible_ms)
            empty = empty + 1 if len(found) == before else 0
        return found

    def finish(self, remote: Remote) -> None:
        """Acknowledge all that is open, also what comes again, once or twice."""

        def is_done() -> bool:
            for handle in self.drain(remote):
                self.ack(remote, handle)
            for held in list(self.ledger.open.values()):
                for handle in list(held):
                    if handle.visible_ms - LATEST_ACK_MS > now_ms():
                        self.ack(remote, handle)
            return not self.ledger.unacknowledged

        until(is_done)
