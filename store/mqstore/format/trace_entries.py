"""The body of a trace message: entries of text that clients write about sends and deliveries.

An entry ends with 02, its fields are separated by 01, and the first one is its type. Fields were
added over the years, always at the end, so they are taken by their index: of fewer fields the rest
is None, more are counted and left out. A client of the access channel CLOUD ends its SubAfter
entries with 01: the next entry begins there.

Nothing here trusts the text. What cannot be read is an entry of type UNKNOWN with the reason and
the first bytes; of each message at most MAX_ENTRIES are made.

Reference: TraceDataEncoder, TraceConstants, TraceType; MessageType, ConsumeReturnType.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

PUB: Final = "Pub"
SUB_BEFORE: Final = "SubBefore"
SUB_AFTER: Final = "SubAfter"
END_TRANSACTION: Final = "EndTransaction"
RECALL: Final = "Recall"
UNREADABLE: Final = "UNKNOWN"

MAX_ENTRIES: Final = 100_000
MAX_FIELD_BYTES: Final = 1 << 16  # More than MessageVersion's 32,767 bytes of all properties.
MAX_IDS_BYTES: Final = 16 << 20
RAW_BYTES: Final = 4_096
_LAST_TIME_MS: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
_NUMBER_DIGITS: Final = 18
_MAX_FIELDS: Final = 15
_CLOUD_FIELDS: Final = 7
_ENTRY_END: Final = b"\x02"
_FIELD_END: Final = b"\x01"
_NULL_WORD: Final = "null"
_MESSAGE_TYPES: Final = (
    "Normal_Msg",
    "Trans_Msg_Half",
    "Trans_msg_Commit",
    "Delay_Msg",
    "Order_Msg",
)
_RESULTS: Final = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
_LEAST_FIELDS: Final = {PUB: 12, SUB_BEFORE: 8, SUB_AFTER: 6, END_TRANSACTION: 13, RECALL: 7}
_ID_FIELDS: Final = (5, 12)  # The fields with the ids of a batch.
_ENTRY_TYPES: Final = {name.encode(): name for name in _LEAST_FIELDS}


class _UnreadableError(Exception):
    """The reason why an entry cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEntry:
    """One event of one message; None is what its type does not have.

    ``timestamp_ms`` (epoch) is the start of a send, of a delivery's work (SubBefore) or its end
    (SubAfter); ``cost_ms`` the duration of a send, or that of a call of the listener divided by
    the messages of the call. ``fields`` is the number of fields of the text.
    """

    event: str
    fields: int
    msg_id: str | None = None
    group: str | None = None
    topic: str | None = None
    tags: str | None = None
    keys: str | None = None
    timestamp_ms: int | None = None
    cost_ms: int | None = None
    success: bool | None = None
    result: str | None = None
    reconsume_times: int | None = None
    request_id: str | None = None
    message_type: str | None = None
    region: str | None = None
    store_host: str | None = None
    offset_msg_id: str | None = None
    body_length: int | None = None
    transaction_id: str | None = None
    from_check: bool | None = None
    client_host: str | None = None
    problem: str | None = None
    raw: bytes | None = None

    @property
    def size(self) -> int:
        """About how many bytes its texts have."""
        texts = (
            self.msg_id, self.group, self.topic, self.tags, self.keys, self.request_id,
            self.region, self.store_host, self.offset_msg_id, self.transaction_id,
            self.client_host, self.result, self.problem, self.raw,
        )  # fmt: skip
        return sum(len(text) for text in texts if text is not None)


def parse(body: bytes) -> Iterator[TraceEntry]:
    """Yield the entries of a trace message; a batch send is an entry for each of its messages.

    Never raises. Takes time and memory in proportion to the body.
    """
    made, start = 0, 0
    while start < len(body):
        end = body.find(_ENTRY_END, start)
        end = len(body) if end < 0 else end
        while start < end:
            after, entries = _entry(body, start, end)
            for entry in entries:
                if made == MAX_ENTRIES:
                    reason = f"more than {MAX_ENTRIES:,} entries: the rest is left out"
                    yield _unknown(body, start, len(body), reason)
                    return
                made += 1
                yield entry
            start = after
        start = end + 1


def _entry(body: bytes, start: int, end: int) -> tuple[int, Iterator[TraceEntry]]:
    """Return where the entry at ``start`` ends, and what it is."""
    cuts = _cuts(body, start, end)
    kind = _ENTRY_TYPES.get(body[start : cuts[0]] if cuts[0] - start < RAW_BYTES else b"")
    if kind == SUB_AFTER and len(cuts) > _CLOUD_FIELDS:
        ends = cuts[_CLOUD_FIELDS - 1]
        if body[ends + 1 : cuts[_CLOUD_FIELDS]] in (*_ENTRY_TYPES, b""):
            end, cuts = ends + 1, cuts[:_CLOUD_FIELDS]
    if kind is None:
        return end, iter([_unknown(body, start, end, "its type is none of a trace entry")])
    try:
        fields = _fields(body, start, cuts, _ID_FIELDS if kind == PUB else ())
        return end, _read(kind, fields, _count(body, cuts, end))
    except _UnreadableError as error:
        return end, iter([_unknown(body, start, end, str(error))])


def _cuts(body: bytes, start: int, end: int) -> list[int]:
    """Return where the first fields end."""
    cuts: list[int] = []
    while len(cuts) < _MAX_FIELDS:
        cut = body.find(_FIELD_END, start, end)
        cuts.append(end if cut < 0 else cut)
        if cut < 0:
            break
        start = cut + 1
    return cuts


def _count(body: bytes, cuts: list[int], end: int) -> int:
    more = body.count(_FIELD_END, cuts[-1], end) if len(cuts) == _MAX_FIELDS else 0
    return len(cuts) + more


def _fields(body: bytes, start: int, cuts: list[int], long: tuple[int, ...]) -> "_Fields":
    found = []
    for number, cut in enumerate(cuts):
        if cut - start > MAX_FIELD_BYTES and number not in long:
            raise _UnreadableError(f"field {number} has {cut - start:,} bytes")
        try:
            found.append(body[start:cut].decode())
        except UnicodeDecodeError:
            raise _UnreadableError(f"field {number} is not UTF-8") from None
        start = cut + 1
    return _Fields(found)


def _unknown(body: bytes, start: int, end: int, problem: str) -> TraceEntry:
    count = body.count(_FIELD_END, start, end) + 1
    raw = body[start : min(end, start + RAW_BYTES)]
    return TraceEntry(event=UNREADABLE, fields=count, problem=problem, raw=raw)


class _Fields:
    """The fields of an entry, by index; of what is not there, None."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def text(self, number: int) -> str | None:
        found = self._texts[number] if number < len(self._texts) else _NULL_WORD
        return None if found in {"", _NULL_WORD} else found

    def number(self, number: int, low: int = 0, high: int = 2**31 - 1) -> int | None:
        text = self.text(number)
        if text is None:
            return None
        digits = text.removeprefix("-")
        if len(text) > _NUMBER_DIGITS or not text.isascii() or not digits.isdecimal():
            raise _UnreadableError(f"field {number} is not a number")
        if not low <= int(text) <= high:
            raise _UnreadableError(f"field {number} is {text}: not from {low} to {high}")
        return int(text)

    def time(self, number: int) -> int | None:
        return self.number(number, high=_LAST_TIME_MS)

    def truth(self, number: int) -> bool | None:
        text = self.text(number)
        if text not in {None, "true", "false"}:
            raise _UnreadableError(f"field {number} is neither true nor false")
        return None if text is None else text == "true"

    def word(self, number: int, words: tuple[str, ...]) -> str | None:
        """Return the word of an ordinal; the number itself if it is a later version's."""
        ordinal = self.number(number)
        if ordinal is None:
            return None
        return words[ordinal] if ordinal < len(words) else str(ordinal)


def _read(kind: str, fields: _Fields, count: int) -> Iterator[TraceEntry]:
    if len(fields) < _LEAST_FIELDS[kind]:
        raise _UnreadableError(f"{kind} has {len(fields)} fields, not {_LEAST_FIELDS[kind]}")
    if kind == PUB:
        return _of_batch(_pub(fields, count))
    if kind == SUB_BEFORE:
        entry = TraceEntry(
            event=kind, fields=count, timestamp_ms=fields.time(1), region=fields.text(2),
            group=fields.text(3), request_id=fields.text(4), msg_id=fields.text(5),
            reconsume_times=fields.number(6), keys=fields.text(7),
        )  # fmt: skip
    elif kind == SUB_AFTER:
        entry = TraceEntry(
            event=kind, fields=count, request_id=fields.text(1), msg_id=fields.text(2),
            cost_ms=fields.number(3, -(2**31)), success=fields.truth(4), keys=fields.text(5),
            result=fields.word(6, _RESULTS), timestamp_ms=fields.time(7), group=fields.text(8),
        )  # fmt: skip
    elif kind == END_TRANSACTION:
        entry = TraceEntry(
            event=kind, fields=count, timestamp_ms=fields.time(1), region=fields.text(2),
            group=fields.text(3), topic=fields.text(4), msg_id=fields.text(5),
            tags=fields.text(6), keys=fields.text(7), store_host=fields.text(8),
            message_type=fields.word(9, _MESSAGE_TYPES), transaction_id=fields.text(10),
            result=fields.text(11), from_check=fields.truth(12),
        )  # fmt: skip
    else:
        entry = TraceEntry(
            event=kind, fields=count, timestamp_ms=fields.time(1), region=fields.text(2),
            group=fields.text(3), topic=fields.text(4), msg_id=fields.text(5),
            success=fields.truth(6),
        )  # fmt: skip
    return iter([entry])


def _pub(fields: _Fields, count: int) -> TraceEntry:
    """Return a send: of 12 fields without its outcome, of 13 without the offsetMsgId."""
    return TraceEntry(
        event=PUB, fields=count, timestamp_ms=fields.time(1), region=fields.text(2),
        group=fields.text(3), topic=fields.text(4), msg_id=fields.text(5), tags=fields.text(6),
        keys=fields.text(7), store_host=fields.text(8), body_length=fields.number(9),
        cost_ms=fields.number(10, -(2**31)), message_type=fields.word(11, _MESSAGE_TYPES),
        offset_msg_id=None if count == 13 else fields.text(12),
        success=fields.truth(12 if count == 13 else 13), client_host=fields.text(14),
    )  # fmt: skip


def _of_batch(entry: TraceEntry) -> Iterator[TraceEntry]:
    """Yield an entry for each message of a batch: their ids are joined by commas."""
    joined = entry.msg_id or ""
    count = joined.count(",") + 1
    if count == 1:
        return iter([entry])
    rest = entry.size - len(joined) - len(entry.offset_msg_id or "")
    if count * rest > MAX_IDS_BYTES:
        raise _UnreadableError(f"{count:,} messages with fields of {rest:,} characters")
    places = (entry.offset_msg_id or "").split(",") if entry.offset_msg_id else []
    known = len(places) == count
    return (
        replace(entry, msg_id=msg_id, offset_msg_id=places[number] if known else None)
        for number, msg_id in enumerate(joined.split(","))
    )
