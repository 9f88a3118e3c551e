"""Control records: what a publisher says of its write, in the same logs as the rows.

A record is JSON, one message of the control topic, whose tag is a hash of the application. BEGIN
stands in each broker's log in front of the rows of the write, with the ends of the queues before
them; COMMIT stands behind all of its rows.

A COMMIT also has the number of rows and the digest of their ids, by which a later publisher of the
same write tells whether it has the same rows.

A COMMIT has ``seen`` as well: the ends of the control queues that its publisher had read. Of what
stands in front of these ends, the COMMIT is all that a later publisher needs: its version is the
newest of them, and its starts are the least of that version. Where a publisher saw a record of a
newer version, which an application that counts its versions up does not leave, ``seen`` is empty.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mqstore.format.properties import WRITE_PROPERTY
from mqstore.live.remoting.fastjson import InvalidBodyError, loads
from mqstore.live.send.requests import Queue
from mqstore.live.send.topics import MessageLimits

BEGIN: Final = "BEGIN"
COMMIT: Final = "COMMIT"
CONTROL_QUEUE: Final = 0
"""The queue of the control topic that has the records of a broker."""
_HASH_BYTES: Final = 8
_ROOM_BYTES: Final = 1_024  # The rest of the record: header, topic, properties, what a broker adds.

Starts = Mapping[Queue, int]
"""Queue offsets by queue: where messages of a write may begin."""


class InvalidControlError(ValueError):
    """A message of the control topic that is no control record."""


@dataclass(frozen=True, slots=True)
class Control:
    """A control record. ``owner`` tells one try of a write from another.

    ``source`` is what the writer noted of what it writes, for itself.
    """

    kind: str
    app: str
    version: int
    owner: str
    starts: Starts
    seen: Mapping[str, int] = field(default_factory=dict)
    """By broker the end of its control queue; all records in front of it need no reading."""
    source: str = ""
    rows: int = 0
    digest: str = ""
    """Of a COMMIT: how many rows the write has, and what stands for their ids. Empty in a BEGIN,
    and in the records of publishers that did not know it."""

    @property
    def brokers(self) -> set[str]:
        """The brokers that the write goes to."""
        return {queue.broker for queue in self.starts}

    def encode(self) -> bytes:
        """Return the body of the record's message."""
        starts: dict[str, dict[str, dict[str, int]]] = {}
        for queue, at in sorted(self.starts.items()):
            of_topic = starts.setdefault(queue.broker, {}).setdefault(queue.topic, {})
            of_topic[str(queue.queue_id)] = at
        found: dict[str, Any] = {
            "kind": self.kind,
            "app": self.app,
            "version": self.version,
            "owner": self.owner,
            "starts": starts,
            "seen": dict(sorted(self.seen.items())),
        }
        if self.source:
            found["source"] = self.source
        if self.digest:
            found |= {"rows": self.rows, "digest": self.digest}
        return json.dumps(found, separators=(",", ":")).encode()


def decode(body: bytes) -> Control:
    """Return the record in a message's body; raises InvalidControlError."""
    try:
        found = loads(body)
    except InvalidBodyError as error:
        raise InvalidControlError(str(error)) from error
    if not isinstance(found, dict):
        raise InvalidControlError("no object")
    kind, app, owner = (_text(found, name) for name in ("kind", "app", "owner"))
    version = _number(found.get("version"))
    starts = {
        Queue(topic, broker, _queue_id(queue_id)): _number(at)
        for broker, topics in _table(found.get("starts")).items()
        for topic, queues in _table(topics).items()
        for queue_id, at in _table(queues).items()
    }
    seen = {broker: _number(at) for broker, at in _table(found.get("seen")).items()}
    source = _text(found, "source") if "source" in found else ""
    digest = _text(found, "digest") if "digest" in found else ""
    rows = _number(found.get("rows")) if digest else 0
    return Control(kind, app, version, owner, starts, seen, source, rows, digest)


def least(found: Iterable[Starts]) -> Starts:
    """Return the queues of all of these, each with its lowest queue offset."""
    lowest: dict[Queue, int] = {}
    for starts in found:
        for queue, at in starts.items():
            lowest[queue] = min(at, lowest.get(queue, at))
    return lowest


def most_bytes(limits: MessageLimits) -> int:
    """Return how many bytes the body of a record may have, so that brokers take it."""
    return min(limits.max_message_size, limits.log_file) - _ROOM_BYTES


def tag_of(app: str) -> str:
    """Return the tag of an application's records."""
    return hashlib.blake2b(app.encode(), digest_size=_HASH_BYTES).hexdigest()


def mark_of(app: str, version: int) -> tuple[str, str]:
    """Return name and value of the property that each message of a write has."""
    return WRITE_PROPERTY, f"{tag_of(app)}-{version}"


def _table(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise InvalidControlError("starts or seen are no tables")
    return found


def _text(found: dict[Any, Any], name: str) -> str:
    inner = found.get(name)
    if not isinstance(inner, str):
        raise InvalidControlError(f"{name} is no text")
    return inner


def _number(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 2**63:
        raise InvalidControlError("a version, an offset or a number of rows is no number")
    return found


def _queue_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise InvalidControlError("a queueId is no number")
    return int(text)
