"""The error tree: drawn as it is, each condition its own, all of it crosses processes."""

import pickle
import re
import tracemalloc
from collections.abc import Iterator

import pytest

from mqstore import errors
from mqstore.errors import StoreError
from mqstore.live.remoting import errors as live_errors


def tree(kind: type[StoreError]) -> Iterator[type[StoreError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ in {errors.__name__, live_errors.__name__}:
            yield from tree(below)


ALL = list(tree(StoreError))

EXAMPLES = [
    errors.StoreNotFoundError("/s"),
    errors.NotAStoreError("/s", "no folder commitlog"),
    errors.UnsupportedStoreError("/s", "DLEDGER", "a DLedger log"),
    errors.StoreUnavailableError("s3://b/s", "no such bucket"),
    errors.UnsafePathError("/s/x", "a symbolic link"),
    errors.CorruptStoreError("/s/commitlog/0", 7, "bad magic"),
    errors.CorruptConfigError("/s/config/topics.json", 0, "not JSON"),
    errors.DataLossError("T/0", start=0, end=9, low=5, high=9),
    errors.StoreReplacedError("T/0: offset 9 of 5"),
    errors.UnknownTopicError("topic x"),
    errors.UnknownGroupError("group x"),
    errors.InvalidOptionError("subscribe", 3, "a list of topics"),
    errors.InvalidSchemaError("bod", "unknown", "did you mean body?"),
    errors.OverwriteUnsupportedError(),
    errors.InvalidMessageError("row 3"),
    errors.MessageTooLargeError("row 3"),
    errors.StoreLockedError("held"),
    errors.HoldLostError("/s", "a broker started"),
    errors.UncleanStoreError("abort"),
    errors.StagingNotSharedError("staging"),
    errors.CorruptStagingError("segment"),
    errors.CommitInDoubtError("/s", "loader 7", "decided", "disk full"),
    errors.NondeterministicWriteError("app version 1", "3 rows were committed as 4"),
    errors.NoSpaceError("full"),
    live_errors.BrokerUnavailableError("127.0.0.1:9876", "connection refused"),
    live_errors.BrokerTimeoutError("127.0.0.1:9876", "no answer in 10 s"),
    live_errors.BrokenAnswerError("127.0.0.1:9876", "a frame of -5 bytes"),
    live_errors.RequestRefusedError("127.0.0.1:9876", "PULL_MESSAGE", 17, "no such topic"),
    live_errors.AccessDeniedError("127.0.0.1:9876", "PULL_MESSAGE", 16, "no permission", "SUB"),
    live_errors.ServerError("127.0.0.1:9876", "odd"),
    errors.UnsupportedTopicError("topic T", "STATIC", "a static topic"),
    live_errors.NoMasterError("broker-a has no master"),
    errors.SparkTooOldError("this is Spark 3.5.9"),
]


def test_every_error_has_an_example_here() -> None:
    assert {type(example) for example in EXAMPLES} == set(ALL) - {StoreError}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_crosses_a_process_with_its_message(error: StoreError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert (str(back), back.args) == (str(error), error.args)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_message_starts_with_its_condition(error: StoreError) -> None:
    assert re.match(r"\[MQLOG_[A-Z_]+(\.[A-Z_]+)?\] \S", str(error))


def test_every_condition_is_its_own() -> None:
    conditions = [kind.__dict__["condition"] for kind in ALL]
    assert len(set(conditions)) == len(conditions)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"^(?:[│├└─ ]*)(\w+Error)\b", errors.__doc__ or "", re.MULTILINE)
    assert drawn == [kind.__name__ for kind in ALL]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("a\x1b[31mb\n", "a\\x1b[31mb\\n"),
        ("x" * 300, "x" * 199 + "…"),
        (7, "7"),
    ],
)
def test_what_is_shown_is_printable_and_short(value: object, shown: str) -> None:
    assert errors.shown(value) == shown


def test_of_a_large_body_only_what_is_shown_is_made_printable() -> None:
    body = "\0" * (8 << 20)
    tracemalloc.start()
    text = errors.shown(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(text), peak < 100_000) == (200, True)
