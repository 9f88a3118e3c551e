"""What a broker is given to do, so that its store holds every kind of message.

The live tests and the golden stores come from this one recipe.
"""

from dataclasses import dataclass
from typing import Final

from broker.harness import Broker, Row

ZIPPED: Final = ("ZipZLIB", "ZipLZ4", "ZipZSTD")
SINGLES: Final = 360
ONE_WAYS: Final = 40
DELAYED: Final = 30
TRANSACTIONS: Final = 30
COMMITTED: Final = TRANSACTIONS // 3
LATE: Final = 80


@dataclass(frozen=True, slots=True)
class Names:
    """Topics, groups and tags of one store; all begin with one letter."""

    letter: str

    @property
    def topic(self) -> str:
        """Singles, compressed and one-way sends."""
        return f"{self.letter}Topic"

    @property
    def batch(self) -> str:
        """Batches."""
        return f"{self.letter}Batch"

    @property
    def order(self) -> str:
        """Ordered sends: a sharding key chooses the queue."""
        return f"{self.letter}Order"

    @property
    def delay(self) -> str:
        """Delay levels 1, 2 and 18; the last is not due for two hours."""
        return f"{self.letter}Delay"

    @property
    def transaction(self) -> str:
        """Transactions: committed, rolled back, unresolved."""
        return f"{self.letter}Tx"

    @property
    def push_group(self) -> str:
        """Consumes the topic by two tags, and fails some."""
        return f"CG_{self.letter}"

    @property
    def pull_group(self) -> str:
        """Committed part of the batch topic."""
        return f"LP_{self.letter}"

    @property
    def tags(self) -> tuple[str, str]:
        """The tags that are not in Chinese."""
        return f"{self.letter}A", f"{self.letter}B"

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that producers send to."""
        return self.topic, self.batch, self.order, self.delay, self.transaction


def produce(broker: Broker, names: Names, compressions: tuple[str, ...] = ZIPPED) -> list[Row]:
    """Send messages of every kind; return what was acknowledged."""

    def send(topic: str, kind: str, count: int) -> list[Row]:
        return broker.produce(topic, kind, count, tags=names.tags)

    sent = send(names.topic, "Single", SINGLES)
    for compression in compressions:
        sent += send(names.topic, compression, 60 // len(compressions))
    sent += send(names.batch, "Batch", 20)
    sent += send(names.order, "Order", 200)
    sent += send(names.delay, "Delay", DELAYED)
    sent += send(names.transaction, "Tx", TRANSACTIONS)
    before = broker.held(names.topic)
    send(names.topic, "OneWay", ONE_WAYS)
    broker.wait_for(names.topic, before + ONE_WAYS)
    return sent


def produce_few(broker: Broker, names: Names, seed: int = 1) -> list[Row]:
    """Send some messages of every kind; return what was acknowledged."""
    sent: list[Row] = []
    for topic, kind, count in (
        (names.topic, "Single", 60),
        (names.topic, "ZipZLIB", 6),
        (names.batch, "Batch", 6),
        (names.order, "Order", 30),
        (names.delay, "Delay", 6),
        (names.transaction, "Tx", 9),
    ):
        sent += broker.produce(topic, kind, count, seed=seed, tags=names.tags)
    return sent


def await_delays(broker: Broker, names: Names) -> None:
    """Wait until ``produce_few`` is over: four of its six delayed messages come soon after."""
    broker.wait_for(names.delay, 4)


def consume(broker: Broker, names: Names) -> None:
    """Consume and fail some; wait for what comes again soon: retries, two delay levels of three."""
    failed = broker.push(names.topic, names.push_group, " || ".join(names.tags), 100, 10)
    broker.wait_for(f"%RETRY%{names.push_group}", failed)
    broker.wait_for(names.delay, DELAYED * 2 // 3)


def go_on(broker: Broker, names: Names) -> list[Row]:
    """Leave a backlog: commit part of the batches, and send after consumption stopped."""
    broker.commit(names.batch, names.pull_group, 20)
    return broker.produce(names.topic, "Single", LATE, seed=2, tags=names.tags, key_word="late")
