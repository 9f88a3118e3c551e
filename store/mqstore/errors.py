"""The errors that mqlog raises, each with the name of its condition.

StoreError
├── StoreNotFoundError        the directory is missing, or is not a directory
├── NotAStoreError            a directory that has no RocketMQ store
├── NotARepositoryError       a directory or folder that is no repository of points
├── PointNotFoundError        a point that a repository does not have
├── UnsupportedStoreError     a store of a flavour that mqlog does not read or does not write
│   └── UnsupportedTopicError a topic that a broker does not give as records
├── StoreUnavailableError     an object store that refuses, fails or does not answer
├── UnsafePathError           a symbolic link, device or name that would lead out of the store
├── CorruptStoreError         bytes that the format does not allow, where data must be whole
│   └── CorruptConfigError    a JSON file of config/ that neither mqlog nor a broker can parse
├── DataLossError             a queue offset that the store no longer, or does not yet, hold
│   └── StoreReplacedError    a checkpoint whose offsets are not of this store
├── UnknownTopicError         a topic or queue that the store does not have
├── UnknownGroupError         a consumer group that the store does not know
├── InvalidOptionError        an option or a value that is not accepted
│   └── InvalidSchemaError    a column or a type that a read or a write does not have
├── InvalidQueryError         a query in SQL that its engine refuses, or that fails in it
├── InvalidMessageError       a row that RocketMQ's own producer or broker would refuse
│   └── MessageTooLargeError  the same, for its size
├── StoreLockedError          another process (a broker, another writer) holds the store
│   └── HoldLostError         a broker opened the store, or is about to, during a commit
├── UncleanStoreError         the store was not closed cleanly, so it may not be written
├── NondeterministicWriteError  a write that runs again has other rows than it had
└── NoSpaceError              the disk has no room for a commit; nothing was changed

A message starts with its condition in brackets, as Spark's do: ``[MQLOG_STORE_NOT_FOUND] …``. The
errors of writes, of clusters and of Spark alone are in the modules ``errors`` of their packages.

An error declares its condition, its fields, and a text with the names of fields in braces::

    class NoRoomError(StoreError):
        condition = "MQLOG_NO_ROOM"
        text = "{path}: {size:,} bytes are missing. {advice!s}"
        path: str
        size: int
        advice: str = "Delete some files"

A value in braces is made printable and short (``shown``); ``!l`` stands for a longer one, ``!r``
for one in quotes, ``!s`` for the value as it is. A constructor takes the fields in their order or
by name, those of the base class first. Errors pickle, so one of a task reaches the driver.
"""

from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature, get_annotations, signature
from numbers import Number
from string import Formatter
from typing import Any, ClassVar, Final, Literal, dataclass_transform

REASON_CHARS = 600  # A broken rule and advice, with a name or two of the store.
_SHOWN_CHARS: Final = 200


def printable(text: str, keep: str = "") -> str:
    r"""Return ``text`` with an escape for each character that a terminal would not just show.

    Control characters (C0, C1), bidi controls and line ends of all kinds, which Unicode does not
    call printable (``str.isprintable``), become ``\x1b``, ``\u202e``; those in ``keep`` stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def shown(value: object, most: int = _SHOWN_CHARS) -> str:
    """Return ``value`` fit for a message: printable, at most ``most`` characters."""
    text = printable(str(value)[: most + 1])  # A body may be large.
    return text if len(text) <= most else text[: most - 1] + "…"


class _Template(Formatter):
    """Fills the text of an error, its only argument, with fields and properties of the error."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return getattr(args[0], str(key))

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        if conversion == "s" or (conversion is None and isinstance(value, Number)):
            return value
        text = repr(str(value)) if conversion == "r" else value
        return shown(text, REASON_CHARS if conversion == "l" else _SHOWN_CHARS)


def _field(place: int) -> property:
    """Return a property for ``args[place]``: ``args`` holds the fields, for pickle and for all."""

    def value(error: "StoreError") -> object:
        return error.args[place]

    def change(error: "StoreError", value: object) -> None:
        error.args = (*error.args[:place], value, *error.args[place + 1 :])

    return property(value, change)


@dataclass_transform()
class StoreError(Exception):
    """Base of all mqlog errors; raised itself for what has no condition of its own."""

    condition: ClassVar[str] = "MQLOG_ERROR"
    text: ClassVar[str] = "{args[0]!s}"  # Of an error with one field: its value.
    _takes: ClassVar[Signature] = Signature([Parameter("what", Parameter.POSITIONAL_ONLY)])

    def __init_subclass__(cls) -> None:
        kind, fields = Parameter.POSITIONAL_OR_KEYWORD, dict[str, Parameter]()
        if "__init__" in cls.__dict__:  # Has other fields than its base.
            fields |= list(signature(cls.__init__).parameters.items())[1:]
        elif StoreError not in cls.__bases__:
            fields |= cls._takes.parameters
        for name in get_annotations(cls):
            default = cls.__dict__.get(name, Parameter.empty)
            fields[name] = Parameter(name, kind, default=default)
        cls._takes = Signature(list(fields.values()))
        for place, name in enumerate(fields):
            setattr(cls, name, _field(place))

    def __init__(self, *values: object, **named: object) -> None:
        taken = self._takes.bind(*values, **named)
        taken.apply_defaults()
        plain = (str, Number, type(None))  # What is of another type may not pickle.
        super().__init__(*(v if isinstance(v, plain) else str(v) for v in taken.args))

    def message(self) -> str:
        """Return the text after the condition."""
        return _Template().vformat(self.text, (self,), {})

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message()}"


class StoreNotFoundError(StoreError):
    """The store directory does not exist, is not a directory, or a glob matched nothing."""

    condition = "MQLOG_STORE_NOT_FOUND"
    text = "{path}: {reason!s}"
    path: str
    reason: str = "no such directory"


class NotAStoreError(StoreError):
    """The directory exists, but holds no RocketMQ store."""

    condition = "MQLOG_NOT_A_STORE"
    text = "{path}: {reason!s}"
    path: str
    reason: str


class NotARepositoryError(StoreError):
    """The directory, or folder of an object store, holds no repository of points."""

    condition = "MQLOG_NOT_A_REPOSITORY"
    text = "{path}: {reason!s}"
    path: str
    reason: str


class PointNotFoundError(StoreError):
    """The repository has no such point. ``wanted`` is its number or time as typed."""

    condition = "MQLOG_POINT_NOT_FOUND"
    text = "{path}: no point {wanted}: {reason!s}"
    path: str
    wanted: str
    reason: str


StoreFlavour = Literal[
    "BATCH_CONSUME_QUEUE",
    "COMPACTION",
    "CONSUME_QUEUE_EXT",
    "CONTROLLER",
    "DLEDGER",
    "FILE_SYSTEM",
    "FOLDER_NAME",
    "MULTI_PATH",
    "NO_LEASE",
    "OWNER",
    "POP_KV_STORE",
    "ROCKSDB_CONFIG",
    "ROCKSDB_CONSUME_QUEUE",
    "ROCKSDB_STATE",
    "TOO_LARGE",
]
TopicFlavour = Literal["BATCH_QUEUE", "COMPACTION", "LIGHT_QUEUE", "NO_READ_PERMISSION", "STATIC"]


class UnsupportedStoreError(StoreError):
    """The store has a flavour that mqlog does not read, or does not write.

    ``path`` is the store or the file that shows it, ``reason`` says what to do.
    """

    condition = "MQLOG_UNSUPPORTED_STORE"
    text = "{path}: {reason!s}"
    path: str
    flavour: StoreFlavour | TopicFlavour
    reason: str

    def __str__(self) -> str:
        return f"[{self.condition}.{self.flavour}] {self.message()}"


class UnsupportedTopicError(UnsupportedStoreError):
    """A topic that a broker does not give as records."""

    condition = "MQLOG_UNSUPPORTED_TOPIC"
    flavour: TopicFlavour


class StoreUnavailableError(StoreError):
    """A request to an object store or HDFS was refused, failed, or had no answer in time.

    ``path`` is the object or folder, ``reason`` what the file system says.
    """

    condition = "MQLOG_STORE_UNAVAILABLE"
    text = "{path}: {reason!l}"
    path: str
    reason: str


class UnsafePathError(StoreError):
    """A path inside the store is a symbolic link, not a plain file, or leads out of it."""

    condition = "MQLOG_UNSAFE_PATH"
    text = "{path}: {reason!s}"
    path: str
    reason: str


class CorruptStoreError(StoreError):
    """Bytes break the format: file, byte, rule; ``physical_offset`` is that of a broken record."""

    condition = "MQLOG_CORRUPT_STORE"
    text = "{path} at byte {position}: {reason!l}"
    path: str
    position: int
    reason: str
    physical_offset: int | None = None


class CorruptConfigError(CorruptStoreError):
    """A JSON file of config/ and its .bak cannot be parsed."""

    condition = "MQLOG_CORRUPT_CONFIG"


class DataLossError(StoreError):
    """Queue offsets [start, end) were requested; the queue holds [low, high)."""

    condition = "MQLOG_DATA_LOSS"
    text = (
        "{queue}: queue offsets [{start}, {end}) were requested, the store holds [{low}, {high}). "
        "{why!s}. Set failOnDataLoss=false to read the messages that it holds"
    )
    queue: str
    start: int
    end: int
    low: int
    high: int

    @property
    def is_expired(self) -> bool:
        """Tell whether the range starts below ``low``, where retention deletes messages."""
        return self.start < self.low

    @property
    def why(self) -> str:
        """Return the likely cause."""
        named = self.low <= self.start <= self.end <= self.high
        if named or self.is_expired:
            return f"Messages {'have' if named else 'may have'} expired, or the store was replaced"
        return f"The queue ends at {self.high}: they are not stored yet, or the store was replaced"


class StoreReplacedError(DataLossError):
    """A stream's checkpoint is of another store, or of this one before it lost messages.

    ``what`` says which part of the checkpoint contradicts the store.
    """

    condition = "MQLOG_DATA_LOSS.STORE_REPLACED"
    text = (
        "{what!s}. The path leads to another store, or this one was rebuilt or lost messages in a "
        "crash. Give the path of the store that the query read before, or start it with a new "
        "checkpointLocation"
    )

    def __init__(self, what: str) -> None:
        StoreError.__init__(self, what)


class UnknownTopicError(StoreError):
    """The store does not have a topic or queue that was named."""

    condition = "MQLOG_UNKNOWN_TOPIC"
    what: str


class UnknownGroupError(StoreError):
    """No store knows a consumer group of that name."""

    condition = "MQLOG_UNKNOWN_GROUP"
    what: str


class InvalidOptionError(StoreError):
    """An option's name or value is not accepted; ``expected`` says what is."""

    condition = "MQLOG_INVALID_OPTION"
    text = "option {option}={value!r}: {expected!s}"
    option: str
    value: object
    expected: str


class InvalidSchemaError(InvalidOptionError):
    """A column (``option``) or a type (``value``) that a read or a write does not have."""

    condition = "MQLOG_INVALID_SCHEMA"
    text = "column {option} ({value}): {expected!s}"


class InvalidQueryError(StoreError):
    """A query in SQL that its engine refuses, or that fails in it; ``reason`` is the engine's."""

    condition = "MQLOG_INVALID_QUERY"
    text = "{reason!l}"
    reason: str


class InvalidMessageError(StoreError):
    """A row that RocketMQ's own producer or broker would refuse."""

    condition = "MQLOG_INVALID_MESSAGE"
    what: str


class MessageTooLargeError(InvalidMessageError):
    """A row whose body or encoded record is larger than the store or the option allows."""

    condition = "MQLOG_MESSAGE_TOO_LARGE"


class StoreLockedError(StoreError):
    """A broker or another writer holds the store's lock."""

    condition = "MQLOG_STORE_LOCKED"
    what: str


class HoldLostError(StoreLockedError):
    """Another process opened the held store; the commit stopped before its next change."""

    condition = "MQLOG_STORE_LOCKED.LEASE_BROKEN"
    text = "{path}: the hold on the store was lost: {reason!s}"

    def __init__(self, path: str, reason: str) -> None:
        StoreError.__init__(self, path, reason)


class UncleanStoreError(StoreError):
    """The file ``abort`` exists: a broker has the store open, or crashed."""

    condition = "MQLOG_STORE_UNCLEAN"
    what: str


class NondeterministicWriteError(StoreError):
    """A write that runs again has other rows than an earlier try of it, of which some are there.

    ``write`` names it, ``difference`` is a sentence without its full stop.
    """

    condition = "MQLOG_NONDETERMINISTIC_WRITE"
    text = (
        "{write}: {difference!l}. A write that runs again must have the same rows: the same input "
        "and options, no rand(), uuid() or current_timestamp() in them, and no checkpoint restored "
        "from a backup. What is there stays; write what is missing under another txnVersion, or "
        "with a new checkpoint"
    )
    write: str
    difference: str


class NoSpaceError(StoreError):
    """The disk or quota has no room for the commit. Nothing was changed."""

    condition = "MQLOG_NO_SPACE"
    what: str


def is_of_absence(error: StoreError) -> bool:
    """Tell whether an error is that a server of a cluster is away for now."""
    return error.condition.startswith(("MQLOG_BROKER_UNAVAILABLE", "MQLOG_NO_MASTER"))
