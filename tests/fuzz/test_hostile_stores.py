"""Stores that somebody made to harm: each ends in the error that names it, and nothing outside.

The table of threats and the tests of each row are in README.md. Readers are shown every store in
all ways that mutants are (looks.py); writers append to it, recover it, and abort.
"""

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fuzz.decided import JOB, made_up, with_sum
from fuzz.looks import LOOKS
from mqstore.errors import (
    CorruptConfigError,
    CorruptStoreError,
    StoreError,
    UnsafePathError,
    UnsupportedStoreError,
)
from mqstore.files.queue import consume_queue
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.recover import RecoverSettings, recover
from support import goldens, oracle, writing
from support.oracle import Message
from support.stores import Laid, Layout, lay_out

SECRET = b"secret of another directory"
OLD = 1_000_000_000  # a time long ago: what is that old, nobody is at work on


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory beside the store that must stay as it is."""
    folder = tmp_path / "outside"
    (folder / JOB).mkdir(parents=True)
    for name in ("secret", "00000000000000000000", "topics.json", f"{JOB}/secret"):
        (folder / name).write_bytes(SECRET)
    before = goldens.digest(folder)
    yield folder
    assert goldens.digest(folder) == before, "something outside the store was changed"


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    """A small store with a bit of everything."""
    messages = [Message(body=b"%d" % n, properties=b"KEYS\x01k%d\x02" % n) for n in range(30)]
    laid = lay_out(tmp_path / "store", messages, Layout(queue_units=8))
    writing.append(laid.root, writing.rows(2), txn_app_id="a", txn_version=1, fsync="none")
    for folder in (".mqlog/staging", ".mqlog/tmp", ".mqlog/txn"):
        (laid.root / folder).mkdir(exist_ok=True)
    return laid


def write(root: Path) -> None:
    writing.append(root, writing.rows(3), txn_app_id="a", txn_version=2, fsync="none")


def put_in_order(root: Path) -> None:
    recover(root, RecoverSettings())


WRITERS: dict[str, Callable[[Path], None]] = {"append": write, "recover": put_in_order}


def error_of(act: Callable[[Path], object], root: Path) -> StoreError | None:
    try:
        act(root)
    except StoreError as error:
        found = error
    else:
        return None
    assert str(found).startswith("[MQLOG_")
    assert SECRET.decode() not in str(found)
    return found


# --- links, and what is no file ---------------------------------------------------------------

FOLDERS = ("commitlog", "consumequeue", "consumequeue/T", "consumequeue/T/0", "index", "config")
OUR_FOLDERS = (".mqlog", ".mqlog/txn", ".mqlog/tmp", ".mqlog/staging")
FILES = (
    "commitlog/00000000000000000000",
    "commitlog/00000000000000004096",
    "consumequeue/T/0/00000000000000000000",
    "consumequeue/T/0/00000000000000000480",
    "config/topics.json",
    "checkpoint",
    "lock",
    ".mqlog/txn/SEQ",
    ".mqlog/store.json",
    "abort",
    ".mqlog/lock",
    ".mqlog/txn/pending.json",
)


def link(laid: Laid, place: str, target: Path, *, keep: bool) -> None:
    """Put a link where a part of the store was; with `keep` that part is what it leads to."""
    path = laid.root / place
    if keep:
        target = laid.root.parent / f"moved-{len(place)}"
        path.rename(target)
    elif path.is_dir():
        path.rename(laid.root.parent / "away")
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("place", FOLDERS + OUR_FOLDERS)
def test_no_writer_follows_a_link_to_a_folder(
    laid: Laid, outside: Path, place: str, writer: str
) -> None:
    link(laid, place, outside, keep=False)
    before = goldens.digest(laid.root / "commitlog")
    error = error_of(WRITERS[writer], laid.root)
    assert isinstance(error, UnsafePathError) or writer == "recover"
    if place != "commitlog" and error is not None:
        assert goldens.digest(laid.root / "commitlog") == before


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("place", FILES)
def test_no_writer_follows_a_link_to_a_file(
    laid: Laid, outside: Path, place: str, writer: str
) -> None:
    link(laid, place, outside / "secret", keep=False)
    error = error_of(WRITERS[writer], laid.root)
    assert isinstance(error, StoreError) or writer == "recover"


@pytest.mark.parametrize("kind", ["hard link", "fifo", "directory"])
@pytest.mark.parametrize("place", FILES)
def test_no_writer_writes_to_what_is_no_plain_file_of_the_store(
    laid: Laid, outside: Path, place: str, kind: str
) -> None:
    path = laid.root / place
    data = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    if kind == "hard link":
        other = laid.root.parent / "other"
        other.write_bytes(data)
        path.hardlink_to(other)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    error_of(write, laid.root)
    if kind == "hard link":
        assert other.read_bytes() == data, "the other name of the file has changed"


@pytest.mark.parametrize("place", [".mqlog/tmp", ".mqlog/staging"])
@pytest.mark.parametrize("writer", WRITERS)
def test_cleaning_up_stays_in_the_store(laid: Laid, outside: Path, place: str, writer: str) -> None:
    left = laid.root / place / JOB
    left.symlink_to(outside)
    os.utime(left, (OLD, OLD), follow_symlinks=False)
    for path in (outside / JOB, *outside.iterdir()):
        os.utime(path, (OLD, OLD))
    os.utime(outside, (OLD, OLD))
    error_of(WRITERS[writer], laid.root)


# --- what a store says -------------------------------------------------------------------------


def text(name: str, document: str) -> Callable[[Laid], None]:
    """A file of config/, and its .bak, of that content."""

    def harm(laid: Laid) -> None:
        for suffix in ("", ".bak"):
            path = laid.root / "config" / f"{name}{suffix}"
            path.write_bytes(document.encode("utf-8", "surrogatepass"))

    return harm


def ours(name: str, document: str) -> Callable[[Laid], None]:
    """A file of .mqlog of that content."""

    def harm(laid: Laid) -> None:
        path = laid.root / ".mqlog" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document)

    return harm


def summed(name: str, body: object) -> Callable[[Laid], None]:
    """A file of .mqlog whose checksum is right."""
    return ours(name, with_sum(body))


def pending(**changed: object) -> Callable[[Laid], None]:
    return summed("txn/pending.json", made_up(**changed))


def entry(**changed: object) -> dict[str, object]:
    """A line of the ledger."""
    return {
        "appId": None, "version": None, "queryId": None, "batchId": None, "jobId": JOB, "rows": 1,
        "bytes": 1, "firstPhysicalOffset": 0, "lastPhysicalOffset": 0, "committedAt": 0,
        "state": "done", **changed,
    }  # fmt: skip


def unit(index: int, place: int, size: int) -> Callable[[Laid], None]:
    def harm(laid: Laid) -> None:
        path, position = laid.unit_of(("T", 0), index)
        overwrite(path, position, struct.pack(">qi", place, size))

    return harm


def number(index: int, position: int, code: str, value: int) -> Callable[[Laid], None]:
    """A number in the header of a record."""

    def harm(laid: Laid) -> None:
        path, start = laid.file_of(laid.messages[index])
        overwrite(path, start + position, struct.pack(code, value))

    return harm


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def named(place: str, *names: str) -> Callable[[Laid], None]:
    """Directories of those names."""

    def harm(laid: Laid) -> None:
        for name in names:
            (laid.root / place / name).mkdir(parents=True)

    return harm


def larger(place: str) -> Callable[[Laid], None]:
    return lambda laid: os.truncate(laid.root / place, 1 << 40)


def both_large(laid: Laid) -> None:
    for suffix in ("", ".bak"):
        os.truncate(laid.root / "config" / f"topics.json{suffix}", 65 << 20)


def in_rocksdb(laid: Laid) -> None:
    shutil.rmtree(laid.root / "consumequeue" / "T")
    named("consumequeue", "CURRENT")(laid)


def overlapping(laid: Laid) -> None:
    (laid.root / "commitlog" / "00000000000000000100").write_bytes(bytes(4096))


FIRST_LOG = "commitlog/00000000000000000000"
FIRST_UNITS = "consumequeue/T/0/00000000000000000000"
GROUP = "groups/" + "a" * 32 + ".json"
CONFIG_ERROR, STORE_ERROR, UNSUPPORTED = (
    CorruptConfigError,
    CorruptStoreError,
    UnsupportedStoreError,
)
Harm = Callable[[Laid], None]

# What is done to the store, how it is looked at, and the error that comes of it.
STORES: dict[str, tuple[Harm, str, type[StoreError] | None]] = {
    "JSON of brackets": (text("topics.json", "[" * 100_000), "topics fail", CONFIG_ERROR),
    "JSON of objects": (text("topics.json", '{"a":' * 99), "topics fail", CONFIG_ERROR),
    "JSON of many values": (
        text("topics.json", '{"a":[' + "0," * 1_100_000 + "0]}"), "topics fail", CONFIG_ERROR),
    "JSON of many topics": (
        text("topics.json", '{"topicConfigTable":{' + '"a":{},' * 300_000 + '"b":{}}}'),
        "topics fail", CONFIG_ERROR),
    "JSON of 5,000 digits": (
        text("consumerOffset.json", '{"offsetTable":{"T@g":{0:' + "9" * 5000 + "}}}"),
        "offsets fail", CONFIG_ERROR),
    "JSON that is a list": (text("topics.json", "[]"), "topics fail", CONFIG_ERROR),
    "JSON that ends": (text("topics.json", '{"a"'), "topics fail", CONFIG_ERROR),
    "JSON of 65 MiB": (lambda laid: os.truncate(laid.root / "config/topics.json", 65 << 20),
                       "topics fail", None),
    "JSON of 65 MiB twice": (
        both_large, "topics fail", CONFIG_ERROR),
    "topics that are paths": (
        text("topics.json", '{"topicConfigTable":{"../../x":{},"/etc":{}}}'), "topics fail", None),
    "groups that are paths": (
        text("consumerOffset.json", '{"offsetTable":{"../x@../g":{0:1}}}'), "backlog", None),
    "no Unicode": (text("topics.json", '{"topicConfigTable":{"\\ud800":{}}}'), "topics fail", None),
    "a group of no table": (ours(GROUP, "{}"), "offsets fail", CONFIG_ERROR),
    "a group of brackets": (
        ours(GROUP, "[" * 100_000), "offsets fail", CONFIG_ERROR),
    "a group of large numbers": (
        ours(GROUP, '{"group":"g","offsetTable":{"T":{"0":1e400}}}'),
        "offsets fail", CONFIG_ERROR),
    "sizes below zero": (ours("store.json", '{"commit_log":-5}'), "config", None),
    "sizes of brackets": (ours("store.json", "[" * 100_000), "config", None),
    "a ledger of brackets": (ours("txn/jobs.json", "[" * 100_000), "ours", CONFIG_ERROR),
    "a ledger without a sum": (ours("txn/jobs.json", '{"body":{}}'), "ours", CONFIG_ERROR),
    "a ledger of nothing": (summed("txn/jobs.json", {}), "ours", CONFIG_ERROR),
    "a ledger of numbers": (summed("txn/jobs.json", {"commits": [1]}), "ours", CONFIG_ERROR),
    "a ledger of no Unicode": (
        summed("txn/jobs.json", {"appId": None, "commits": [entry(appId="\ud800")]}),
        "commits fail", CONFIG_ERROR),
    "a ledger of colours": (
        summed("txn/jobs.json", {"appId": None, "commits": [entry(appId="\x1b[31m\n")]}),
        "commits fail", None),
    "a ledger beyond all time": (
        summed("txn/jobs.json", {"appId": None, "commits": [entry(committedAt=2**63 - 1)]}),
        "commits fail", None),
    "a group of no Unicode": (
        ours(GROUP, '{"group":"\\ud800","offsetTable":{"T":{"0":1}}}'), "offsets fail", None),
    "an intent of huge counts": (
        pending(segments=[{"name": f"{n}-1-a.mqb", "partition": n, "size": 1, "frame_count": 1,
                           "message_count": 2**62, "records_bytes": 1, "digest": "0" * 64}
                          for n in range(3)]), "commits fail", None),
    "an intent of colours": (
        pending(key={"app_id": "\x1b[31m", "version": 1, "query_id": None, "batch_id": None}),
        "condition", None),
    "an intent of no Unicode": (
        pending(key={"app_id": "\ud800", "version": 1, "query_id": None, "batch_id": None}),
        "commits fail", CONFIG_ERROR),
    "a sequence that is none": (ours("txn/SEQ", "x" * 100), "scan fail", CONFIG_ERROR),
    "a sequence too long": (ours("txn/SEQ", "9" * 100_000), "scan fail", None),
    "an intent of brackets": (ours("txn/pending.json", "[" * 9_999), "scan fail", CONFIG_ERROR),
    "an intent without a sum": (ours("txn/pending.json", '{"body":{}}'), "scan fail", CONFIG_ERROR),
    "an intent of nothing": (summed("txn/pending.json", {}), "scan fail", CONFIG_ERROR),
    "an intent below zero": (pending(tail=-1), "scan fail", CONFIG_ERROR),
    "an intent far away": (pending(end=2**62), "scan fail", CONFIG_ERROR),
    "an intent of floats": (pending(tail=3000.5), "scan fail", CONFIG_ERROR),
    "an intent of no state": (pending(state="x"), "scan fail", CONFIG_ERROR),
    "an intent of a path": (pending(queues=[["../x", 0, 0, 1]]), "scan fail", CONFIG_ERROR),
    "an intent of no queue": (pending(queues=[["T", -1, 0, 1]]), "scan fail", CONFIG_ERROR),
    "an intent of no job": (pending(job_id="../../outside"), "scan fail", CONFIG_ERROR),
    "an intent staged elsewhere": (pending(staging="/etc"), "scan fail", CONFIG_ERROR),
    "a unit outside": (unit(3, 2**62, 200), "scan fail", STORE_ERROR),
    "a unit at the end of the world": (unit(3, 2**63 - 50, 200), "scan fail", STORE_ERROR),
    "a unit of a huge record": (unit(3, 0, 2**31 - 2), "scan fail", STORE_ERROR),
    "a unit of 8 bytes": (unit(3, 0, 8), "scan fail", STORE_ERROR),
    "a unit of another record": (unit(3, 0, 102), "scan fail", STORE_ERROR),
    "a unit below zero": (unit(3, 0, -200), "scan fail", STORE_ERROR),
    "a record of no size": (number(3, 0, ">i", 0), "scan fail", STORE_ERROR),
    "a record below zero": (number(3, 0, ">i", -1), "scan fail", STORE_ERROR),
    "a huge record": (number(3, 0, ">i", 2**31 - 1), "scan fail", STORE_ERROR),
    "a record of 90 bytes": (number(3, 0, ">i", 90), "scan fail", STORE_ERROR),
    "a record of no magic": (number(3, 4, ">i", 0), "scan fail", STORE_ERROR),
    "a blank in the middle": (number(3, 4, ">i", oracle.BLANK), "scan fail", STORE_ERROR),
    "a record elsewhere": (number(3, 28, ">q", 2**62), "scan fail", STORE_ERROR),
    "a record of another queue": (number(3, 12, ">i", 77), "scan fail", STORE_ERROR),
    "a huge body": (number(3, 84, ">i", 2**31 - 1), "scan fail", STORE_ERROR),
    "a body below zero": (number(3, 84, ">i", -1), "scan fail", STORE_ERROR),
    "a body that bursts": (number(3, 36, ">i", oracle.COMPRESSED | oracle.ZSTD),
                           "scan fail", STORE_ERROR),
    "a file too large": (larger(FIRST_LOG), "scan fail", STORE_ERROR),
    "units too large": (larger(FIRST_UNITS), "scan fail", STORE_ERROR),
    "files that overlap": (overlapping, "scan fail", STORE_ERROR),
    "queues of any name": (
        named("consumequeue/T", "-1", "65536", "x", "0x1", "\u0663", "\n"), "queues fail", None),
    "topics of any name": (
        named("consumequeue", "a b/0", "..x/0", "\x1b[31m/0", "%/0", "\n/0"), "queues fail", None),
    "a Raft log": (named(".", "dledger-a"), "scan fail", UNSUPPORTED),
    "queues in RocksDB": (in_rocksdb, "scan fail", STORE_ERROR),
    "queues of both kinds": (named("batchconsumequeue", "T/0"), "scan fail", UNSUPPORTED),
    "compacted topics": (
        named("compaction/compactionLog", "T", "\n", "\x1b[31m", "..x"), "scan fail", None),
    "a checkpoint too short": (
        lambda laid: os.truncate(laid.root / "checkpoint", 3), "check", None),
}  # fmt: skip


@pytest.mark.parametrize("what", STORES)
def test_a_hostile_store_is_read_as_far_as_it_can_be_and_named_where_not(
    laid: Laid, outside: Path, what: str
) -> None:
    harm, look, expected = STORES[what]
    harm(laid)
    before = goldens.digest(laid.root) if "large" not in what and "MiB" not in what else None
    error = error_of(LOOKS[look], laid.root)
    assert type(error) is (type(None) if expected is None else expected)
    # Every fourth of the other ways to look, each store another fourth: mutants get them all.
    for each in list(LOOKS.values())[list(STORES).index(what) % 4 :: 4]:
        error_of(each, laid.root)
    assert before is None or goldens.digest(laid.root) == before, "reading changed the store"


@pytest.mark.parametrize("what", [name for name in STORES if "intent" in name or "ledger" in name])
@pytest.mark.parametrize("writer", WRITERS)
def test_no_writer_acts_on_what_somebody_made_up(
    laid: Laid, outside: Path, what: str, writer: str
) -> None:
    STORES[what][0](laid)
    before = goldens.digest(laid.root / "commitlog")
    error = error_of(WRITERS[writer], laid.root)
    assert isinstance(error, CorruptConfigError | CommitInDoubtError) or "ledger" in what
    assert error is None or goldens.digest(laid.root / "commitlog") == before


@pytest.mark.parametrize("staging", ["", "outside"])
@pytest.mark.parametrize("writer", WRITERS)
def test_an_intent_whose_files_are_not_there_is_in_doubt_and_nothing_is_touched(
    laid: Laid, outside: Path, staging: str, writer: str
) -> None:
    last = writing.held(laid.root)[-1]
    tail = last.physical_offset + last.size
    folder = f"{outside}/{JOB}" if staging else ""
    pending(tail=tail, first=tail, last=tail, end=tail + 200, staging=folder)(laid)
    before = goldens.digest(laid.root / "commitlog")
    error = error_of(WRITERS[writer], laid.root)
    assert isinstance(error, CommitInDoubtError)
    assert goldens.digest(laid.root / "commitlog") == before


@pytest.mark.parametrize(("limit", "said"), [("MOST_TOPICS", "topics"), ("MOST_QUEUES", "queues")])
def test_a_store_of_too_many_queues_is_refused_by_name(
    laid: Laid, monkeypatch: pytest.MonkeyPatch, limit: str, said: str
) -> None:
    named("consumequeue", "U/0", "U/1", "V/0")(laid)
    take(laid.root, strict=False)
    monkeypatch.setattr(consume_queue, limit, 2)
    with pytest.raises(UnsupportedStoreError, match=f"more than 2 {said}"):
        take(laid.root, strict=False)


def test_a_store_of_many_files_keeps_few_open(tmp_path: Path) -> None:
    messages = [Message(body=bytes(800), queue_id=n % 7) for n in range(400)]
    laid = lay_out(tmp_path / "store", messages, Layout(commit_log_bytes=1024, queue_units=20))
    before, most = descriptors(), 0
    for mode in ("pread", "mmap"):
        settings = ScanSettings(columns=("body",), read_mode=mode, batch_rows=5)
        for _ in scan(slices_of(take(laid.root)), settings):
            most = max(most, descriptors())
    assert 0 < most - before < 140


def descriptors() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208
