"""What a commit decided to append: .mqlog/txn/pending.json, at most one in a store.

Once it is durable the commit will happen, in this process or a later one; until it is removed our
readers see nothing of the commit. The intent and the staged files determine every byte to write.

Readers look at three things: the number in .mqlog/txn/SEQ, the intent, and the number again. The
number is raised after an intent appears and after it is gone. SEQ also holds where those commits
began to write: what lies before all of these places was whole all the time.

    SEQ ::= number tail{1024}       20 digits each; the tail of event n stands in place n % 1024

Reference: commit protocol, steps 14, 20, 25 and 26.
"""

import base64
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from mqstore.errors import CorruptConfigError, StoreError, StoreLockedError
from mqstore.files.base import durable
from mqstore.files.base.file_sizes import FileSizes
from mqstore.files.base.new_file import opened
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.lock.processes import is_locked
from mqstore.files.txn import small_json
from mqstore.files.txn.ledger import LEDGER_FOLDER, Key, LedgerEntry
from mqstore.files.txn.segment import Segment
from mqstore.files.txn.staging import JOB_ID
from mqstore.format import names
from mqstore.format.arrays import Mask
from mqstore.format.message import HEADERS
from mqstore.format.names import MAX_QUEUE_ID
from mqstore.format.staged import SUFFIX

DECIDED: Final = "decided"
PUBLISHED: Final = "published"

INTENT_FILES: Final = ("pending.json", "SEQ")

_PATH: Final = f"{LEDGER_FOLDER}/{INTENT_FILES[0]}"
_SEQUENCE: Final = f"{LEDGER_FOLDER}/{INTENT_FILES[1]}"
_DIGITS: Final = 20
_SLOTS: Final = 1024  # commits that began or ended, newest kept, whose tails SEQ tells
_ABORT: Final = "mqlog:"
_MOST_IN_COMMIT: Final = 1 << 31
_MOST_FILES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One commit: what is staged, where it goes, and how far it has come.

    Physical offsets: the log's first file starts at ``log_start``, the commit's bytes are [tail,
    end), its first record lies at ``first``, behind a blank record if that is not ``tail``, and
    its last at ``last``. ``queues`` are (topic, queueId, first queue offset, messages).
    """

    job_id: str
    key: Key | None
    state: str = DECIDED
    generation: int = 0
    """How often the commit was planned anew because a broker had written."""
    staging: str = ""
    """The job's directory with the staged files; empty if it is the store's own."""
    segments: tuple[Segment, ...]
    host_variant: int
    log_start: int
    tail: int
    end: int
    first: int
    last: int
    messages: int
    skipped: int
    key_count: int
    store_timestamp_ms: int
    last_store_timestamp_ms: int
    queues: tuple[tuple[str, int, int, int], ...]
    sizes: FileSizes
    interlock: bool = False
    """No broker may start before the commit is published."""
    abort_was_there: bool = False
    """A broker left ``abort``, and the user set recoverUnclean."""
    present: str = ""
    """Which staged messages are in the log already (a generation > 0): see ``present_mask``."""
    least_store_timestamp_ms: int = 0
    """No message gets an earlier one, even if its own was to be preserved."""
    earlier: int | None = None
    """Physical offset of the first message that an earlier generation left in the log."""
    digest: str | None = None
    """Of all rows that the write was given; None without a key."""

    def __str__(self) -> str:
        return str(self.key or f"of job {self.job_id}")

    def directory(self, place: StoreDir) -> str:
        """Return the directory of the staged files."""
        return self.staging or f"{place.root}/{names.OURS}/{names.STAGING}/{self.job_id}"

    def present_mask(self, count: int) -> Mask | None:
        """Tell of each staged message whether it is in the log already; None: none is."""
        return unpack(self.present, count) if self.present else None

    def entry(self, state: str, now_ms: int) -> LedgerEntry:
        """Return the ledger's line of this commit."""
        key = self.key
        return LedgerEntry(
            app_id=key.app_id if key else None,
            version=key.version if key else None,
            query_id=key.query_id if key else None,
            batch_id=key.batch_id if key else None,
            job_id=self.job_id,
            rows=sum(segment.message_count for segment in self.segments),
            bytes=sum(segment.records_bytes for segment in self.segments),
            first_physical_offset=self.first if self.earlier is None else self.earlier,
            last_physical_offset=self.last,
            committed_ms=now_ms,
            state=state,
            digest=self.digest,
        )


def load(place: StoreDir) -> Intent | None:
    """Return the intent of a commit that is not finished. Raises CorruptConfigError."""
    body = small_json.load(place, _PATH)
    if body is None:
        return None
    try:
        return _parse(body)
    except small_json.BAD as error:
        raise small_json.corrupt(place, _PATH, error) from error


def store(writer: StoreWriter, intent: Intent) -> None:
    """Make the intent durable: the decision, or how far the commit has come."""
    small_json.replace(writer, _PATH, asdict(intent))


def check_size(intent: Intent) -> None:
    """Raise StoreError if the intent is too large to be read again, and so to be finished."""
    if not small_json.is_readable(asdict(intent)):
        what = f"{len(intent.queues)} queues and {len(intent.segments)} staged files"
        raise StoreError(f"{what} are more than one commit can have: write them in several")


def remove(writer: StoreWriter) -> None:
    """Remove the intent, durably: its commit is finished."""
    durable.unlink(writer.path(_PATH))
    durable.fsync_directory(writer.path(LEDGER_FOLDER))


def cap(place: StoreDir) -> int | None:
    """Return the physical offset from which readers see nothing, or None: they see all.

    Nothing is hidden of what a broker serves: one that started since has entered all of the
    commit into its queues, or has seen none of it.
    """
    intent = load(place)
    if intent is None or _broker_came(place, intent):
        return None
    return intent.tail


def abort_text(intent: Intent) -> bytes:
    """Return what our file ``abort`` holds while the commit is under way."""
    return f"{_ABORT}{intent.job_id}".encode()


def abort_is_ours(place: StoreDir) -> bool:
    """Tell whether a commit of ours left ``abort``, or has it there now.

    A 4.9 broker that is started on it keeps its text; a 5.x broker writes its process id.
    """
    return (place.folder.read_small(names.ABORT) or b"").startswith(_ABORT.encode())


def _broker_came(place: StoreDir, intent: Intent) -> bool:
    # Before our abort is made there is nothing to hide; a broker removes it as it stops.
    ended = not intent.abort_was_there and not abort_is_ours(place)
    return ended or (
        is_locked(f"{place.root}/{names.LOCK}")
        and not is_locked(f"{place.root}/{names.OURS}/{names.LOCK}")
    )


def raise_sequence(writer: StoreWriter, tail: int) -> None:
    """Let readers notice that a commit with this tail begins or ends.

    Not durable: a power cut ends the readers as well.
    """
    path = writer.path(_SEQUENCE)
    try:
        number = sequence(writer.place) + 1
    except CorruptConfigError:  # A reader that read it before got the same error and stopped.
        number = 1
    if not os.path.lexists(path):
        durable.close(durable.create(path))
    with opened(path) as fd:
        durable.write_at(fd, _digits(tail), _slot(number))
        durable.write_at(fd, _digits(number), 0)


def check_sequence(writer: StoreWriter) -> None:
    """Raise UnsafePathError if SEQ could not be raised: it is no plain file, or has two names."""
    path = writer.path(_SEQUENCE)
    if os.path.lexists(path):
        with opened(path):
            pass


def sequence(place: StoreDir) -> int:
    """Return how often a commit began or ended in this store; 0 if none ever did."""
    found = place.folder.read_small(_SEQUENCE, _DIGITS) or b"0"
    return _number(place, found)


class CommitFence:
    """A look at a store that begins now: what may be seen of it, however long it takes.

    Take it before the first byte is looked at, and ask for its ``cap`` after the last.
    """

    def __init__(self, place: StoreDir) -> None:
        self._place = place
        self._number = sequence(place)
        self._cap = cap(place)

    def cap(self) -> int | None:
        """Return the physical offset from which nothing was whole all the time; None: all was.

        Raises StoreLockedError if more commits began and ended meanwhile than SEQ tells of.
        """
        passed = sequence(self._place) - self._number
        if not 0 <= passed < _SLOTS:
            reason = f"{passed} commits began or ended while it was listed; try again"
            raise StoreLockedError(f"{self._place.root}: {reason}")
        tails = [] if self._cap is None else [self._cap]
        if passed:
            found = self._place.folder.read_small(_SEQUENCE) or b""
            for number in range(self._number + 1, self._number + passed + 1):
                at = _slot(number)
                tails.append(_number(self._place, found[at : at + _DIGITS]))
        return min(tails, default=None)

    def is_over(self) -> bool:
        """Tell whether a commit began or ended since."""
        return sequence(self._place) != self._number


def _slot(number: int) -> int:
    return _DIGITS * (1 + number % _SLOTS)


def _digits(number: int) -> bytes:
    return b"%0*d" % (_DIGITS, number)


def _number(place: StoreDir, text: bytes) -> int:
    if not text.strip(b"\0"):
        return 0  # A power cut took what was never made durable.
    if not (text.isascii() and text.isdigit()):
        raise small_json.corrupt(place, _SEQUENCE, ValueError(f"not a number: {text!r}"))
    return int(text)


def pack(mask: Mask) -> str:
    """Return a mask as text that is short where it is regular."""
    return base64.b64encode(zlib.compress(np.packbits(mask).tobytes(), 6)).decode()


def unpack(text: str, count: int) -> Mask:
    """Return the mask of ``count`` messages that ``pack`` made a text of. Raises ValueError."""
    size = (count + 7) // 8
    unzip = zlib.decompressobj()
    data = unzip.decompress(base64.b64decode(text, validate=True), size)
    if len(data) != size or not 0 <= count < _MOST_IN_COMMIT:
        raise ValueError("a mask of another length")
    return np.unpackbits(np.frombuffer(data, np.uint8), count=count).astype(np.bool_)


def published(intent: Intent) -> Intent:
    """Return the intent once a broker sees its messages."""
    return replace(intent, state=PUBLISHED)


def _parse(body: Mapping[str, Any]) -> Intent:
    found = small_json.build(Intent, {"digest": None, **body})  # Older ones lack it.
    _check_numbers(found)
    for topic, queue_id, start, count in found.queues:
        if not names.is_topic(topic) or min(queue_id, start, count) < 0 or queue_id > MAX_QUEUE_ID:
            raise ValueError(f"queue {topic!r} {queue_id} {start} {count}")
    for segment in found.segments:
        if "/" in segment.name or not segment.name.endswith(SUFFIX):
            raise ValueError(f"{segment.name!r} is not the name of a staged file")
    if not JOB_ID.fullmatch(found.job_id) or (
        found.staging and os.path.split(found.staging)[1] != found.job_id
    ):
        raise ValueError(f"{found.staging!r} is not the directory of job {found.job_id!r}")
    return found


def _check_numbers(intent: Intent) -> None:
    sane = (
        intent.state in {DECIDED, PUBLISHED}
        and 0 <= intent.log_start <= intent.tail <= intent.first <= intent.last < intent.end
        and intent.messages > 0
        and 0 <= intent.host_variant < len(HEADERS)
        and intent.sizes.commit_log > 0
        and intent.sizes.consume_queue > 0
        and (intent.end - intent.log_start) // intent.sizes.commit_log < _MOST_FILES
    )
    if not sane:
        raise ValueError("numbers that contradict each other")
