"""The protocol of exactly once: BEGIN, rows, COMMIT; after any failure, look before sending.

A broker's log is one sequence that a crash cuts at its end only. So BEGIN, which is sent first to
each broker, is there wherever rows of the write are. A publisher that finds a BEGIN of an earlier
try, or that does not know what became of a request, lets go of its connections, waits until
what was under way is over, sends BEGIN again, waits until that is visible (then all in front
of it is), and reads the queues from where the BEGINs of the write say. It sends what is not there.

The ends of the queues, BEGIN, rows and COMMIT are of one connection to each broker. If it breaks,
the broker may have lost what it acknowledged: BEGIN, rows, and the ends that were read. Then the
publisher looks again, from the least of the old starts and the new ends.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from mqstore.codec.client_ids import digest_of_ids
from mqstore.deliver.once.control import BEGIN, COMMIT, Control, Starts, least
from mqstore.deliver.once.errors import (
    InterruptedSendError,
    LostHistoryError,
    NewerOwnerError,
    PublicationError,
    TornMessageError,
)
from mqstore.errors import NondeterministicWriteError
from mqstore.live.send.requests import Queue

Records: TypeAlias = Sequence[tuple[str, Control]]
"""Control records of one application, each with its broker."""
ROUNDS: Final = 3
"""So many tries to send in turn may bring nothing before the publisher gives up."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write as its publisher knows it: whose it is, and the ids of its messages.

    ``source`` stands in its control records.
    """

    app: str
    version: int
    ids: AbstractSet[str]
    source: str = ""

    def __str__(self) -> str:
        return f"{self.app} version {self.version}"


@dataclass(frozen=True, slots=True)
class History:
    """Control records of one application by broker, in their order, from some place on.

    ``ends`` are the queue offsets behind them; ``expired`` tells that older ones of anybody are
    no longer there.
    """

    records: Mapping[str, list[Control]]
    ends: Mapping[str, int]
    expired: bool = False

    def then(self, later: "History") -> "History":
        """Return this history and one that goes on where it ends."""
        records = {name: list(held) for name, held in self.records.items()}
        for name, held in later.records.items():
            records.setdefault(name, []).extend(held)
        return History(records, later.ends, self.expired or later.expired)

    def all(self) -> list[tuple[str, Control]]:
        """Return the records of all brokers, each with its broker."""
        return [(broker, one) for broker, records in self.records.items() for one in records]


@dataclass(frozen=True, slots=True)
class Landed:
    """A message of a write that is in a queue.

    ``cut_at`` is its queue offset if a killed broker kept it with a part of its properties only:
    then its key may be cut as well.
    """

    unique_key: str
    queue: Queue
    cut_at: int | None = None


class Wire(Protocol):
    """The calls of a publisher to brokers. Each has a time-out."""

    topic: str
    """The control topic."""

    def begin(self, make: Callable[[Starts], Control]) -> Control:
        """Connect to the brokers, read the ends of all queues of the topics, store a record.

        ``make`` gives the record of those ends. It is visible on its brokers when it is returned.
        Other records of it may be there as well. Raises NotVisibleError.
        """

    def history(self, app: str, since: Mapping[str, int] | None = None) -> History:
        """Return the records of an application from some queue offsets on.

        Without them: of each broker from what its last COMMIT with ``seen`` has seen.
        """

    def whole_history(self, app: str) -> History:
        """Return all records of an application that have not expired."""

    def landed(self, starts: Starts) -> Iterable[Landed]:
        """Yield the messages that carry the mark of the write, from those offsets on."""

    def send(self, landed: AbstractSet[str], check: Callable[[], None]) -> None:
        """Send all rows of the write but those by the connections of ``begin``.

        ``check`` is called now and then. Raises InterruptedSendError, and what ``check`` raises.
        """

    def commit(self, record: Control) -> None:
        """Store a record on its brokers by the connections of ``begin``.

        Raises InterruptedSendError, as ``send`` does, also if one of these broke.
        """

    def fence(self) -> None:
        """Let go of all connections, and return once nothing sent by them can still be stored."""


class Publication:
    """One try of a write. ``owner`` is new for each."""

    def __init__(self, write: Write, wire: Wire, owner: str, *, allows_lost: bool = False) -> None:
        self._write = write
        self._wire = wire
        self._owner = owner
        self._allows_lost = allows_lost
        self._starts: Starts = {}
        self._seen: Mapping[str, int] = {}
        self._known = 0
        self._is_newest = True

    def run(self) -> int | None:
        """Have every row in the cluster once; return how many were there already.

        None if the write, or a newer version, was committed before: then nothing is sent. Raises
        NondeterministicWriteError, TornMessageError, LostHistoryError, NewerOwnerError,
        NotVisibleError, PublicationError, and what the wire raises.
        """
        try:
            return self._run()
        except InterruptedSendError as error:
            raise PublicationError(str(self._write), self._known, error.message()) from error

    def _run(self) -> int | None:
        before = self._wire.history(self._write.app)
        self._check_history(before)
        if is_committed(before.all(), self._write.version):
            self._check_same_rows(before.all())
            return None
        self._begin()
        # An earlier try may have begun behind ``before``: it is in front of our BEGIN.
        after = self._wire.history(self._write.app, before.ends)
        self._seen = after.ends
        self._check_behind_begin(after)
        records = before.all() + after.all()
        if is_committed(records, self._write.version):
            self._check_same_rows(records)
            return None
        version = self._write.version
        self._is_newest = all(record.version <= version for _, record in records)
        earlier = [r for _, r in records if r.version == version and r.owner != self._owner]
        landed: AbstractSet[str] = frozenset()
        if earlier:
            self._starts = least([self._starts, *(record.starts for record in earlier)])
            landed = self._resolve()
        first = len(landed)
        self._send(landed)
        return first

    def check_owner(self) -> None:
        """Raise NewerOwnerError if another publisher of the application began after this one."""
        found = self._wire.history(self._write.app, self._seen)
        self._seen = found.ends
        for broker, record in found.all():
            if record.owner != self._owner:
                raise NewerOwnerError(str(self._write), broker)

    def _send(self, landed: AbstractSet[str]) -> None:
        rounds = 0
        while True:
            try:
                self._wire.send(landed, self.check_owner)
                self.check_owner()
                self._wire.commit(self._last())
            except InterruptedSendError:
                found = self._resolve()
                rounds = 0 if len(found) > len(landed) else rounds + 1
                landed = found
                if rounds >= ROUNDS:
                    raise
            else:
                return

    def _resolve(self) -> AbstractSet[str]:
        """Return the ids of the write's messages that are stored."""
        self._wire.fence()
        self._begin()
        self.check_owner()
        found: set[str] = set()
        strange: list[Landed] = []
        for message in self._wire.landed(self._starts):
            if message.unique_key in self._write.ids:
                found.add(message.unique_key)
            elif message.cut_at is not None:
                raise TornMessageError(str(self._write), str(message.queue), message.cut_at)
            else:
                strange.append(message)
        if strange:
            difference = (
                f"{len(strange)} messages of an earlier try, the first in {strange[0].queue}, are "
                "not among the rows of this one"
            )
            raise NondeterministicWriteError(str(self._write), difference)
        self._known = len(found)
        return found

    def _begin(self) -> None:
        self._starts = self._wire.begin(self._begun).starts

    def _begun(self, ends: Starts) -> Control:
        return self._record(BEGIN, least([self._starts, ends]))

    def _last(self) -> Control:
        """Return the COMMIT; it stands for all records that this publisher has seen."""
        ids = self._write.ids
        record = self._record(COMMIT, self._starts)
        record = replace(record, rows=len(ids), digest=digest_of_ids(ids))
        return replace(record, seen=self._seen) if self._is_newest else record

    def _record(self, kind: str, starts: Starts) -> Control:
        write = self._write
        return Control(kind, write.app, write.version, self._owner, starts, source=write.source)

    def _check_same_rows(self, records: Records) -> None:
        """Raise NondeterministicWriteError if other rows were committed as this write.

        Of an older version the COMMIT may stand in front of ``records``; it may also have expired,
        or be of a publisher that noted no digest: then nothing is known.
        """
        write = self._write
        commits = commits_of(records, write.version)
        if not commits:
            commits = commits_of(self._wire.whole_history(write.app).all(), write.version)
        digest = digest_of_ids(write.ids) if any(one.digest for one in commits) else ""
        for one in commits:
            if one.digest and (one.rows, one.digest) != (len(write.ids), digest):
                those = "others" if one.rows == len(write.ids) else f"{len(write.ids)} rows"
                difference = f"{one.rows} rows were committed as this write, and now it has {those}"
                raise NondeterministicWriteError(str(write), difference)

    def _check_behind_begin(self, found: History) -> None:
        for broker, records in found.records.items():
            owners = [record.owner for record in records]
            at = owners.index(self._owner) if self._owner in owners else len(owners)
            if any(owner != self._owner for owner in owners[at:]):
                raise NewerOwnerError(str(self._write), broker)

    def _check_history(self, found: History) -> None:
        is_lost = found.expired and not found.all() and self._write.version > 0
        if is_lost and not self._allows_lost:
            raise LostHistoryError(str(self._write), self._wire.topic)


def commits_of(records: Records, version: int) -> list[Control]:
    """Return the COMMITs of a version."""
    return [one for _, one in records if (one.kind, one.version) == (COMMIT, version)]


def is_committed(records: Records, version: int) -> bool:
    """Tell whether a newer version was committed, or this one on each of its brokers."""
    commits = [(broker, record) for broker, record in records if record.kind == COMMIT]
    if any(record.version > version for _, record in commits):
        return True
    there: dict[str, set[str]] = {}
    needed: dict[str, set[str]] = {}
    for broker, record in commits:
        if record.version == version:
            there.setdefault(record.owner, set()).add(broker)
            needed[record.owner] = record.brokers
    return any(needed[owner] <= found for owner, found in there.items())
