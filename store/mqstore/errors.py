"""The errors that mqlog raises, each with the name of its condition.

StoreError
├── StoreNotFoundError        the directory is missing, or is not a directory
├── NotAStoreError            a directory that has no RocketMQ store
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
│   ├── InvalidSchemaError    a column or a type that a read or a write does not have
│   └── OverwriteUnsupportedError  any save mode but append
├── InvalidMessageError       a row that RocketMQ's own producer or broker would refuse
│   └── MessageTooLargeError  the same, for its size
├── StoreLockedError          another process (a broker, another writer) holds the store
│   └── HoldLostError         a broker opened the store, or is about to, during a commit
├── UncleanStoreError         the store was not closed cleanly, so it may not be written
├── StagingNotSharedError     a task cannot see the driver's staging directory
├── CorruptStagingError       a staged file differs from the report of its task
├── CommitInDoubtError        a commit was decided and not finished: the next writer finishes it
├── NondeterministicWriteError  a write that runs again has other rows than it had
├── NoSpaceError              the disk has no room for a commit; nothing was changed
├── SparkTooOldError          Spark is older than the first one with streams of Python sources
├── ServerError               what a broker or name server did, at its address
│   ├── BrokerUnavailableError  it cannot be reached, or the connection broke
│   │   └── BrokerTimeoutError  the same, because no answer came in time
│   └── BrokenAnswerError     an answer that RocketMQ's protocol does not allow
├── RequestRefusedError       a request that a broker or name server answered with an error
│   └── AccessDeniedError     the same, because of ACL 1.0 or 2.0
└── NoMasterError             a broker of which no master is registered

A message starts with its condition in brackets, as Spark's do: ``[MQLOG_STORE_NOT_FOUND] …``.
Those of clusters, from ServerError to NoMasterError, are in ``mqstore.live.remoting.errors``.
Fields travel through ``super().__init__`` so that an error pickles from a worker to the driver.
"""

from typing import ClassVar, Final

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


class StoreError(Exception):
    """Base of all mqlog errors."""

    condition: ClassVar[str] = "MQLOG_ERROR"

    def message(self) -> str:
        """Return the text after the condition; subclasses with fields build it from them."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message()}"


class StoreNotFoundError(StoreError):
    """The store directory does not exist, is not a directory, or a glob matched nothing."""

    condition = "MQLOG_STORE_NOT_FOUND"

    def __init__(self, path: str, reason: str = "no such directory") -> None:
        super().__init__(path, reason)

    def message(self) -> str:
        """Name the path and what is wrong with it."""
        path, reason = self.args
        return f"{shown(path)}: {reason}"


class NotAStoreError(StoreError):
    """The directory exists, but holds no RocketMQ store."""

    condition = "MQLOG_NOT_A_STORE"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)

    def message(self) -> str:
        """Name the path and the reason."""
        path, reason = self.args
        return f"{shown(path)}: {reason}"


class UnsupportedStoreError(StoreError):
    """The store has a flavour that mqlog does not read, or does not write.

    ``flavour`` is one of DLEDGER, ROCKSDB_CONSUME_QUEUE, ROCKSDB_CONFIG, BATCH_CONSUME_QUEUE,
    COMPACTION, CONSUME_QUEUE_EXT, CONTROLLER, MULTI_PATH, TOO_LARGE, FILE_SYSTEM, NO_LEASE, OWNER.
    """

    condition = "MQLOG_UNSUPPORTED_STORE"

    def __init__(self, path: str, flavour: str, reason: str) -> None:
        super().__init__(path, flavour, reason)

    def __str__(self) -> str:
        return f"[{self.condition}.{self.args[1]}] {self.message()}"

    def message(self) -> str:
        """Name the path, the file that shows the flavour, and what to do."""
        return f"{shown(self.args[0])}: {self.args[2]}"


class UnsupportedTopicError(UnsupportedStoreError):
    """A topic that a broker does not give as records: STATIC, COMPACTION, BATCH_QUEUE."""

    condition = "MQLOG_UNSUPPORTED_TOPIC"


class StoreUnavailableError(StoreError):
    """A request to an object store or HDFS was refused, failed, or had no answer in time."""

    condition = "MQLOG_STORE_UNAVAILABLE"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)

    def message(self) -> str:
        """Name the object or folder, and what the file system says."""
        path, reason = self.args
        return f"{shown(path)}: {shown(reason, REASON_CHARS)}"


class UnsafePathError(StoreError):
    """A path inside the store is a symbolic link, not a plain file, or leads out of it."""

    condition = "MQLOG_UNSAFE_PATH"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)

    def message(self) -> str:
        """Name the path and its kind."""
        return f"{shown(self.args[0])}: {self.args[1]}"


class CorruptStoreError(StoreError):
    """Bytes break the format. The message names file, position and the rule that was broken."""

    condition = "MQLOG_CORRUPT_STORE"
    physical_offset: int | None = None  # Where the broken record is, if it is about one.

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(path, position, reason)

    def message(self) -> str:
        """Name the file, the byte in it and the broken rule."""
        path, position, reason = self.args
        return f"{shown(path)} at byte {position}: {shown(reason, REASON_CHARS)}"


class CorruptConfigError(CorruptStoreError):
    """A JSON file of config/ and its .bak cannot be parsed."""

    condition = "MQLOG_CORRUPT_CONFIG"


class DataLossError(StoreError):
    """Queue offsets [start, end) were requested; the queue holds [low, high)."""

    condition = "MQLOG_DATA_LOSS"

    def __init__(self, queue: str, *, start: int, end: int, low: int, high: int) -> None:
        super().__init__(queue, start, end, low, high)

    def __reduce__(self) -> tuple[object, ...]:
        queue, start, end, low, high = self.args
        return (_data_loss, (queue, start, end, low, high))

    @property
    def is_expired(self) -> bool:
        """Tell whether the range starts below ``low``, where retention deletes messages."""
        _, start, _, low, _ = self.args
        return bool(start < low)

    def message(self) -> str:
        """Name the queue, the requested and the held range, and the option that accepts losses."""
        queue, start, end, low, high = self.args
        why = (
            "Messages may have expired, or the store was replaced"
            if self.is_expired
            else f"The queue ends at {high}: they are not stored yet, or the store was replaced"
        )
        return (
            f"{shown(queue)}: queue offsets [{start}, {end}) were requested, the store holds "
            f"[{low}, {high}). {why}. Set failOnDataLoss=false to read the messages that it holds"
        )


def _data_loss(queue: str, start: int, end: int, low: int, high: int) -> DataLossError:
    return DataLossError(queue, start=start, end=end, low=low, high=high)


class StoreReplacedError(DataLossError):
    """A stream's checkpoint is of another store, or of this one before it lost messages.

    ``what`` says which part of the checkpoint contradicts the store.
    """

    condition = "MQLOG_DATA_LOSS.STORE_REPLACED"

    def __init__(self, what: str) -> None:
        super(DataLossError, self).__init__(what)

    def __reduce__(self) -> tuple[object, ...]:
        return (StoreReplacedError, self.args)

    def message(self) -> str:
        """Name the contradiction, its possible causes, and what to do."""
        return (
            f"{self.args[0]}. The path leads to another store, or this one was rebuilt or lost "
            "messages in a crash. Give the path of the store that the query read before, or start "
            "it with a new checkpointLocation"
        )


class UnknownTopicError(StoreError):
    """The store does not have a topic or queue that was named."""

    condition = "MQLOG_UNKNOWN_TOPIC"


class UnknownGroupError(StoreError):
    """No store knows a consumer group of that name."""

    condition = "MQLOG_UNKNOWN_GROUP"


class InvalidOptionError(StoreError):
    """An option's name or value is not accepted; ``expected`` says what is."""

    condition = "MQLOG_INVALID_OPTION"

    def __init__(self, option: str, value: object, expected: str) -> None:
        super().__init__(option, str(value), expected)

    def message(self) -> str:
        """Name the option, its value and what is accepted."""
        option, value, expected = self.args
        return f"option {shown(option)}={shown(repr(value))}: {expected}"


class InvalidSchemaError(InvalidOptionError):
    """A column or a type that a read or a write does not have."""

    condition = "MQLOG_INVALID_SCHEMA"

    def message(self) -> str:
        """Name the column, its type and what is accepted."""
        column, value, expected = self.args
        return f"column {shown(column)} ({shown(value)}): {expected}"


class OverwriteUnsupportedError(InvalidOptionError):
    """A save mode other than append."""

    condition = "MQLOG_OVERWRITE_UNSUPPORTED"

    def __init__(self) -> None:
        super().__init__("mode", "overwrite", "")

    def __reduce__(self) -> tuple[object, ...]:
        return (OverwriteUnsupportedError, ())

    def message(self) -> str:
        """Return the line to write instead."""
        return (
            "a message store only grows: write "
            'df.write.format("mqlog").mode("append").save(path) instead'
        )


class InvalidMessageError(StoreError):
    """A row that RocketMQ's own producer or broker would refuse."""

    condition = "MQLOG_INVALID_MESSAGE"


class MessageTooLargeError(InvalidMessageError):
    """A row whose body or encoded record is larger than the store or the option allows."""

    condition = "MQLOG_MESSAGE_TOO_LARGE"


class StoreLockedError(StoreError):
    """A broker or another writer holds the store's lock."""

    condition = "MQLOG_STORE_LOCKED"


class HoldLostError(StoreLockedError):
    """Another process opened the held store; the commit stopped before its next change."""

    condition = "MQLOG_STORE_LOCKED.LEASE_BROKEN"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)

    def message(self) -> str:
        """Name the store and the reason."""
        path, reason = self.args
        return f"{shown(path)}: the hold on the store was lost: {reason}"


class UncleanStoreError(StoreError):
    """The file ``abort`` exists: a broker has the store open, or crashed."""

    condition = "MQLOG_STORE_UNCLEAN"


class StagingNotSharedError(StoreError):
    """A task or the commit does not see a file that was left in the staging directory."""

    condition = "MQLOG_STAGING_NOT_SHARED"


class CorruptStagingError(StoreError):
    """A staged file is missing or differs from what its task reported."""

    condition = "MQLOG_CORRUPT_STAGING"


class CommitInDoubtError(StoreError):
    """A commit was decided and is not finished; its messages will be stored exactly once.

    ``state`` is decided (no broker sees its messages) or published (a broker sees all of them).
    ``reason`` is the error that interrupted it.
    """

    condition = "MQLOG_COMMIT_IN_DOUBT"

    def __init__(self, path: str, key: str, state: str, reason: str) -> None:
        super().__init__(path, key, state, reason)

    def message(self) -> str:
        """Name the commit, its state, and what finishes it."""
        path, key, state, reason = self.args
        return (
            f"{shown(path)}: commit {shown(key)} is {state}, but not finished ({shown(reason)}). "
            f"The next write to this store finishes it, or: mqlog recover {shown(path)}. Do not "
            "write its rows again, unless with the same txnAppId and txnVersion"
        )


class NondeterministicWriteError(StoreError):
    """A write that runs again has other rows than an earlier try of it, of which some are there.

    ``write`` names it, ``difference`` is a sentence without its full stop.
    """

    condition = "MQLOG_NONDETERMINISTIC_WRITE"

    def __init__(self, write: str, difference: str) -> None:
        super().__init__(write, difference)

    def message(self) -> str:
        """Name the write, what differs, and what makes rows differ."""
        write, difference = self.args
        return (
            f"{shown(write)}: {shown(difference, REASON_CHARS)}. A write that runs again must have "
            "the same rows: the same input and options, no rand(), uuid() or current_timestamp() "
            "in them, and no checkpoint restored from a backup. What is there stays; write what is "
            "missing under another txnVersion, or with a new checkpoint"
        )


class NoSpaceError(StoreError):
    """The disk or quota has no room for the commit. Nothing was changed."""

    condition = "MQLOG_NO_SPACE"


class SparkTooOldError(StoreError):
    """Spark is of a version before the first one with Python data sources that stream."""

    condition = "MQLOG_SPARK_TOO_OLD"
