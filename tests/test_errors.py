"""The error tree: drawn as it is, each condition its own, all of it crosses processes."""

import pickle
import re
import tracemalloc
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_args

import pytest

from mqstore import errors
from mqstore.audit import errors as table_errors
from mqstore.bodies import errors as body_errors
from mqstore.copy import errors as copy_errors
from mqstore.deliver.once import errors as once_errors
from mqstore.errors import StoreError, StoreFlavour, TopicFlavour
from mqstore.files.txn import errors as staging_errors
from mqstore.live.remoting import errors as live_errors
from mqstore.live.send import errors as send_errors
from mqstore.merge import errors as merge_errors
from mqstore.read import errors as read_errors
from mqstore.write import errors as write_errors
from pyspark_mqlog import errors as spark_errors
from style.documents import ROOT, documents

SOURCES = [p for top in ("store", "connector", "jobs") for p in (ROOT / top).rglob("*.py")]
MODULES = [
    errors,
    copy_errors,
    table_errors,
    body_errors,
    merge_errors,
    staging_errors,
    write_errors,
    live_errors,
    send_errors,
    once_errors,
    read_errors,
    spark_errors,
]


def tree(kind: type[StoreError], module: ModuleType) -> Iterator[type[StoreError]]:
    """The errors of a module, in the order in which they are drawn, with those above them."""
    for below in kind.__subclasses__():
        lower = list(tree(below, module))
        if below.__module__ == module.__name__ or lower:
            yield below
        yield from lower


ALL = {kind for module in MODULES for kind in tree(StoreError, module)}

EXAMPLES = [
    errors.StoreNotFoundError("/s"),
    errors.NotAStoreError("/s", "no folder commitlog"),
    errors.NotARepositoryError("/r", "no repository of points"),
    errors.PointNotFoundError("/r", "7", "it has points from 1 to 3, 3 in all"),
    copy_errors.OtherStoreError("/s", "/r", 3, "/t", "broker-a", "its CommitLog differs"),
    copy_errors.ClockJumpError("2030-01-01T00:00:00Z", 3, "2026-11-22T09:00:00Z"),
    errors.UnsupportedStoreError("/s", "DLEDGER", "a DLedger log"),
    errors.StoreUnavailableError("s3://b/s", "no such bucket"),
    errors.UnsafePathError("/s/x", "a symbolic link"),
    errors.CorruptStoreError("/s/commitlog/0", 7, "bad magic"),
    body_errors.CorruptBodyError("T", "broker-a", 0, 7, 'CANNOT_PARSE_VALUE at id: "x" is no INT'),
    merge_errors.NoChangeOrderError("shop.orders", "4 queues", "CDC/broker-a/2, offset 7"),
    merge_errors.NewSourceError("CDC/broker-a/2", 7, "1:4:0", "9:120:0", 3600, "2026-11-01"),
    errors.CorruptConfigError("/s/config/topics.json", 0, "not JSON"),
    table_errors.CorruptTableError("/t/part-0.parquet", "cannot be read: no footer"),
    errors.DataLossError("T/0", start=0, end=9, low=5, high=9),
    errors.StoreReplacedError("T/0: offset 9 of 5"),
    read_errors.StoreNotSharedError("/s", "its CommitLog ends at 1024"),
    errors.UnknownTopicError("topic x"),
    errors.UnknownGroupError("group x"),
    errors.InvalidOptionError("subscribe", 3, "a list of topics"),
    errors.InvalidSchemaError("bod", "unknown", "did you mean body?"),
    errors.InvalidQueryError("Parser Error: syntax error at end of input"),
    spark_errors.OverwriteUnsupportedError(),
    errors.InvalidMessageError("row 3"),
    errors.MessageTooLargeError("row 3"),
    errors.StoreLockedError("held"),
    errors.HoldLostError("/s", "a broker started"),
    errors.UncleanStoreError("abort"),
    staging_errors.StagingNotSharedError("staging"),
    staging_errors.CorruptStagingError("segment"),
    write_errors.CommitInDoubtError("/s", "loader 7", "decided", "disk full"),
    errors.NondeterministicWriteError("app version 1", "3 rows were committed as 4"),
    errors.NoSpaceError("full"),
    live_errors.BrokerUnavailableError("127.0.0.1:9876", "connection refused"),
    live_errors.BrokerTimeoutError("127.0.0.1:9876", "no answer in 10 s"),
    live_errors.BrokenAnswerError("127.0.0.1:9876", "a frame of -5 bytes"),
    live_errors.RequestRefusedError("127.0.0.1:9876", "PULL_MESSAGE", 17, "no such topic"),
    live_errors.AccessDeniedError("127.0.0.1:9876", "PULL_MESSAGE", 16, "no permission", "SUB"),
    live_errors.ServerError("127.0.0.1:9876", "odd"),
    errors.UnsupportedTopicError("topic T", "STATIC", "a static topic"),
    live_errors.LocalModeError("h:8080", "a proxy in local mode"),
    live_errors.NotServedError("h:8080", "QUERY_MESSAGE", 3, "not supported"),
    live_errors.NoMasterError("broker-a has no master"),
    spark_errors.SparkTooOldError("this is Spark 3.5.9"),
    spark_errors.VersionMismatchError("0.2.0", "0.1.0"),
    send_errors.SendFailedError("T/broker-a/0", 3, "no answer in 10 s", may_be_stored=True),
    send_errors.NotReplicatedError("T/broker-a/0", 3, 11),
    once_errors.TornMessageError("app version 1", "a/T/0", 7),
    once_errors.LostHistoryError("app version 1", "MQLOG_CONTROL"),
    once_errors.NewerOwnerError("app version 1", "a"),
    once_errors.NotVisibleError("MQLOG_CONTROL/a/0", 7, 30.0),
    once_errors.ControlTooLargeError("app version 1", 5_000_000, 4 << 20),
    once_errors.PublicationError("app version 1", 3, "no answer"),
    once_errors.InterruptedSendError("the connection broke"),
]


def test_every_error_has_an_example_here() -> None:
    assert {type(example) for example in EXAMPLES} == ALL


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_crosses_a_process_with_its_message(error: StoreError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert (str(back), back.args) == (str(error), error.args)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_message_starts_with_its_condition(error: StoreError) -> None:
    assert re.match(r"\[MQLOG_[A-Z_]+(\.[A-Z_]+)?\] \S", str(error))


def test_every_condition_is_its_own() -> None:
    conditions = [kind.__dict__["condition"] for kind in [StoreError, *ALL]]
    assert len(set(conditions)) == len(conditions)


def test_no_other_module_declares_a_condition() -> None:
    declared = {kind.condition for kind in ALL} | {StoreError.condition}
    texts = (path.read_text(encoding="utf-8") for path in SOURCES)
    found = {c for text in texts for c in re.findall(r'condition\b.* = "(MQLOG_\S+)"', text)}
    assert found - {"MQLOG_NO_ROOM"} == declared  # That is the example in a docstring.


def test_the_page_of_errors_has_every_condition_and_no_other() -> None:
    page = (ROOT / "connector" / "ERRORS.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(MQLOG_[A-Z_.]+)` \| \S", page, re.MULTILINE)
    flavours = {"MQLOG_UNSUPPORTED_STORE": StoreFlavour, "MQLOG_UNSUPPORTED_TOPIC": TopicFlavour}
    conditions = {StoreError.condition, *(kind.condition for kind in ALL)} - {*flavours}
    conditions |= {f"{name}.{one}" for name, of in flavours.items() for one in get_args(of)}
    assert sorted(named) == sorted(conditions)


def test_documents_name_only_conditions_that_there_are() -> None:
    known = {StoreError.condition, *(kind.condition for kind in ALL)}
    for path in documents():
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"\[(MQLOG_[A-Z]\w*)", text):
            assert name in known, f"{path}: {name}"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_tree_in_the_docstring_is_the_tree(module: ModuleType) -> None:
    drawn = re.findall(r"^[│├└─ ]*(\w+Error)\b", module.__doc__ or "", re.MULTILINE)
    assert drawn == ["StoreError", *(kind.__name__ for kind in tree(StoreError, module))]


def test_a_declared_field_is_read_set_and_appended_to_by_a_subclass() -> None:
    denied = live_errors.AccessDeniedError("a:1", "PULL", remark="no", code=16, rights="SUB")
    assert (denied.address, denied.code, denied.rights) == ("a:1", 16, "SUB")
    denied.code = 17
    assert denied.args == ("a:1", "PULL", 17, "no", "SUB")
    assert str(denied).startswith("[MQLOG_ACCESS_DENIED] a:1 refused PULL with code 17: no. Check")


@pytest.mark.parametrize(
    ("given", "named"), [((), {}), (("/s", "why", 1), {}), (("/s",), {"x": 1})]
)
def test_an_error_takes_its_declared_fields_only(given: Any, named: Any) -> None:
    with pytest.raises(TypeError):
        errors.NotAStoreError(*given, **named)


def test_an_error_about_a_value_that_does_not_pickle_crosses_a_process() -> None:
    error = errors.InvalidOptionError("x", lambda: 0, "a text")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


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
