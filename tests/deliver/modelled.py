"""Brokers as the protocol of exactly once sees them: logs that may be cut, answers that may fail.

Each broker is one log of rows and control records. What a publisher sends may be stored at once,
in part, later or never; a crash cuts the end of a log, but not what is ``safe``; every such thing
breaks the connections to the broker. The publisher itself may be killed at each call.
"""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import pytest

from mqstore.deliver.once.control import Control, Starts, decode
from mqstore.deliver.once.errors import InterruptedSendError
from mqstore.deliver.once.publish import History, Landed, Publication
from mqstore.live.send.requests import Queue

Choose = Callable[[str, int], int]
"""Name of a choice and number of its possibilities to the one that is taken; 0: nothing fails."""


class KilledError(Exception):
    """The publisher's process ended here."""


@dataclass
class Row:
    queue: Queue
    unique_key: str
    version: int


@dataclass
class Log:
    """A broker's log, and what was sent to it and is not stored yet."""

    entries: list[Row | bytes] = field(default_factory=list)
    late: list[Row | bytes] = field(default_factory=list)
    safe: int = 0
    epoch: int = 0
    """Counts what breaks all connections."""

    def rows(self) -> list[Row]:
        return [entry for entry in self.entries if isinstance(entry, Row)]

    def controls(self) -> list[bytes]:
        return [entry for entry in self.entries if isinstance(entry, bytes)]


class Brokers:
    """All logs, and whether anything fails."""

    def __init__(self, names: list[str], choose: Choose) -> None:
        self.logs = {name: Log() for name in names}
        self.choose = choose

    def keys(self) -> list[str]:
        """The ids of all rows that are stored."""
        return [row.unique_key for log in self.logs.values() for row in log.rows()]

    def keep(self, name: str) -> None:
        """Lose nothing of what a broker holds now."""
        self.logs[name].safe = len(self.logs[name].entries)

    def kill(self, where: str) -> None:
        """Come to a place where the publisher may be killed, or a broker crash."""
        names = list(self.logs)
        crashed = self.choose("crashes meanwhile", len(names) + 1)
        if crashed:
            self.crash(names[crashed - 1])
        if self.choose(f"killed {where}", 2):
            raise KilledError(where)

    def crash(self, name: str) -> None:
        """Cut the log's end somewhere behind what is safe."""
        log = self.logs[name]
        log.epoch += 1
        log.late.clear()  # What waited in the broker died with it.
        lost = self.choose("entries lost", len(log.entries) - log.safe + 1)
        del log.entries[len(log.entries) - lost :]

    def store(self, name: str, entries: list[Row | bytes]) -> bool:
        """Store what came in one request; tell whether the answer came."""
        log = self.logs[name]
        if log.late and self.choose("what is late comes", 2):
            log.entries += log.late
            log.late.clear()
        kind = self.choose("stored", 6)
        if kind == 0:
            log.entries += entries
            return True
        if kind == 1:
            log.entries += entries
        elif kind == 2:
            log.entries += entries[: self.choose("in part", len(entries) + 1)]
        elif kind == 3:
            log.late += entries
        elif kind == 4:
            log.entries += entries
            self.crash(name)
        log.epoch += 1
        return False


class ModelWire:
    """The wire of one try of a write: ``rows`` by queue, sent two at a time."""

    topic = "MQLOG_CONTROL"

    def __init__(self, brokers: Brokers, version: int, rows: Mapping[Queue, list[str]]) -> None:
        self._brokers = brokers
        self._version = version
        self._rows = rows
        self._epochs: dict[str, int] = {}

    def begin(self, make: Callable[[Starts], Control]) -> Control:
        while True:
            self._brokers.kill("before BEGIN")
            epochs = {name: log.epoch for name, log in self._brokers.logs.items()}
            ends = {queue: self._end(queue) for queue in self._rows}
            self._brokers.kill("behind the ends")
            record = make(ends)
            if all(self._begun(name, record, epochs) for name in sorted(record.brokers)):
                self._epochs = epochs
                self._brokers.kill("after BEGIN")
                return record

    def history(self, app: str, since: Mapping[str, int] | None = None) -> History:
        self._brokers.kill("before history")
        records, ends = {}, {}
        for name, log in self._brokers.logs.items():
            controls = log.controls()
            found = [record for record in map(decode, controls) if record.app == app]
            seen = [record.seen[name] for record in found if name in record.seen]
            first = since[name] if since is not None else [0, *seen][-1]
            found = [decode(body) for body in controls[first:]]
            records[name] = [record for record in found if record.app == app]
            ends[name] = len(controls)
        return History(records, ends)

    def whole_history(self, app: str) -> History:
        return self.history(app, dict.fromkeys(self._brokers.logs, 0))

    def landed(self, starts: Starts) -> Iterator[Landed]:
        self._brokers.kill("before it looks")
        for queue, start in starts.items():
            held = [row for row in self._brokers.logs[queue.broker].rows() if row.queue == queue]
            for row in held[start:]:
                if row.version == self._version:
                    yield Landed(row.unique_key, queue)

    def send(self, landed: AbstractSet[str], check: Callable[[], None]) -> None:
        for queue, keys in self._rows.items():
            left = [key for key in keys if key not in landed]
            for first in range(0, len(left), 2):
                self._brokers.kill("before rows")
                check()
                self._connected(queue.broker)
                part: list[Row | bytes] = [
                    Row(queue, key, self._version) for key in left[first : first + 2]
                ]
                if not self._brokers.store(queue.broker, part):
                    raise InterruptedSendError(f"{queue}: no answer")

    def commit(self, record: Control) -> None:
        for name in sorted(record.brokers):
            self._brokers.kill("before COMMIT")
            self._connected(name)
            if not self._brokers.store(name, [record.encode()]):
                raise InterruptedSendError(f"{name}: no answer to COMMIT")
            self._brokers.keep(name)
        self._brokers.kill("after COMMIT")

    def fence(self) -> None:
        for log in self._brokers.logs.values():
            log.entries += log.late
            log.late.clear()

    def _begun(self, name: str, record: Control, epochs: Mapping[str, int]) -> bool:
        self._brokers.kill("in BEGIN")
        is_connected = self._brokers.logs[name].epoch == epochs[name]
        return is_connected and self._brokers.store(name, [record.encode()])

    def _end(self, queue: Queue) -> int:
        log = self._brokers.logs[queue.broker]
        return len([row for row in log.rows() if row.queue == queue])

    def _connected(self, name: str) -> None:
        if self._brokers.logs[name].epoch != self._epochs[name]:
            raise InterruptedSendError(f"{name}: the connection broke")


def look_at_nothing(patch: pytest.MonkeyPatch) -> None:
    """Let publishers not look for what earlier tries stored, which a test must notice."""

    def blind(publication: Publication) -> frozenset[str]:
        publication._wire.fence()
        publication._begin()
        return frozenset()

    patch.setattr(Publication, "_resolve", blind)
