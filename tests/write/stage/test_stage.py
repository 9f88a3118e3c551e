"""Tasks: queues, batches, chunks, and what a staged file must be to be believed."""

import json
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.check import check
from mqstore.errors import InvalidMessageError, InvalidOptionError
from mqstore.files.txn.errors import CorruptStagingError
from mqstore.files.txn.segment import Segment, read_frames
from mqstore.format.hashing import java_hash
from mqstore.format.sys_flag import COMPRESSED, MULTI_TAGS
from mqstore.write.commit import commit
from mqstore.write.plan import Placement
from mqstore.write.stage.batches import BatchLimits, order_rows, split_batches
from mqstore.write.stage.task import CHUNK_BYTES, CHUNK_ROWS
from mqstore.write.staged_messages import StagedMessages
from support.oracle import split_properties
from support.writing import SMALL, append, held, of_queue, prepared, rows, staged

LARGE: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 25}

# --- queues -----------------------------------------------------------------------------------


def test_rows_go_round_the_queues_from_one_that_depends_on_the_task(tmp_path: Path) -> None:
    root = tmp_path / "s"
    append(root, rows(6), rows(5), rows(1), **SMALL)
    found = {m.body: m.queue_id for m in held(root)[:6]}
    assert [found[f"body {n}".encode()] for n in range(6)] == [0, 1, 2, 3, 0, 1]
    assert Counter(m.queue_id for m in held(root)) == {0: 3, 1: 4, 2: 3, 3: 2}


def test_the_rows_of_a_task_go_on_round_the_queues_from_batch_to_batch(tmp_path: Path) -> None:
    append(tmp_path / "s", [rows(1)] * 4, **SMALL)
    assert [m.queue_id for m in held(tmp_path / "s")] == [0, 1, 2, 3]


@given(st.lists(st.text(min_size=1, max_size=5).filter(lambda t: min(t) > "\x02"), min_size=1))
def test_a_hash_of_the_sharding_key_chooses_as_the_client_does(
    tmp_path_factory: pytest.TempPathFactory, keys: list[str]
) -> None:
    """SelectMessageQueueByHash: ``hashCode() % size``, then without its sign."""
    root = tmp_path_factory.mktemp("hash") / "s"
    append(root, rows(len(keys), shardingKey=keys), **SMALL, partitioner="hash", queue_nums=5)
    for m in held(root):
        key = split_properties(m.properties)["__SHARDINGKEY"]
        assert m.queue_id == abs(java_hash(key)) % 5


def test_rows_without_a_sharding_key_go_round_and_single_is_one_queue(tmp_path: Path) -> None:
    batch = rows(4, shardingKey=["k", None, None, "k"])
    append(tmp_path / "h", batch, **SMALL, partitioner="hash")
    assert len({m.queue_id for m in held(tmp_path / "h")}) >= 2
    append(tmp_path / "s", rows(4), rows(4), **SMALL, partitioner="single")
    assert {m.queue_id for m in held(tmp_path / "s")} == {0}
    append(tmp_path / "q", rows(2, queueId=[3, None]), **SMALL, partitioner="single")
    assert [m.queue_id for m in held(tmp_path / "q")] == [0, 3]


def test_partitioners_choose_write_queues_and_a_queue_id_may_name_a_read_queue(
    tmp_path: Path,
) -> None:
    """TopicPublishInfo has the write queues alone; msgCheck takes ids of read queues too."""
    root = tmp_path / "s"
    append(root, rows(1), **SMALL)
    entry = '{"attributes":{},"perm":6,"readQueueNums":8,"writeQueueNums":2}'
    (root / "config/topics.json").write_text(f'{{"topicConfigTable":{{"T":{entry}}}}}')
    keys = [f"k{n}" for n in range(20)]
    append(root, rows(20, shardingKey=keys), partitioner="hash")
    append(root, rows(9), partitioner="roundrobin")
    assert {m.queue_id for m in held(root)} == {0, 1}
    append(root, rows(1, queueId=7))
    with pytest.raises(InvalidMessageError, match="queueId 8 is not one of the topic's 8 queues"):
        append(root, rows(1, queueId=8))


def test_random_queues_are_all_used_and_the_same_if_a_task_is_run_again(tmp_path: Path) -> None:
    batch = rows(4000)
    job = prepared(tmp_path / "s", batch.schema, **SMALL, partitioner="random", queue_nums=7)
    one, again = ([m.segment for m in staged(job, [batch], [batch])] for _ in range(2))

    def queues(segment: Segment | None) -> list[int]:
        assert segment is not None
        frames = read_frames(job.target.staging, segment, with_records=False)
        return [f.queues[n][1] for f in frames for n in f.messages["queue"].tolist()]

    assert queues(one[0]) == queues(again[0])
    counts = [Counter(queues(segment)) for segment in one]
    assert all(450 < count[n] < 700 for count in counts for n in range(7))
    assert counts[0] != counts[1], "each task chooses for itself"


def allocated(queues: int, rooms: int, room: int) -> list[int]:
    """AllocateMessageQueueByMachineRoom#allocate, where a room stands for a consumer."""
    mod, rem = divmod(queues, rooms)
    found = list(range(mod * room, mod * room + mod))
    return [*found, room + mod * rooms] if rem > room else found


@given(queues=st.integers(1, 20), rooms=st.integers(1, 6), data=st.data())
def test_a_machine_room_has_the_queues_that_the_client_allocates(
    tmp_path_factory: pytest.TempPathFactory, queues: int, rooms: int, data: st.DataObject
) -> None:
    room = data.draw(st.integers(0, rooms - 1))
    root = tmp_path_factory.mktemp("room") / "s"
    given = {"machine_rooms": ",".join(f"r{n}" for n in range(rooms)), "machine_room": f"r{room}"}
    append(root, rows(25), **SMALL, **given, partitioner="machineRoom", queue_nums=queues)
    found = [m.queue_id for m in held(root)]
    expected = allocated(queues, rooms, room) or [room % queues]
    assert {*found} == {*expected}
    counts = Counter(found)
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"partitioner": "machineRoom"}, "machineRoom.*needs machineRooms"),
        (
            {"partitioner": "machineRoom", "machine_rooms": "a,b", "machine_room": "c"},
            "machineRoom.*needs machineRooms",
        ),
        ({"machine_rooms": "a,b"}, "machineRooms.*needs partitioner=machineRoom"),
        ({"machine_room": "a"}, "machineRoom.*needs partitioner=machineRoom"),
        (
            {"partitioner": "machineRoom", "machine_rooms": "a,,b", "machine_room": "a"},
            "machineRooms.*names that differ",
        ),
        (
            {"partitioner": "machineRoom", "machine_rooms": "a,a", "machine_room": "a"},
            "machineRooms.*names that differ",
        ),
    ],
)
def test_machine_rooms_that_name_no_queues_are_refused(
    tmp_path: Path, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        prepared(tmp_path / "s", rows(1).schema, **SMALL, **settings)


# --- what a broker adds -----------------------------------------------------------------------


def test_messages_of_a_multi_tag_topic_have_its_flag_and_are_sent_alone(tmp_path: Path) -> None:
    """handleRetryAndDLQ sets it on single sends, before a delayed message is put aside."""
    root = tmp_path / "s"
    append(root, rows(1), rows(1, topic="U"), **SMALL)
    config = root / "config/topics.json"
    text = config.read_text()
    assert text.count('"SINGLE_TAG"') == 2
    table = json.loads(text)
    table["topicConfigTable"]["T"]["topicFilterType"] = "MULTI_TAG"
    config.write_text(json.dumps(table))
    body = [b"x", b"x" * 5000, b"y"]
    append(root, rows(3, body=body, delayTimeLevel=[0, 0, 1], tags="a||b"), compression="zlib")
    append(root, rows(1, topic="U"))
    *_, plain, large, late, other = (m.sys_flag for m in held(root))
    assert (plain, large & MULTI_TAGS, large & COMPRESSED) == (2, 2, 1)
    assert (late, other) == (2, 0)
    assert starts_of(tmp_path, rows(3, queueId=0)) == [True, True, True]


def test_a_cluster_s_name_is_added_as_a_broker_does(tmp_path: Path) -> None:
    root = tmp_path / "s"
    append(root, rows(1, delayTimeLevel=1), rows(1), **SMALL, broker_cluster_name="C 1")
    append(root, rows(1))
    told = [split_properties(m.properties).get("CLUSTER") for m in held(root)]
    assert told == ["C 1", "C 1", None]
    with pytest.raises(InvalidOptionError, match="brokerClusterName"):
        prepared(root, rows(1).schema, broker_cluster_name="")
    with pytest.raises(InvalidOptionError, match="brokerClusterName"):
        prepared(root, rows(1).schema, broker_cluster_name="a\1")


# --- batches ----------------------------------------------------------------------------------


def limits(**given: Any) -> BatchLimits:
    return BatchLimits(
        **{"max_bytes": 10**9, "max_record_bytes": 10**9, "max_messages": None, **given}
    )


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(1, 50)), max_size=40),
    st.integers(1, 120),
    st.integers(1, 120),
    st.one_of(st.none(), st.integers(1, 5)),
)
def test_batches_are_split_as_one_by_one(
    given_rows: list[tuple[int, bool, int]], most_bytes: int, most_records: int, most: int | None
) -> None:
    kinds = np.array([k for k, _, _ in given_rows], np.int64)
    alone = np.array([a for _, a, _ in given_rows], np.bool_)
    sizes = np.array([s for _, _, s in given_rows], np.int64)
    bound = limits(max_bytes=most_bytes, max_record_bytes=most_records, max_messages=most)
    starts = split_batches(kinds, alone, sizes, sizes + 3, bound).tolist()
    expected, held_bytes, held_records, count = [], 0, 0, 0
    for n, (kind, single, size) in enumerate(given_rows):
        new = (
            n == 0
            or single
            or given_rows[n - 1][1]
            or given_rows[n - 1][0] != kind
            or held_bytes + size > most_bytes
            or held_records + size + 3 > most_records
            or (most is not None and count >= most)
        )
        held_bytes, held_records, count = (0, 0, 0) if new else (held_bytes, held_records, count)
        held_bytes, held_records, count = held_bytes + size, held_records + size + 3, count + 1
        expected.append(new)
    assert starts == expected


def test_rows_of_a_key_are_gathered_in_the_order_of_their_first() -> None:
    queues = np.array([1, 0, 1, 0, 1, 0], np.int64)
    sharding = np.array([7, 5, 6, 4, 7, 5], np.int64)
    assert order_rows(queues, None, None).tolist() == [1, 3, 5, 0, 2, 4]
    assert order_rows(queues, sharding, None).tolist() == [1, 5, 3, 0, 4, 2]
    moments = np.array([30, -1, 10, 20, 10, 5], np.int64)
    assert order_rows(queues, None, moments).tolist() == [5, 2, 4, 3, 0, 1]


def test_a_batch_as_a_whole_is_at_most_max_message_size(tmp_path: Path) -> None:
    batch = rows(4, queueId=0, body=bytes(400))
    assert starts_of(tmp_path, batch, max_message_size=1500) == [1, 0, 0, 1]
    assert starts_of(tmp_path / "b", batch, max_message_size=1000) == [1, 0, 1, 0]


def starts_of(tmp_path: Path, batch: pa.RecordBatch, **settings: Any) -> list[bool]:
    job = prepared(tmp_path / "s", batch.schema, **{**SMALL, **settings})
    (manifest,) = staged(job, [batch])
    assert manifest.segment is not None
    frames = read_frames(job.target.staging, manifest.segment, with_records=False)
    return [bool(s) for frame in frames for s in frame.messages["starts_batch"]]


@pytest.mark.parametrize(
    ("columns", "settings", "expected"),
    [
        ({}, {}, [1, 0, 0, 0]),
        ({"waitStoreMsgOK": [True, True, False, False]}, {}, [1, 0, 1, 0]),
        ({"delayTimeLevel": [0, 0, 0, 1]}, {}, [1, 0, 0, 1]),
        ({"delayTimeLevel": [1, 1, 1, 1]}, {}, [1, 1, 1, 1]),
        ({"body": [b"x", b"x" * 5000, b"x", b"x"]}, {"compression": "zlib"}, [1, 1, 1, 0]),
        ({}, {"batch_max_messages": 3}, [1, 0, 0, 1]),
        ({"shardingKey": ["a", "b", "a", None]}, {"batch_builder": "keyBased"}, [1, 0, 1, 1]),
        ({"queueId": [0, 1, 0, 1]}, {}, [1, 0, 1, 0]),
    ],
)
def test_a_batch_ends_where_the_next_message_differs(
    tmp_path: Path, columns: dict[str, Any], settings: dict[str, Any], expected: list[int]
) -> None:
    batch = rows(4, **{"queueId": 0, **columns})
    assert starts_of(tmp_path, batch, **settings) == [bool(e) for e in expected]


def test_keys_are_gathered_among_the_rows_that_a_task_takes_at_a_time(tmp_path: Path) -> None:
    """The guide gives the bound: two rows of a key that are further apart are two batches."""
    guide = (Path(__file__).parents[3] / "connector" / "WRITE.md").read_text(encoding="utf-8")
    assert f"(about {CHUNK_ROWS:,} rows or {CHUNK_BYTES >> 20} MiB)" in guide
    for count, is_gathered in ((CHUNK_ROWS, True), (3 * CHUNK_ROWS, False)):
        batch = rows(count, queueId=0, shardingKey=["a", *["b"] * (count - 2), "a"])
        settings = {**LARGE, "batch_builder": "keyBased", "batch_max_bytes": 4 << 20}
        batches = sum(starts_of(tmp_path / f"{count}", batch, **settings))
        assert (batches == 2) is is_gathered


def test_messages_that_fill_a_bound_exactly_are_one_batch() -> None:
    same, alone, sizes = np.zeros(4, np.int64), np.zeros(4, np.bool_), np.full(4, 10)
    for bound in (limits(max_bytes=20), limits(max_record_bytes=20), limits(max_messages=2)):
        assert split_batches(same, alone, sizes, sizes, bound).tolist() == [1, 0, 1, 0]
    for bound in (limits(max_bytes=19), limits(max_record_bytes=19), limits(max_messages=1)):
        assert split_batches(same, alone, sizes, sizes, bound).tolist() == [1, 1, 1, 1]


def test_messages_of_a_retry_topic_are_sent_alone(tmp_path: Path) -> None:
    batch = rows(4, queueId=0, topic=["%RETRY%g", "%RETRY%g", "T", "T"])
    assert starts_of(tmp_path, batch, allow_system_topics=True) == [True, True, True, False]


def test_a_message_over_the_bound_is_a_batch_of_its_own(tmp_path: Path) -> None:
    batch = rows(4, queueId=0, body=[bytes(10), bytes(900), bytes(10), bytes(10)])
    settings = {"batch_max_bytes": 300, "uniq_key": "none"}
    assert starts_of(tmp_path, batch, **settings) == [True, True, True, False]


# --- places -----------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(91, 300), st.booleans()), min_size=1, max_size=60),
    st.integers(0, 5000),
    st.sampled_from([0, 77]),
)
def test_batches_are_placed_as_one_by_one(
    records: list[tuple[int, bool]], tail: int, start: int
) -> None:
    """CommitLog: a batch that needs more than the room less a blank record's head moves on."""
    size = 2000
    batches: list[list[int]] = []
    for n, (record, first) in enumerate(records):
        if n == 0 or first or sum(batches[-1]) + record > size - 8:
            batches.append([])
        batches[-1].append(record)
    sizes = np.array([r for b in batches for r in b], np.int64)
    starts = np.array([n == 0 for b in batches for n in range(len(b))], np.bool_)
    expected, blanks, at = [], [], start + tail
    for batch in batches:
        room = size - (at - start) % size
        if sum(batch) + 8 > room:
            blanks.append(at)
            at += room
        for record in batch:
            expected.append(at)
            at += record
    whole = Placement(start + tail, size, start)
    placed = whole.place(sizes, starts)
    assert placed.physical_offsets.tolist() == expected
    assert list(placed.blanks) == blanks
    assert whole.tail == at


# --- chunks -----------------------------------------------------------------------------------


def test_many_small_batches_become_few_frames_and_large_ones_are_cut(tmp_path: Path) -> None:
    settings = {**SMALL, "mapped_file_size_commit_log": 1 << 24}
    small = rows(10)
    job = prepared(tmp_path / "s", small.schema, **settings)
    large = rows(100, body=bytes(200_000))
    manifests = staged(job, [small] * 300, [large], [])
    counts = [m.segment.frame_count if m.segment else 0 for m in manifests]
    assert counts[0] == 1
    assert 3 <= counts[1] <= 8
    assert counts[2] == 0
    done = commit(job, manifests)
    assert done.messages == 3100
    assert check(tmp_path / "s") == []


def test_an_empty_job_appends_nothing_and_still_makes_the_store(tmp_path: Path) -> None:
    done = append(tmp_path / "s", [rows(0).cast(rows(1).schema)], **SMALL)
    assert (done.messages, done.first_physical_offset) == (0, -1)
    assert check(tmp_path / "s") == []
    append(tmp_path / "s", rows(2))
    assert len(held(tmp_path / "s")) == 2
    assert (tmp_path / "s" / "commitlog" / f"{0:020d}").stat().st_size == 8192


def test_what_crosses_a_process_pickles(tmp_path: Path) -> None:
    job = prepared(tmp_path / "s", rows(1).schema, **SMALL)
    assert pickle.loads(pickle.dumps(job)) == job
    manifests = staged(job, [rows(3)])
    again = pickle.loads(pickle.dumps(manifests))
    assert again == manifests
    done = commit(pickle.loads(pickle.dumps(job)), again)
    assert pickle.loads(pickle.dumps(done)) == done


def test_only_the_attempt_that_was_reported_is_committed(tmp_path: Path) -> None:
    """Speculation and retries leave files of other attempts behind."""
    job = prepared(tmp_path / "s", rows(1).schema, **SMALL)
    staged(job, [rows(5)])
    manifests = staged(job, [rows(5)], [rows(2)])
    commit(job, [manifests[1], manifests[0]])
    found = held(tmp_path / "s")
    assert len(found) == 7
    assert len(of_queue(found, "T", 0)) == 2
    left = {path.name for path in (tmp_path / "s" / ".mqlog").iterdir()}
    assert left == {"store.json", "txn"}


# --- staged files -----------------------------------------------------------------------------


def test_a_staged_file_that_changed_in_any_byte_is_refused(tmp_path: Path) -> None:
    """Every byte: of the file's header, the frames, their tables, the records."""
    root = tmp_path / "s"
    append(root, rows(1), **SMALL)
    batch = rows(2, keys="k")
    job = prepared(root, batch.schema)
    (manifest,) = staged(job, [batch])
    assert manifest.segment is not None
    path = Path(job.target.staging) / manifest.segment.name
    good = path.read_bytes()
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0xFF]) + good[position + 1 :])
        with pytest.raises(CorruptStagingError):
            list(StagedMessages.of(job, [manifest.segment]).verified())
    path.write_bytes(good)
    commit(job, [manifest])
    assert len(held(root)) == 3


@pytest.mark.parametrize("damage", ["cut", "grown", "gone", "another", "twice", "outside"])
def test_a_staged_file_that_is_not_the_one_reported_is_refused(tmp_path: Path, damage: str) -> None:
    root = tmp_path / "s"
    append(root, rows(1), **SMALL)
    before = (root / "commitlog" / f"{0:020d}").read_bytes()
    job = prepared(root, rows(1).schema)
    manifest, other = staged(job, [rows(3)], [rows(4)])
    assert manifest.segment is not None
    assert other.segment is not None
    path = Path(job.target.staging) / manifest.segment.name
    manifests = [manifest, other]
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "grown":
        path.write_bytes(path.read_bytes() + b"\0")
    elif damage == "gone":
        path.unlink()
    elif damage == "another":
        path.write_bytes((Path(job.target.staging) / other.segment.name).read_bytes())
        manifests[0] = replace(manifest, segment=replace(manifest.segment, size=other.segment.size))
    elif damage == "twice":
        manifests = [manifest, manifest]
    else:
        name = f"../{job.job_id}/{manifest.segment.name}"
        manifests[0] = replace(manifest, segment=replace(manifest.segment, name=name))
    with pytest.raises(CorruptStagingError):
        commit(job, manifests)
    assert (root / "commitlog" / f"{0:020d}").read_bytes() == before
    assert check(root) == []
