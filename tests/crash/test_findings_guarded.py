"""T15, the other half: at no moment does a commit of ours leave what the findings are about.

A commit is recorded (disk.py). Every state that kill -9 or a power cut leaves of it is looked at
for the one thing that each finding asks for; what brokers make of such states is for
test_served_states.py.
"""

import random
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pytest

from crash.disk import Disk, Passing, Recorder, State, standing_in
from crash.mutations import STEPS
from crash.rocketmq_jvm import hand
from crash.rocketmq_jvm.store_jvm import Sizes, StoreJvm
from crash.scenarios import BY_NAME, Work, work
from mqstore.files.base import durable
from mqstore.files.base.new_file import NewFile, opened
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.config import config_write
from mqstore.files.txn import intent
from mqstore.format.names import INTERLOCK
from mqstore.write.commit import abort, commit
from mqstore.write.errors import CommitInDoubtError
from mqstore.write.recover import RecoverSettings, recover
from support.oracle import Message
from support.stores import Layout, lay_out
from support.writing import prepared, staged

SCENARIOS = [
    "next-file",
    "many-files",
    "new-topic",
    "queue-files",
    "index-files",
    "stale-tail",
    "interlock",
]
STORE = "store"
ABORT = f"{STORE}/abort"
PENDING = f"{STORE}/.mqlog/txn/pending.json"
CHECKPOINT = f"{STORE}/checkpoint"
KILLED, CUT = -1, 0
"""All that was written is there; or only what was synced."""


@dataclass(frozen=True)
class Recorded:
    """A commit that went well."""

    work: Work
    disk: Disk
    tail: int
    batch: int

    def shows(self, state: State) -> int:
        """How many records of the batch a broker would serve."""
        return sum(m.physical_offset >= self.tail for m in visible(state))

    @cached_property
    def states(self) -> list[tuple[str, State]]:
        """A name and the state for kill -9 and for power cuts after each operation.

        All claims look at the same states: they are made once.
        """
        rng = random.Random(self.work.name)
        return [
            (f"{self.work.name}, operation {prefix}, pieces {subset:x}", state)
            for prefix in range(len(self.disk.ops) + 1)
            for subset in (KILLED, CUT, rng.getrandbits(64), rng.getrandbits(64))
            for state in [self.disk.state(prefix, subset)]
        ]


def record(name: str, base: Path) -> Recorded:
    """Make the store of a scenario, and commit."""
    what = work(BY_NAME[name], 0)
    root = base / STORE
    with standing_in(Passing()):
        what.lay_out(root)
    old = hand.records(root)
    recorder = Recorder(base)
    with standing_in(recorder):
        what.run(root)
    tail = old[-1].physical_offset + old[-1].size
    return Recorded(what, Disk(recorder), tail, what.shape.rows)


@pytest.fixture(scope="module", params=SCENARIOS)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(request.param, tmp_path_factory.mktemp("recorded"))


def under(state: State, folder: str) -> list[tuple[str, bytes]]:
    """Path and bytes of the files below a folder of the store, by name."""
    paths = sorted(p for p in state.tree if p.startswith(f"{STORE}/{folder}/"))
    return [(path, data) for path in paths if (data := state.tree[path]) is not None]


def log_of(state: State) -> list[tuple[int, bytes]]:
    """Start and bytes of the CommitLog's files."""
    files = under(state, "commitlog")
    return [(int(p.rsplit("/", 1)[1]), data) for p, data in files if not p.endswith(INTERLOCK)]


def visible(state: State) -> list[Message]:
    """What a scan of the log finds, which is what a broker would serve."""
    return _scanned(tuple(data for _, data in log_of(state)))


@lru_cache(maxsize=1_000)
def _scanned(files: tuple[bytes, ...]) -> list[Message]:
    """Scan a log once: many states have the same."""
    return hand.scan(files)


def test_f2_f3_what_a_broker_would_see_of_a_commit_under_way_has_an_abort_beside_it(
    recorded: Recorded,
) -> None:
    shown = [(n, s) for n, s in recorded.states if recorded.shows(s) and PENDING in s.tree]
    assert shown
    assert [name for name, state in shown if ABORT not in state.tree] == []


def test_f4_a_queue_file_is_never_there_without_a_unit(recorded: Recorded) -> None:
    for name, state in recorded.states:
        empty = [path for path, data in under(state, "consumequeue") if not any(data)]
        assert not empty, name


def test_f5_nothing_but_zeros_and_the_commit_itself_is_behind_the_end(recorded: Recorded) -> None:
    final = dict(log_of(recorded.disk.state(len(recorded.disk.ops), KILLED)))
    decided = [(name, state) for name, state in recorded.states if PENDING in state.tree]
    assert decided
    for name, state in decided:
        for start, data in log_of(state):
            begin = max(0, recorded.tail - start)
            pairs = zip(data[begin:], final[start][begin:], strict=True)
            assert all(byte in (0, wanted) for byte, wanted in pairs), name


def test_f6_all_of_a_commit_is_shown_or_nothing(recorded: Recorded) -> None:
    counts = {recorded.shows(state) for _, state in recorded.states}
    assert counts == {0, recorded.batch}


def test_f7_the_checkpoint_is_never_ahead_of_the_log(recorded: Recorded) -> None:
    for name, state in recorded.states:
        newest = max(m.store_timestamp_ms for m in visible(state))
        page = state.tree[CHECKPOINT]
        assert page is not None
        log_ms, queues_ms, _ = hand.page_times(page)
        assert max(log_ms, queues_ms) <= newest, name


def test_f8_an_index_that_a_broker_would_delete_is_covered_by_the_checkpoint(
    recorded: Recorded,
) -> None:
    """A broker that finds ``abort`` deletes an IndexFile that ends behind the checkpoint."""
    seen = 0
    for name, state in recorded.states:
        page = state.tree[CHECKPOINT]
        if ABORT in state.tree and page is not None:
            seen += 1
            ends = [hand.header_end_ms(data) for _, data in under(state, "index")]
            assert max(ends, default=0) <= hand.page_times(page)[2], name
    assert seen


def test_f12_nothing_foreign_is_where_brokers_list(recorded: Recorded) -> None:
    layout = recorded.work.shape.layout
    lengths = {"commitlog": layout.commit_log_bytes, "consumequeue": layout.queue_units * 20}
    seen = set()
    for name, state in recorded.states:
        for path, data in under(state, "commitlog") + under(state, "consumequeue"):
            _, folder, *_, file = path.split("/")
            seen.add(file)
            if file == INTERLOCK:
                assert recorded.work.settings.get("interlock"), name
                assert file > max(path for path in seen if path != file), "it must sort last"
                continue
            assert file.isdecimal(), f"{name}: {path}"
            assert len(file) == 20, f"{name}: {path}"
            assert len(data) == lengths[folder], f"{name}: {path}"
    assert (INTERLOCK in seen) == bool(recorded.work.settings.get("interlock"))


def test_f13_three_empty_files_are_never_ahead_without_an_abort(recorded: Recorded) -> None:
    for name, state in recorded.states:
        ahead = 0
        for _, data in reversed(log_of(state)):
            if any(data):
                break
            ahead += 1
        assert ahead <= 2 or ABORT in state.tree, name


# --- without the guard ------------------------------------------------------------------------


@contextmanager
def with_empty_queue_files() -> Iterator[None]:
    """Put a new file in place first, and fill it there."""
    put, kept = NewFile.put, dict[NewFile, list[tuple[bytes, int]]]()

    def keep(self: NewFile, data: bytes | memoryview, position: int) -> None:
        kept.setdefault(self, []).append((bytes(data), position))

    def put_and_fill(self: NewFile, target: str) -> None:
        put(self, target)
        with opened(target) as fd:
            for data, position in kept.get(self, []):
                durable.write_at(fd, data, position)

    with patched(NewFile, "write", keep), patched(NewFile, "put", put_and_fill):
        yield


def with_a_clock_that_is_ahead() -> AbstractContextManager[object]:
    """Let the checkpoint tell of an hour to come."""
    replace_checkpoint = config_write.replace_checkpoint

    def ahead(writer: StoreWriter, fields: dict[str, int]) -> None:
        later = {n: v + 3_600_000 if n.endswith("timestamp") else v for n, v in fields.items()}
        replace_checkpoint(writer, later)

    return patched(config_write, "replace_checkpoint", ahead)


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, value)
        yield


UNGUARDED = {
    "F2, F3": (
        STEPS["abort"],
        "next-file",
        test_f2_f3_what_a_broker_would_see_of_a_commit_under_way_has_an_abort_beside_it,
    ),
    "F4": (
        with_empty_queue_files,
        "new-topic",
        test_f4_a_queue_file_is_never_there_without_a_unit,
    ),
    "F5": (
        STEPS["scrub"],
        "stale-tail",
        test_f5_nothing_but_zeros_and_the_commit_itself_is_behind_the_end,
    ),
    "F6": (
        STEPS["the byte that hides the batch"],
        "next-file",
        test_f6_all_of_a_commit_is_shown_or_nothing,
    ),
    "F7": (
        with_a_clock_that_is_ahead,
        "next-file",
        test_f7_the_checkpoint_is_never_ahead_of_the_log,
    ),
    "F8": (
        STEPS["the sync of the IndexFile before abort"],
        "index-files",
        test_f8_an_index_that_a_broker_would_delete_is_covered_by_the_checkpoint,
    ),
}


@pytest.mark.parametrize("finding", UNGUARDED)
def test_without_its_guard_the_finding_shows(tmp_path: Path, finding: str) -> None:
    unguarded, scenario, claim = UNGUARDED[finding]
    with unguarded():
        recorded = record(scenario, tmp_path)
    with pytest.raises(AssertionError):
        claim(recorded)


# --- F8 again, with brokers: what the checkpoint is for ---------------------------------------


@pytest.mark.broker
@pytest.mark.soak
def test_f8_no_key_of_an_old_message_is_lost_wherever_a_commit_is_killed(
    jvm: StoreJvm, tmp_path: Path
) -> None:
    layout = Layout(commit_log_bytes=8192, queue_units=100, index_slots=10, index_units=300)
    sizes = Sizes(commit_log=8192, consume_queue=2000, index_slots=10, index_units=300)
    base = tmp_path / "recorded"
    root = base / STORE
    rows = [("A", 0, "x" * 80, f"a{n}") for n in range(100)]
    old = lay_out(
        root,
        [hand.message(row, 1_700_000_000_000 + 10_000 * n) for n, row in enumerate(rows)],
        layout,
    )
    what = work(BY_NAME["same-file"], 0)
    recorder = Recorder(base)
    with standing_in(recorder):
        what.run(root)
    disk = Disk(recorder)
    under_way = [p for p in range(len(disk.ops)) if ABORT in disk.state(p, KILLED).tree]
    assert under_way
    for prefix in under_way[:: max(1, len(under_way) // 20)]:
        where = tmp_path / f"killed-{prefix}"
        where.mkdir()
        disk.state(prefix, KILLED).write(where)
        with jvm.serving(where / STORE, sizes) as broker:
            lost = [
                key
                for m in old.messages
                if m.physical_offset not in broker.find("A", key := m.properties_map["KEYS"])
            ]
        assert not lost, f"operation {prefix} of {len(disk.ops)}"
        shutil.rmtree(where)


# --- F11: abort() after the decision ----------------------------------------------------------


@pytest.mark.parametrize("believed", [False, True], ids=["ours", "believing"])
def test_f11_an_abort_after_the_decision_destroys_nothing(tmp_path: Path, believed: bool) -> None:
    """Spark calls abort() with all messages when a commit did not return; see test_findings_spark.

    A commit that is killed between the decision and its end needs what was staged.
    """
    root = tmp_path / STORE
    what = work(BY_NAME["same-file"], 0)
    what.lay_out(root)
    before = len(hand.records(root))
    job = prepared(root, what.batches[0].schema, **what.settings)
    manifests = staged(job, *[[batch] for batch in what.batches])
    recorder = Recorder(tmp_path)
    with standing_in(recorder):
        commit(job, manifests)
    disk = Disk(recorder)
    decided = next(
        state
        for prefix in range(len(disk.ops))
        if PENDING in (state := disk.state(prefix, KILLED)).tree
    )
    shutil.rmtree(root)
    decided.write(tmp_path)
    assert len(hand.records(root)) == before
    if believed:
        shutil.rmtree(
            job.target.staging
        )  # What abort() would do if it took its caller at his word.
        with pytest.raises(CommitInDoubtError):
            recover(root, RecoverSettings())
        return
    abort(job, manifests)
    assert intent.load(StoreDir.at(root)) is not None
    recover(root, RecoverSettings())
    assert len(hand.records(root)) == before + what.shape.rows
    assert commit(job, manifests).is_repeated
