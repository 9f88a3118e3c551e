"""Stores of DLedger groups: records in entries, read up to the committed one."""

import pickle
import shutil
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.backlog.measure import measure
from mqstore.backlog.plan import plan
from mqstore.backlog.request import BacklogRequest
from mqstore.check.finding import ERROR
from mqstore.check.store import check
from mqstore.codec.schema import PROFILES
from mqstore.copy.copy_store import copy_store
from mqstore.errors import CorruptStoreError, StoreError, UnsafePathError, UnsupportedStoreError
from mqstore.files.store import Store
from mqstore.read.admission import Admission
from mqstore.read.directory import take
from mqstore.read.follow import Follower
from mqstore.read.progress import Progress
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.tables import files
from mqstore.tables.choice import open_root
from mqstore.write.recover import RecoverSettings, recover
from support import by_log, expectations, goldens, oracle, strategies
from support.opened import narrowed, tail_of
from support.oracle import Message
from support.stores import ENTRY_HEAD, ENTRY_UNIT, Laid, Layout, lay_out
from support.writing import append
from support.writing import rows as new_rows

Rows = list[dict[str, Any]]

MOVING = ("RMQ_SYS_TRANS_", "%RETRY%")
"""Topics that the broker itself appended to between the client's dump and its stop."""


@pytest.fixture(scope="module")
def leader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of the group's last leader, stopped cleanly."""
    return goldens.unpack(goldens.DLEDGER, tmp_path_factory.mktemp("leader"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of its first leader, killed with -9."""
    return goldens.unpack(goldens.DLEDGER, tmp_path_factory.mktemp("killed"), "killed")


def read(root: Path, columns: tuple[str, ...] = PROFILES["full"]) -> Rows:
    slices = slices_of(take(root, broker_name="b"))
    settings = ScanSettings(columns=columns)
    return [row for batch in scan(slices, settings) for row in expectations.rows(batch)]


def queues_of(rows: Rows) -> dict[tuple[str, int], Rows]:
    found = defaultdict(list)
    for row in rows:
        found[row["topic"], row["queueId"]].append(row)
    return dict(found)


def settled(rows: Rows) -> Rows:
    return [row for row in rows if not row["topic"].startswith(MOVING)]


def laid_out(tmp_path: Path, count: int = 20, **layout: Any) -> Laid:
    sent = [Message(queue_id=n % 2, body=f"{n}".encode()) for n in range(count)]
    return lay_out(tmp_path / "store", sent, Layout(dledger="n0", **layout))


def expected_of(laid: Laid) -> Rows:
    return [expectations.row(m, "b") for _, held in sorted(laid.queues.items()) for m in held]


def test_the_leaders_store_reads_as_the_client_pulled_it(leader: Path) -> None:
    told = [goldens.as_told(row, "4.9.7") for row in read(leader)]
    assert all(row["properties"] is not None for row in told)
    expected = queues_of(settled(goldens.expected(goldens.DLEDGER)))
    assert queues_of(settled(told)) == expected
    assert len(expected) > 15


def test_a_killed_leaders_store_reads_as_a_prefix_of_the_next_leaders(
    leader: Path, killed: Path
) -> None:
    whole, found = queues_of(read(leader)), queues_of(read(killed))
    assert sum(map(len, found.values())) > 250
    for queue, rows in found.items():
        assert whole[queue][: len(rows)] == rows


def test_the_backlog_is_what_consumer_progress_says(leader: Path) -> None:
    theirs = goldens.progress(goldens.DLEDGER)
    request = BacklogRequest(groups=",".join({group for group, _, _ in theirs}))
    batch = measure(plan(take(leader), request), request, as_of_ms=0)
    ours = {(r["group"], r["topic"], r["queueId"]): r for r in batch.to_pylist()}
    for queue, said in theirs.items():
        assert ours[queue]["brokerOffset"] == said.broker_offset
        assert (ours[queue]["consumerOffset"] or 0) == max(0, said.consumer_offset)
        assert ours[queue]["diff"] == said.diff
    assert len(theirs) > 7


@pytest.mark.parametrize("which", ["leader", "killed"])
def test_the_log_alone_gives_the_same_rows(
    request: pytest.FixtureRequest, tmp_path: Path, which: str
) -> None:
    root = request.getfixturevalue(which)
    assert by_log.rows(by_log.snapshot(root, tmp_path / "cache")) == read(root)


@pytest.mark.parametrize("which", ["leader", "killed"])
def test_a_groups_stores_break_no_rule(request: pytest.FixtureRequest, which: str) -> None:
    root = request.getfixturevalue(which)
    assert [f for f in check(root) if f.severity == ERROR] == []


def test_keys_ids_and_tags_find_the_same_messages_as_a_look_at_all(killed: Path) -> None:
    rows, pieces = read(killed), slices_of(take(killed, broker_name="b"))
    keyed = next(row for row in rows if row["topic"] == "DOrder" and row["keys"])
    some = next(row for row in rows if row["topic"] == "DBatch")
    key, ids = keyed["keys"].split(" ")[0], (some["msgId"], some["offsetMsgId"])
    every: list[tuple[dict[str, Any], Callable[[dict[str, Any]], object]]] = [
        ({"keys": (key,)}, lambda row: key in (row["keys"] or "").split(" ")),
        ({"msg_ids": ids}, lambda row: {row["msgId"], row["offsetMsgId"]} & {*ids}),
        ({"tags": "DA"}, lambda row: row["tags"] == "DA"),
    ]
    for how, is_found in every:
        settings = ScanSettings(columns=PROFILES["full"], **how)
        chosen = narrowed(pieces, settings.keys, settings.msg_ids) if "tags" not in how else pieces
        found = [row for batch in scan(chosen, settings) for row in expectations.rows(batch)]
        assert found
        assert queues_of(found) == queues_of([row for row in rows if is_found(row)])


def test_a_stream_follows_what_is_committed(leader: Path) -> None:
    follower = Follower([tail_of(leader, broker_name="b")], Admission(max_offsets=50))
    progress, found = Progress({}), []
    settings = ScanSettings(columns=PROFILES["full"])
    with closing(follower):
        while (end := follower.next(progress)) != progress:
            for batch in scan(follower.slices(progress, end), settings):
                found += expectations.rows(batch)
            progress = end
    assert queues_of(found) == queues_of(read(leader))


@given(
    sent=st.lists(strategies.messages(), max_size=12),
    layout=st.builds(Layout, dledger=st.just("n7"), expired_files=st.just(0)),
)
def test_any_messages_in_entries_are_read_checked_and_found_in_the_log(
    tmp_path_factory: pytest.TempPathFactory, sent: list[Message], layout: Layout
) -> None:
    root = tmp_path_factory.mktemp("entries")
    laid = lay_out(root / "store", sent, layout)
    assert read(laid.root) == expected_of(laid)
    assert by_log.rows(by_log.snapshot(laid.root, root / "cache")) == expected_of(laid)
    assert [f for f in check(laid.root) if f.severity == ERROR] == []


def test_entries_behind_the_committed_one_are_not_read_from_the_log(tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    shutil.rmtree(laid.root / "consumequeue")
    (laid.root / "dledger-n0" / "checkpoint").write_text("endIndex=19\ncommittedIndex=6\n")
    found = by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache"))
    assert sorted(int(row["body"]) for row in found) == list(range(7))


@pytest.mark.parametrize(
    "text", ["", "committedIndex=x", "committedIndex=" + "9" * 30, "committedIndex=20", "\xff"]
)
def test_without_a_checkpoint_what_queues_name_is_committed(tmp_path: Path, text: str) -> None:
    laid = laid_out(tmp_path)
    (laid.root / "dledger-n0" / "checkpoint").write_text(text, encoding="latin-1")
    shutil.rmtree(laid.root / "consumequeue" / "T" / "1")
    for path in (laid.root / "consumequeue" / "T" / "0").iterdir():
        data = path.read_bytes()  # The first five messages of queue 0: eight entries.
        path.write_bytes(data[:100].ljust(len(data), b"\0"))
    found = by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache"))
    assert sorted(int(row["body"]) for row in found) == list(range(9))


def test_a_log_of_which_nothing_says_what_is_committed_is_an_error(tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    shutil.rmtree(laid.root / "consumequeue")
    (laid.root / "dledger-n0" / "checkpoint").unlink()
    with pytest.raises(CorruptStoreError, match=r"which entries .* are committed"):
        by_log.snapshot(laid.root, tmp_path / "cache")
    problems = [f.problem for f in check(laid.root) if f.severity == ERROR]
    assert any("which entries" in problem for problem in problems)


def test_the_checkpoint_before_counts_while_a_new_one_is_written(tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    shutil.rmtree(laid.root / "consumequeue")
    checkpoint = laid.root / "dledger-n0" / "checkpoint"
    checkpoint.rename(checkpoint.with_name("checkpoint.bak"))
    assert len(by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache"))) == 20


HEAD = {"magic": 0, "size": 4, "index": 8, "term": 16, "position": 24, "body_length": 44}


@pytest.mark.parametrize("name", HEAD)
def test_a_damaged_head_is_found_where_it_is_and_the_log_goes_on(tmp_path: Path, name: str) -> None:
    laid = laid_out(tmp_path)
    path, position = laid.file_of(laid.messages[5])
    flip(path, position - ENTRY_HEAD.size + HEAD[name])
    # Too high a term, or index, shows at the next entry.
    damaged = {position, position - ENTRY_HEAD.size, laid.file_of(laid.messages[6])[1]}
    found = [f for f in check(laid.root) if f.severity == ERROR and f.position in damaged]
    assert {f.file for f in found} == {f"dledger-n0/data/{path.name}"}
    rows = by_log.snapshot(laid.root, tmp_path / "cache", strict=False)
    bodies = {int(row["body"]) for row in by_log.rows(rows, on_corrupt="skip")}
    assert bodies >= {*range(20)} - {5, 6}
    with pytest.raises(CorruptStoreError):
        by_log.snapshot(laid.root, tmp_path / "cache")
    assert read(laid.root) == expected_of(laid)  # Units need no heads.


def test_a_damaged_head_at_the_start_of_a_file_costs_one_message(tmp_path: Path) -> None:
    laid = laid_out(tmp_path, 60)
    first = next(m for m in laid.messages if m.physical_offset == 4096 + ENTRY_HEAD.size)
    flip(laid.file_of(first)[0], 0)
    found = by_log.snapshot(laid.root, tmp_path / "cache", strict=False)
    bodies = [int(row["body"]) for row in by_log.rows(found, on_corrupt="skip")]
    assert sorted(bodies) == [n for n in range(60) if laid.messages[n] != first]


@pytest.mark.parametrize("byte", range(0, ENTRY_UNIT.size, 3))
def test_an_index_unit_that_differs_from_its_entry_is_a_finding(tmp_path: Path, byte: int) -> None:
    laid = laid_out(tmp_path)
    path = laid.root / "dledger-n0" / "index" / f"{0:020d}"
    flip(path, 7 * ENTRY_UNIT.size + byte)
    (found,) = [f for f in check(laid.root) if f.severity == ERROR]
    assert found.file == f"dledger-n0/index/{0:020d}"
    assert (found.position, "entry 7" in found.problem) == (7 * ENTRY_UNIT.size, True)


def test_a_log_that_was_there_before_the_group_is_read_first(tmp_path: Path) -> None:
    """DLedgerCommitLog begins where the CommitLog of the plain broker ends."""
    old = lay_out(tmp_path / "old", [Message(body=b"%d" % n) for n in range(9)])
    end = sorted((old.root / "commitlog").iterdir())[-1]
    divided = int(end.name) + end.stat().st_size
    used = old.high - int(end.name)
    end.write_bytes(end.read_bytes()[:used] + oracle.blank(end.stat().st_size - used))
    sent = [Message(body=b"%d" % n) for n in range(9, 20)]
    layout = Layout(dledger="n0", start=divided, first_queue_offsets={("T", 0): 9})
    laid = lay_out(tmp_path / "store", sent, layout)
    shutil.copytree(old.root / "commitlog", laid.root / "commitlog")
    first = laid.root / "consumequeue" / "T" / "0" / f"{0:020d}"
    units = (old.root / first.relative_to(laid.root)).read_bytes()[: 9 * 20]
    first.write_bytes(units + first.read_bytes()[len(units) :])
    expected = expected_of(old) + expected_of(laid)
    assert read(laid.root) == expected
    assert by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache")) == expected
    with Store.open(laid.root) as store:
        assert (store.log.low, store.log.committed_end) == (0, laid.high)


def test_folders_of_entries_may_lie_elsewhere(tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    (laid.root / "dledger-n0" / "data").rename(tmp_path / "data")
    with pytest.raises(UnsupportedStoreError, match="storePathDLedgerCommitLog"):
        take(laid.root)
    slices = slices_of(take(laid.root, commit_log=[str(tmp_path / "data")], broker_name="b"))
    found = scan(slices, ScanSettings(columns=PROFILES["full"]))
    assert [row for batch in found for row in expectations.rows(batch)] == expected_of(laid)


def test_the_table_of_files_has_the_log_and_how_full_it_is(tmp_path: Path) -> None:
    laid = laid_out(tmp_path, count=60)
    (part, *_) = files.plan(open_root(str(laid.root)))
    rows = [row for batch in part.batches(files.SCHEMA.names) for row in batch.to_pylist()]
    paths = [row["path"] for row in rows]
    assert len(paths) == len({*paths})
    log = {row["startOffset"]: row for row in rows if row["kind"] == "commitlog"}
    last = max(log)
    assert log[last]["path"] == f"dledger-n0/data/{last:020d}"
    assert last + log[last]["wrotePosition"] == laid.high
    assert all(row["wrotePosition"] == row["sizeBytes"] for at, row in log.items() if at != last)
    assert "dledger-n0/checkpoint" in paths


def test_tasks_read_what_the_driver_chose(tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    for snapshot in (take(laid.root), by_log.snapshot(laid.root, tmp_path / "cache")):
        origin = pickle.loads(pickle.dumps(snapshot.origin))
        assert origin == snapshot.origin
        assert origin.dledger == "dledger-n0"


def test_of_logs_of_several_brokers_one_must_be_named(tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    shutil.copytree(laid.root / "dledger-n0", laid.root / "dledger-n1")
    with pytest.raises(UnsupportedStoreError, match="of several brokers"):
        take(laid.root)
    named = take(laid.root, commit_log=[str(laid.root / "dledger-n0" / "data")])
    assert sum(q.high - q.low for q in named.queues) == 20


@pytest.mark.parametrize("part", ["dledger-n0", "dledger-n0/data", "dledger-n0/index"])
def test_a_link_in_place_of_a_folder_is_refused(tmp_path: Path, part: str) -> None:
    laid = laid_out(tmp_path)
    (laid.root / part).rename(tmp_path / "elsewhere")
    (laid.root / part).symlink_to(tmp_path / "elsewhere")
    if part.endswith("index"):  # Only a check reads it, and the committed entry's unit.
        assert any(f.file.startswith(part) for f in check(laid.root) if f.severity == ERROR)
    else:
        with pytest.raises(UnsafePathError):
            take(laid.root)


WRITES: dict[str, Callable[[Path], object]] = {
    "a write": lambda root: append(root, new_rows(1)),
    "a recovery": lambda root: recover(root, RecoverSettings()),
    "a rebuild": lambda root: recover(root, RecoverSettings(rebuild=True)),
    "a copy": lambda root: copy_store(root, root.parent / "copy"),
}


@pytest.mark.parametrize("what", WRITES)
def test_what_would_have_to_know_where_the_log_ends_is_refused(tmp_path: Path, what: str) -> None:
    laid = laid_out(tmp_path)
    before = goldens.digest(laid.root)
    with pytest.raises(UnsupportedStoreError, match=r"MQLOG_UNSUPPORTED_STORE\.DLEDGER\]"):
        WRITES[what](laid.root)
    assert goldens.digest(laid.root) == before


@given(place=st.integers(0, 4095), value=st.integers(0, 255), data=st.booleans())
def test_any_changed_byte_is_survived(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int, data: bool
) -> None:
    root = tmp_path_factory.mktemp("changed")
    laid = laid_out(root)
    path = laid.root / "dledger-n0" / ("data" if data else "index") / f"{0:020d}"
    written = bytearray(path.read_bytes())
    written[place % len(written)] = value
    path.write_bytes(written)
    check(laid.root)
    for strict in (True, False):
        try:
            found = by_log.snapshot(laid.root, root / f"cache-{strict}", strict=strict)
            by_log.rows(found, on_corrupt="fail" if strict else "skip")
        except StoreError:
            assert strict


def flip(path: Path, position: int) -> None:
    """Change the byte there."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)
