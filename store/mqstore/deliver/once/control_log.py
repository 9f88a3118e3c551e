"""The control topic as a publisher reads it: records of one application, all brokers side by side.

The control queue of a broker is read backwards from its end, up to the last COMMIT that stands
for all records in front of it (control.py). So it is one pull, however many writes there were.

Reference: DefaultMessageStore#getMessage (nextBeginOffset, OFFSET_OVERFLOW_BADLY),
PullMessageProcessor#processRequest (maxOffset).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mqstore.deliver.once.control import (
    CONTROL_QUEUE,
    Control,
    InvalidControlError,
    decode,
    tag_of,
)
from mqstore.deliver.once.publish import History
from mqstore.live.origin.bounds import LiveBounds, bounds
from mqstore.live.origin.pull import Answer, LiveSlice, PullReader
from mqstore.live.origin.records import PullSettings, assemble
from mqstore.live.remoting import requests
from mqstore.live.remoting.answers import BusyError, header_number
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import BrokenAnswerError
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import MAX_MESSAGES
from mqstore.live.remoting.retry import Retry

_FIRST_WINDOW: Final = 32
"""So many queue offsets are read first: a broker gives as many messages with one pull."""
_GROWTH: Final = 8
_UNBOUNDED: Final = 2**63 - 1


@dataclass(slots=True)
class _Stretch:
    """Queue offsets [at, end) of a broker's control queue, to be read; ``at`` moves with that.

    ``counts_only``: records in front of what the last standing COMMIT has seen are not wanted.
    """

    broker: str
    at: int
    end: int = _UNBOUNDED
    counts_only: bool = False
    records: list[Control] = field(default_factory=list)


class ControlLog:
    """The control topic of a cluster. Raises as Cluster#ask_all, and BrokenAnswerError."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic

    def held(self) -> dict[str, LiveBounds]:
        """Return what the control queue of each broker holds."""
        route = self._cluster.route(self._topic)
        found = [] if route is None else bounds(self._cluster, [route])
        return {one.broker: one for one in found if one.queue_id == CONTROL_QUEUE}

    def history(self, app: str) -> History:
        """Return the records of an application that count, and whether any have expired."""
        held = self.held()
        expired = any(one.low > 0 for one in held.values())
        return History(self._last(app, held.values()), _highs(held.values()), expired)

    def whole(self, app: str) -> History:
        """Return all records of an application that have not expired."""
        held = self.held()
        parts = [_Stretch(one.broker, one.low, one.high) for one in held.values()]
        self._read(app, [part for part in parts if part.at < part.end])
        return History({part.broker: part.records for part in parts}, _highs(held.values()))

    def since(self, app: str, known: Mapping[str, int]) -> History:
        """Return the records from those queue offsets on; of other brokers those that count."""
        route = self._cluster.route(self._topic)
        brokers = sorted(route.queues) if route is not None else []
        is_new = not known.keys() >= set(brokers)
        new = [one for one in self.held().values() if one.broker not in known] if is_new else []
        parts = [_Stretch(broker, known[broker]) for broker in brokers if broker in known]
        self._read(app, parts)
        records = {part.broker: part.records for part in parts} | self._last(app, new)
        return History(
            records, {**known, **_highs(new), **{part.broker: part.at for part in parts}}
        )

    def _last(self, app: str, held: Iterable[LiveBounds]) -> dict[str, list[Control]]:
        """Return by broker the records from what the last standing COMMIT has seen, on."""
        queues = list(held)
        records: dict[str, list[Control]] = {one.broker: [] for one in queues}
        starts = {one.broker: one.high for one in queues}
        window = _FIRST_WINDOW
        while True:
            parts = []
            for one in queues:
                start = starts[one.broker]
                seen = _seen(one.broker, records[one.broker])
                first = max(one.low, start - window if seen is None else seen)
                if first < start:
                    parts.append(_Stretch(one.broker, first, start, counts_only=True))
            if not parts:
                return records
            starts |= {part.broker: part.at for part in parts}
            self._read(app, parts)
            for part in parts:
                records[part.broker][:0] = part.records
            window *= _GROWTH

    def _read(self, app: str, parts: Sequence[_Stretch]) -> None:
        """Read stretches to their ends, or to those of their queues: one pull of each at a time."""
        retry = Retry(self._cluster.settings.retry_timeout_ms)
        left = list(parts)
        while left:
            asked = [(part.broker, self._pull(app, part)) for part in left]
            stuck: BusyError | None = None
            following = []
            for part, (answer, address) in zip(left, self._cluster.ask_all(asked), strict=True):
                before = part.at
                is_over = self._take(app, part, answer, address)
                if not is_over:
                    following.append(part)
                    if part.at == before:
                        reason = f"gave nothing of {self._topic} at {before}: {answer.remark}"
                        stuck = BusyError(address, reason)
            if stuck is None:
                retry.succeeded()
            else:
                retry.failed(stuck)
            left = following

    def _pull(self, app: str, part: _Stretch) -> requests.Request:
        group = self._cluster.settings.consumer_group
        queue = (self._topic, CONTROL_QUEUE)
        return requests.pull(group, queue, part.at, MAX_MESSAGES, tag_of(app))

    def _take(self, app: str, part: _Stretch, answer: Frame, address: str) -> bool:
        """Add what an answer has to a stretch; tell whether that was the last of it."""
        start = part.at
        low, high, begin = (
            header_number(address, answer, name)
            for name in ("minOffset", "maxOffset", "nextBeginOffset")
        )
        if answer.code == requests.PULL_OFFSET_MOVED:
            # Records expired meanwhile; or the queue's end went back in a crash of the broker.
            part.at = low if start < low else high
            return part.at >= min(high, part.end)
        if begin < start:
            reason = f"a pull of {self._topic} at {start} goes on at {begin}"
            raise BrokenAnswerError(address, reason)
        if answer.code == requests.PULL_NOT_FOUND:
            return True
        part.at = min(begin, part.end)
        if answer.code == requests.SUCCESS:
            piece = LiveSlice(part.broker, self._topic, CONTROL_QUEUE, start, part.at)
            found = Answer(piece, start, part.at, answer.body, address)
            part.records += self._records(app, found, counts_only=part.counts_only)
        return part.at >= min(high, part.end)

    def _records(self, app: str, answer: Answer, *, counts_only: bool) -> list[Control]:
        tags = tag_of(app)
        reader = PullReader(self._cluster, [answer.piece], tags=tags, fail_on_data_loss=False)
        part = assemble([answer], reader, PullSettings(tags=tags, fail_on_data_loss=False))
        if part.broken:
            raise BrokenAnswerError(answer.address, f"a broken message in {answer.piece}")
        found: list[Control] = []
        first: int | None = None
        for row, at in reversed(list(enumerate(part.positions.queue_offsets.tolist()))):
            if first is not None and at < first:
                break
            try:
                record = decode(bytes(part.headers.body(row)))
            except InvalidControlError as error:
                reason = f"no control record: {error}, in {answer.piece}"
                raise BrokenAnswerError(answer.address, reason) from error
            if record.app == app:
                found.append(record)
                if counts_only and first is None:
                    first = record.seen.get(answer.piece.broker)
        return found[::-1]


def _highs(held: Iterable[LiveBounds]) -> dict[str, int]:
    return {one.broker: one.high for one in held}


def _seen(broker: str, records: Sequence[Control]) -> int | None:
    """Return up to where the last standing COMMIT has seen a broker's queue, if there is one."""
    return next((one.seen[broker] for one in reversed(records) if broker in one.seen), None)
