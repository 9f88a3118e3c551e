"""Ranges of queues pulled from brokers: several pulls in flight, answers in the order asked.

A broker gives fewer messages than asked: 32 or 256 KiB at a time from memory, 8 or 64 KiB from
disk unless configured otherwise. So the next pulls are sent for guessed offsets, as many messages
apart as the last answer had. Where an answer ends before the next begins, the hole between is
asked for; nothing is pulled twice. At most ``pulls_in_flight`` answers are held at a time. To a
proxy each of these pulls goes by a connection of its own.

With tags the broker looks at about as many queue entries as it is asked messages and gives those
that match by hash; an answer may then reach into the range of the next, which is cut.

Reference: org.apache.rocketmq.broker.processor.PullMessageProcessor#processRequest,
DefaultMessageStore#getMessage (isTheBatchFull, maxTransferCountOnMessageInMemory,
GetMessageStatus), org.apache.rocketmq.client.impl.consumer.PullAPIWrapper#pullKernelImpl.
"""

import logging
import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

from mqstore.codec.walk import Data
from mqstore.errors import DataLossError
from mqstore.live.remoting import requests
from mqstore.live.remoting.answers import BusyError, checked, header_number
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.connection import Connection, FrameTooLargeError
from mqstore.live.remoting.errors import BrokenAnswerError, BrokerUnavailableError, NoMasterError
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import ALL_TAGS, MAX_MESSAGES, Request, pull
from mqstore.live.remoting.retry import Retry

_LOG = logging.getLogger(__name__)
_FIRST_PATIENCE: Final = 8
_LAST_PATIENCE: Final = 1_024
_MOST_SINGLES: Final = 1 << 16
"""A broker looks at some hundred entries of a queue for an answer (maxFilterMessageSize)."""
_MOST_FRAMES: Final = 4
"""So many of the largest answers are held of messages that are pulled one by one."""


@dataclass(frozen=True, slots=True)
class LiveSlice:
    """Queue offsets [start, end) of one queue of one broker."""

    broker: str
    topic: str
    queue_id: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.broker}/{self.topic}/{self.queue_id}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The records of queue offsets [start, end) of a slice, as the broker at ``address`` gave them.

    ``body`` holds whole records; with ``is_single`` it is what the ConsumeQueue entry ``start``
    points at, whatever that is.
    """

    piece: LiveSlice
    start: int
    end: int
    body: Data
    address: str
    is_single: bool = False


_Range: TypeAlias = tuple[int, int, int]
"""The place of a slice among all, and queue offsets [start, end) of it."""


@dataclass(slots=True)
class _Pull:
    place: int
    start: int
    end: int
    address: str
    connection: Connection
    request: Request
    opaque: int


class PullReader:
    """Pulls slices, in order. Raises as Cluster does, and DataLossError for offsets that are gone.

    Without ``fail_on_data_loss`` those are logged and left out.
    """

    def __init__(
        self,
        cluster: Cluster,
        slices: Sequence[LiveSlice],
        *,
        tags: str = ALL_TAGS,
        fail_on_data_loss: bool = True,
        is_sparse: bool = False,
    ) -> None:
        """``is_sparse``: queues have holes, as those of compaction topics, which are no loss."""
        self.cluster = cluster
        self._settings = cluster.settings
        self._slices = [piece for piece in slices if piece.start < piece.end]
        self._tags = tags
        self._fails = fail_on_data_loss
        self._is_sparse = is_sparse
        self._retry = Retry(self._settings.retry_timeout_ms)
        self._flight: deque[_Pull] = deque()
        self._place = 0
        self._at = self._slices[0].start if self._slices else 0
        self._most = min(self._settings.pull_batch_size, MAX_MESSAGES)
        self._stride: int | None = None
        self._patience = _FIRST_PATIENCE
        self._full = 0
        self._without_slave: set[str] = set()

    @property
    def is_filtered(self) -> bool:
        """Tell whether answers hold some messages of their range only."""
        return self._is_sparse or self._tags != ALL_TAGS

    def answers(self) -> Iterator[Answer]:
        """Yield what the broker gives, without gap or overlap, in the order of the slices."""
        try:
            while self._place < len(self._slices) or self._flight:
                self._retry.begins()
                self.cluster.patience.until = self._retry.until
                try:
                    self._fill()
                    answer = self._take()
                except (BrokerUnavailableError, NoMasterError) as error:
                    self._recover(error)
                except FrameTooLargeError as error:
                    self._halve(error)
                else:
                    self._retry.succeeded()
                    if answer is not None:
                        self.cluster.patience.until = math.inf
                        yield answer
        finally:
            self.cluster.patience.until = math.inf
            self.cluster.abandon()

    def settle(self) -> None:
        """Wait until no pull is under way; their answers are kept for ``answers``."""
        for connection in {id(one.connection): one.connection for one in self._flight}.values():
            with suppress(BrokerUnavailableError, BrokenAnswerError):  # ``answers`` meets it again.
                connection.settle()

    def once(self, piece: LiveSlice, start: int, most: int) -> tuple[Data, str]:
        """Pull at most that many messages; return records, or nothing, and who gave them."""
        frame, address = self.cluster.ask(piece.broker, self._request(piece, start, most, ALL_TAGS))
        return frame.body if frame.code == requests.SUCCESS else b"", address

    def singles(self, answer: Answer) -> Iterator[Answer]:
        """Pull the range of an answer again, message by message: for one with broken records.

        Tags do not choose among them: they are those of records that may be broken. Raises
        BrokenAnswerError for more messages, or more bytes of them, than an answer stands for.
        """
        piece, bytes_left = answer.piece, self.most_bytes_again
        if answer.end - answer.start > _MOST_SINGLES:
            reason = f"a pull of {piece} at {answer.start} goes on at {answer.end}, behind records"
            raise BrokenAnswerError(answer.address, f"{reason} that are broken")
        for start in range(answer.start, answer.end):
            body, address = self.once(piece, start, 1)
            bytes_left = self.left_of(bytes_left, body, answer, address)
            yield Answer(piece, start, start + 1, body, address, is_single=True)

    @property
    def most_bytes_again(self) -> int:
        """How many bytes are held of messages that stand for one answer, pulled again."""
        return _MOST_FRAMES * self._settings.limits.max_frame_bytes

    def left_of(self, left: int, body: Data, answer: Answer, address: str) -> int:
        """Return how many bytes of ``left`` may still come; raises BrokenAnswerError below 0."""
        if len(body) <= left:
            return left - len(body)
        reason = f"{answer.piece} from {answer.start} on, pulled again for records that are broken"
        raise BrokenAnswerError(address, f"{reason}, is too large: raise maxFrameBytes")

    def is_of_one_pull(self, answer: Answer) -> bool:
        """Tell whether a range is as long as one pull asks for at most; a broker tells its end."""
        return answer.end - answer.start <= self._most

    def _fill(self) -> None:
        """Send pulls until enough are in flight: one, as long as no answer told how many it has.

        Half of them at a time: a request that is sent alone costs a call of the system here, and
        a thread's turn there. To a proxy each goes alone anyway, and at once.
        """
        in_flight = 1 if self._stride is None else self._settings.pulls_in_flight
        most_left = in_flight - 1 if self.cluster.is_proxy else in_flight // 2
        if len(self._flight) > most_left:
            return
        place, start = self._place, self._at
        planned = self._planned(in_flight - len(self._flight))
        try:
            for broker, ranges in groupby(planned, lambda one: self._slices[one[0]].broker):
                self._flight += self._sent(broker, list(ranges))
        except (BrokerUnavailableError, NoMasterError):
            if not self._flight:
                self._place, self._at = place, start
            raise

    def _planned(self, count: int) -> list[_Range]:
        """Move the cursor over the next ranges to pull."""
        found: list[_Range] = []
        while len(found) < count and self._place < len(self._slices):
            piece = self._slices[self._place]
            span = min(self._stride or self._most, self._most)
            if self._stride is not None and self._full >= self._patience:
                span, self._full = min(2 * span, self._most), 0
            end = min(self._at + span, piece.end)
            found.append((self._place, self._at, end))
            self._at = end
            if end == piece.end:
                self._go_to(self._place + 1)
        return found

    def _sent(self, broker: str, ranges: Sequence[_Range]) -> list[_Pull]:
        """Pull ranges of slices of one broker."""
        if broker in self._without_slave:
            address = self.cluster.master(broker)
        else:
            address = self.cluster.reading_address(broker)
        asked = []
        for place, start, end in ranges:
            # With tags what is asked for is messages, and entries are looked at beyond them.
            count = self._most if self.is_filtered else end - start
            asked.append(self._request(self._slices[place], start, count, self._tags))
        busy = [pull_.connection for pull_ in self._flight]
        try:
            sent = self.cluster.send_pulls(broker, address, asked, busy)
        except BrokerUnavailableError as error:
            raise self.cluster.located(broker, error) from error
        return [
            _Pull(*one, connection.address, connection, request, opaque)
            for one, request, (connection, opaque) in zip(ranges, asked, sent, strict=True)
        ]

    def _send_first(self, place: int, start: int, end: int) -> None:
        self._flight.extendleft(self._sent(self._slices[place].broker, [(place, start, end)]))

    def _request(self, piece: LiveSlice, start: int, count: int, tags: str) -> Request:
        queue = (piece.topic, piece.queue_id)
        return pull(self._settings.consumer_group, queue, start, count, tags)

    def _take(self) -> Answer | None:
        """Return what the first pull in flight gave, None if that is no message."""
        pull_ = self._flight[0]
        piece = self._slices[pull_.place]
        try:
            frame = pull_.connection.receive(pull_.opaque)
            frame = checked(pull_.address, pull_.request, frame)
        except BrokerUnavailableError as error:
            raise self.cluster.located(piece.broker, error) from error
        if frame.code != requests.SUCCESS and not self._is_skipping(frame, pull_):
            return None
        end = min(self._next(frame, pull_), piece.end)
        self._adapt(pull_, end)
        self._flight.popleft()
        self._advance(pull_, end)
        if frame.code != requests.SUCCESS and self.is_filtered:
            return None
        body = frame.body if frame.code == requests.SUCCESS else b""
        return Answer(piece, pull_.start, end, body, pull_.address)

    def _next(self, frame: Frame, pull_: _Pull) -> int:
        end = header_number(pull_.address, frame, "nextBeginOffset")
        if end <= pull_.start:
            reason = f"a pull at {pull_.start} goes on at {end}, which is no progress"
            raise BrokenAnswerError(pull_.address, reason)
        if frame.code == requests.SUCCESS and not frame.body:
            reason = f"a pull at {pull_.start} found messages, and none is in the answer"
            raise BrokenAnswerError(pull_.address, reason)
        return end

    def _is_skipping(self, frame: Frame, pull_: _Pull) -> bool:
        """Deal with an answer without messages; tell whether the next offset follows from it.

        False: the pulls in flight were given up, and the cursor stands where to go on.
        """
        piece = self._slices[pull_.place]
        if self.cluster.has_master(piece.broker) and (
            pull_.address != self.cluster.master(piece.broker)
        ):
            # A slave lacks what was there before it, and says so in many ways.
            self._without_slave.add(piece.broker)
            self._rewind(pull_.place, pull_.start)
            return False
        begin = header_number(pull_.address, frame, "nextBeginOffset")
        if frame.code == requests.PULL_RETRY_IMMEDIATELY:
            if begin <= pull_.start:
                reason = f"has no message of {piece} at {pull_.start} now: {frame.remark}"
                raise BusyError(pull_.address, reason)
            return True  # That no message is there is for who counts them to say.
        if self._is_sparse:  # There are no more: the compacted log ends before the queue does.
            self._rewind_to(pull_.place + 1)
            return False
        self._lose(frame, pull_)
        low = header_number(pull_.address, frame, "minOffset")
        if pull_.start < low < piece.end:
            self._rewind(pull_.place, low)
        else:
            self._rewind_to(pull_.place + 1)
        return False

    def _lose(self, frame: Frame, pull_: _Pull) -> None:
        piece = self._slices[pull_.place]
        low, high = (
            header_number(pull_.address, frame, name) for name in ("minOffset", "maxOffset")
        )
        error = DataLossError(str(piece), start=pull_.start, end=piece.end, low=low, high=high)
        if self._fails:
            raise error
        _LOG.warning("%s", error)

    def _adapt(self, pull_: _Pull, end: int) -> None:
        """Learn from an answer how many messages the next will have."""
        got, asked = end - pull_.start, pull_.end - pull_.start
        if self._stride is None or got > self._stride:
            self._stride, self._full, self._patience = min(got, self._most), 0, _FIRST_PATIENCE
        elif got == asked:
            self._full += 1
        elif asked > self._stride:  # It was asked for more, to see.
            self._patience = min(2 * self._patience, _LAST_PATIENCE)
        elif asked == self._stride:  # Less was asked for a hole, or at the end of a slice.
            self._stride, self._full = got, 0

    def _advance(self, pull_: _Pull, end: int) -> None:
        """Ask for the hole that an answer left, or cut what the next would give again."""
        if end < pull_.end and not self._flight:
            self._place, self._at = pull_.place, end
            return
        if end < pull_.end:
            self._send_first(pull_.place, end, pull_.end)
            return
        while self._flight and self._flight[0].place == pull_.place:
            following = self._flight[0]
            if following.start >= end:
                return
            self._flight.popleft()  # Its answer comes and is thrown away.
            if following.end > end:
                self._send_first(pull_.place, end, following.end)
                return
        if self._place == pull_.place and self._at < end:
            self._at = end
            if end >= self._slices[pull_.place].end:
                self._go_to(pull_.place + 1)

    def _recover(self, error: BrokerUnavailableError | NoMasterError) -> None:
        place, start = self._front()
        self._retry.failed(error)
        if self._retry.wants_new_route:
            self.cluster.forget(self._slices[place].broker)
        self._rewind(place, start)

    def _halve(self, error: FrameTooLargeError) -> None:
        place, start = self._front()
        most = max((pull_.end - pull_.start for pull_ in self._flight), default=1)
        if self.is_filtered:
            most = self._most
        if most <= 1:
            one = f"for one message of {self._slices[place]}"
            raise BrokenAnswerError(error.address, f"{error.reason}, {one}: raise maxFrameBytes")
        self._most = max(1, most // 2)
        self._stride = min(self._stride or self._most, self._most)
        self._rewind(place, start)

    def _front(self) -> tuple[int, int]:
        if self._flight:
            return self._flight[0].place, self._flight[0].start
        return self._place, self._at

    def _rewind(self, place: int, start: int) -> None:
        self.cluster.abandon()
        self._flight.clear()
        self._place, self._at = place, start

    def _rewind_to(self, place: int) -> None:
        self.cluster.abandon()
        self._flight.clear()
        self._go_to(place)

    def _go_to(self, place: int) -> None:
        self._place = place
        self._at = self._slices[place].start if place < len(self._slices) else 0
