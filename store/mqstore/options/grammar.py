"""The grammar of option values, of Spark's options and of the command line.

    boolean      true | false
    count        42                               a whole number, at least 1 by default
    size         1048576 | 64k | 16m | 1g         bytes, powers of 1024
    duration     1500 | 500ms | 10s | 15m | 2h | 1d    milliseconds
    timestamp    1700000000000                    milliseconds since 1970-01-01T00:00:00Z
                 2026-11-21T09:00:00Z | …+08:00   ISO-8601; a zone is required
                 -10m                             a duration before now
    names        a,b | ["a","b"]
    queues       {"TopicA":[0,1]}
    positions    {"TopicA":{"0":23,"1":"latest"}}            of every store's queue
                 {"TopicA":{"broker-a":{"0":23}}}            of one store's queue
                 -2 is earliest, -1 is latest, and so are the words

Every function takes the option's name first, so that the error it raises can name it. The
JSON forms are those of Spark's Kafka connector (JsonUtils#partitionOffsets), with a
level for brokers added.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Final, TypeAlias, TypeGuard

from mqstore.errors import InvalidOptionError

EARLIEST: Final = -2
LATEST: Final = -1
ON_CORRUPT: Final = ("fail", "skip", "rescue")

QueueKey: TypeAlias = tuple[str, str | None, int]
"""A topic, a broker's name (None: every store's queue) and a queue id."""

_SIZE: Final = re.compile(r"([0-9]+) ?([kmgt]?)b?", re.IGNORECASE)
_DURATION: Final = re.compile(r"([0-9]+) ?(ms|s|m|h|d)?", re.IGNORECASE)
_SHIFT: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_OFFSET_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_GROUP: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")  # Validators#checkGroup
_MAX_LONG: Final = 2**63 - 1
_MOST_MS: Final = 24 * 60 * 60 * 1000
_MAX_DIGITS: Final = 19
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS_STEP: Final = timedelta(milliseconds=1)


class Sql92(str):
    """A subscription that is an SQL92 expression, where other text is a tag expression."""

    __slots__ = ()


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like ``name``, or None."""
    found = near(name, known, count=1)
    return found[0] if found else None


def near(name: str, known: Iterable[str], *, count: int = 3) -> list[str]:
    """Return at most ``count`` known names like ``name``, the most similar first, in any case."""
    by_lower = {k.lower(): k for k in sorted(known)}
    return [by_lower[k] for k in get_close_matches(name.lower(), by_lower, n=count, cutoff=0.6)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean X? `` or nothing: the start of an error's last sentence."""
    found = nearest(name, known)
    return f"did you mean {found}? " if found else ""


def boolean(option: str, text: str) -> bool:
    """Return the truth of ``true`` or ``false``, in any case."""
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise InvalidOptionError(option, text, "must be true or false")
    return word == "true"


def choice(option: str, text: str, words: Iterable[str]) -> str:
    """Return the word of ``words`` that ``text`` is, in any case."""
    known = {word.lower(): word for word in words}
    if text.strip().lower() not in known:
        raise InvalidOptionError(
            option, text, f"{did_you_mean(text, known)}must be one of {', '.join(known.values())}"
        )
    return known[text.strip().lower()]


def count(option: str, text: str, *, low: int = 1, high: int = _MAX_LONG) -> int:
    """Return a whole number of [low, high]."""
    bound = f"from {low} to {high}" if high < _MAX_LONG else f"of at least {low}"
    stripped = text.strip()
    if re.fullmatch(r"-?[0-9]{1,19}", stripped) is None or not low <= int(stripped) <= high:
        raise InvalidOptionError(option, text, f"must be a whole number {bound}")
    return int(stripped)


def size(option: str, text: str, *, low: int = 1, high: int = _MAX_LONG) -> int:
    """Return the bytes of ``64k``, ``16m``, ``1g`` or a plain number of bytes."""
    expected = "must be a size such as 65536, 64k, 16m or 1g"
    match = _SIZE.fullmatch(text.strip())
    if match is None or len(match[1]) > _MAX_DIGITS:
        raise InvalidOptionError(option, text, expected)
    found = int(match[1]) << _SHIFT[match[2].lower()]
    if not low <= found <= high:
        bound = f", from {low} to {high} bytes" if high < _MAX_LONG else f", at least {low} bytes"
        raise InvalidOptionError(option, text, expected + bound)
    return found


def duration(option: str, text: str) -> int:
    """Return the milliseconds of ``500ms``, ``10s``, ``15m``, ``2h``, ``1d`` or a plain number."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or len(match[1]) > _MAX_DIGITS:
        raise InvalidOptionError(
            option, text, "must be a duration such as 500ms, 10s, 15m, 2h, or a number of ms"
        )
    found = int(match[1]) * _MS[(match[2] or "ms").lower()]
    if found > _MAX_LONG:
        raise InvalidOptionError(option, text, "must be at most 2**63-1 ms")
    return found


def milliseconds(option: str, text: str, *, low: int = 1) -> int:
    """Return a duration from ``low`` ms to 24 hours."""
    found = duration(option, text)
    if not low <= found <= _MOST_MS:
        raise InvalidOptionError(option, text, f"must be from {low} ms to 24h")
    return found


def timestamp(option: str, text: str, *, now_ms: int) -> int:
    """Return milliseconds since the epoch; a fraction of one is rounded up.

    A store timestamp is in whole milliseconds and the test is ``storeTimestamp >= t``, so rounding
    up selects the same messages.
    """
    stripped = text.strip()
    if re.fullmatch(r"[0-9]{1,19}", stripped) and int(stripped) <= _MAX_LONG:
        return int(stripped)
    if stripped.startswith("-") and stripped[-1:].isalpha():
        return max(0, now_ms - duration(option, stripped[1:]))
    try:
        moment = datetime.fromisoformat(stripped)
        naive = moment.utcoffset() is None
    except ValueError:
        if _DURATION.fullmatch(stripped) and stripped[-1].isalpha():
            expected = f"has no sign: the time so long before now is -{stripped}"
            raise InvalidOptionError(option, text, expected) from None
        raise InvalidOptionError(
            option,
            text,
            "must be epoch milliseconds, ISO-8601 with a zone (2026-11-21T09:00:00Z), or a time "
            "before now (-10m)",
        ) from None
    if naive:
        whole = moment.isoformat()  # With hours and minutes: a date alone takes no zone.
        raise InvalidOptionError(option, text, f"has no time zone: write {whole}Z or {whole}+08:00")
    return max(0, -((_EPOCH - moment) // _MS_STEP))


def names(option: str, text: str) -> tuple[str, ...]:
    """Return the names of a comma list or of a JSON array of strings; none may be empty."""
    stripped = text.strip()
    if stripped.startswith("["):
        found = _json(option, text, '["name", …]')
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise InvalidOptionError(option, text, "must be a JSON array of strings")
    else:
        found = [name.strip() for name in stripped.split(",")]
    if not found or not all(found):
        raise InvalidOptionError(
            option, text, 'must be a comma list or a JSON array ["…"], without empty names'
        )
    return tuple(dict.fromkeys(found))


def queues(option: str, text: str) -> dict[str, tuple[int, ...]]:
    """Return the queue ids of each topic of ``{"TopicA":[0,1]}``."""
    form = '{"TopicA":[0,1]}'
    found = _json(option, text, form)
    if not isinstance(found, dict) or not found:
        raise InvalidOptionError(option, text, f"must be JSON such as {form}")
    for topic, ids in found.items():
        if not isinstance(ids, list) or not ids or not all(_is_number(i, low=0) for i in ids):
            raise InvalidOptionError(
                option, text, f"topic {topic} must have a list of queue ids: {form}"
            )
    return {topic: tuple(dict.fromkeys(ids)) for topic, ids in found.items()}


def positions(option: str, text: str) -> dict[QueueKey, int]:
    """Return a queue offset, EARLIEST or LATEST for each queue that the JSON names."""
    form = '{"TopicA":{"0":23,"1":-2}} (-2 earliest, -1 latest)'
    found: dict[QueueKey, int] = {}
    for key, value in _leaves(option, text, form):
        number = _OFFSET_WORDS.get(value.lower(), value) if isinstance(value, str) else value
        if not _is_number(number, low=EARLIEST):
            raise InvalidOptionError(
                option,
                text,
                f"{_name(key)} is {value!r}; write an offset, -2 or -1: {form}",
            )
        found[key] = number
    return found


def timestamps(option: str, text: str, *, now_ms: int) -> dict[QueueKey, int]:
    """Return milliseconds since the epoch for each queue that the JSON names."""
    form = '{"TopicA":{"0":1700000000000}}'
    found: dict[QueueKey, int] = {}
    for key, value in _leaves(option, text, form):
        if not isinstance(value, str) and not _is_number(value, low=0):
            raise InvalidOptionError(
                option, text, f"{_name(key)} is {value!r}; write a timestamp: {form}"
            )
        found[key] = timestamp(f"{option}, {_name(key)}", str(value), now_ms=now_ms)
    return found


def expressions(option: str, text: str) -> dict[str, dict[str, str]]:
    """Return the expression of each topic of each group of ``{"group":{"topic":"A || B"}}``.

    ``{"sql":"a > 5"}`` in the place of a tag expression is an Sql92.
    """
    form = '{"group":{"topic":"A || B"}} or {"group":{"topic":{"sql":"a > 5"}}}'
    found = _json(option, text, form)
    if not isinstance(found, dict):
        raise InvalidOptionError(option, text, f"must be JSON such as {form}")
    for group, topics in found.items():
        if not isinstance(topics, dict) or not all(map(_is_expression, topics.values())):
            raise InvalidOptionError(option, text, f"group {group} must have {form}")
    return {
        group: {t: e if isinstance(e, str) else Sql92(e["sql"]) for t, e in topics.items()}
        for group, topics in found.items()
    }


def _is_expression(value: object) -> bool:
    if isinstance(value, dict):
        return set(value) == {"sql"} and isinstance(value["sql"], str)
    return isinstance(value, str)


def _leaves(option: str, text: str, form: str) -> Iterator[tuple[QueueKey, object]]:
    found = _json(option, text, form)
    for topic, inner in _level(option, text, found, form):
        for name, value in _level(option, text, inner, form):
            if isinstance(value, dict):
                for queue_id, leaf in _level(option, text, value, form):
                    yield (topic, name, _queue_id(option, text, queue_id, form)), leaf
            else:
                yield (topic, None, _queue_id(option, text, name, form)), value


def _level(option: str, text: str, value: object, form: str) -> Iterable[tuple[str, object]]:
    if not isinstance(value, Mapping):
        raise InvalidOptionError(option, text, f"must be JSON such as {form}")
    return value.items()


def _queue_id(option: str, text: str, name: str, form: str) -> int:
    if re.fullmatch(r"[0-9]{1,5}", name) is None:
        raise InvalidOptionError(option, text, f"{name!r} is not a queue id: write {form}")
    return int(name)


def _is_number(value: object, *, low: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= _MAX_LONG


def _name(key: QueueKey) -> str:
    topic, broker, queue_id = key
    return f"topic {topic}{f' of broker {broker}' if broker else ''}, queue {queue_id}"


def _json(option: str, text: str, form: str) -> object:
    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key is repeated")
        return found

    try:
        found: object = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(option, text, f"is not JSON ({error}): write {form}") from None
    return found


def group_name(option: str, text: str) -> str:
    """Return the name of a consumer group; raises InvalidOptionError for one that cannot be."""
    if _GROUP.fullmatch(text) is None:
        expected = "must be a group's name: 1 to 255 of letters, digits, %, |, _ and -"
        raise InvalidOptionError(option, text, expected)
    return text
