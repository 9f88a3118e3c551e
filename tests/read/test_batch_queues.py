"""Batch ConsumeQueues: a row for each message of a batch, as the official client gives them."""

import shutil
import struct
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.backlog.measure import measure
from mqstore.backlog.plan import plan
from mqstore.backlog.request import BacklogRequest
from mqstore.check.store import check
from mqstore.codec.schema import PROFILES
from mqstore.copy.copy_store import copy_store
from mqstore.errors import CorruptStoreError, StoreError, UnsupportedStoreError
from mqstore.files.base.store_dir import open_dir
from mqstore.files.queue.batch_queue import BatchQueue
from mqstore.files.store import Store
from mqstore.read.directory import take
from mqstore.read.offsets import AtTimestamp, Latest, resolve
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice, slices_of
from mqstore.tables import tags as tag_table
from mqstore.write.recover import RecoverSettings, recover
from support import batch_stores, expectations, goldens, soak
from support.batch_stores import batch, client_message
from support.opened import narrowed, source_of, tail_of
from support.oracle import Message

TOPIC = "BCQ"

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a 5.5.0 broker with a topic of queue.type=BatchCQ."""
    return goldens.unpack(goldens.BATCH, tmp_path_factory.mktemp("batch"))


def read(root: Path, ranges: Sequence[tuple[int, int]] | None = None, **settings: Any) -> Rows:
    """All messages of the topic, or those of one range of queue offsets of each queue."""
    strict = settings.get("on_corrupt", "fail") == "fail"
    found = slices_of(take(root, broker_name="b", strict=strict))
    return read_slices(found if ranges is None else cut(found, ranges), **settings)


def read_slices(slices: Sequence[QueueSlice], **settings: Any) -> Rows:
    asked = {"columns": PROFILES["full"]} | settings
    found = scan(slices, ScanSettings(**asked))
    return [row for batch in found for row in expectations.rows(batch)]


def cut(slices: Sequence[QueueSlice], ranges: Sequence[tuple[int, int]]) -> list[QueueSlice]:
    made = []
    for piece, (start, end) in zip(slices, ranges, strict=True):
        made.append(QueueSlice(piece.origin, "b", piece.topic, piece.queue_id, start, end))
    return made


def of_topic(root: Path) -> list[QueueSlice]:
    return [piece for piece in slices_of(take(root, broker_name="b")) if piece.topic == TOPIC]


def test_each_field_of_each_message_is_that_of_the_official_client(golden: Path) -> None:
    told = [goldens.as_told(row, "5.5.0") for row in read(golden)]
    assert told == goldens.expected(goldens.BATCH)
    flags = {row["sysFlag"] & batch_stores.INNER for row in told if row["topic"] == TOPIC}
    assert flags == {0, batch_stores.INNER}  # Single messages are among the batches.


def test_bounds_are_the_brokers(golden: Path) -> None:
    found = {(q.topic, q.queue_id): (q.low, q.high) for q in take(golden).queues}
    assert found == goldens.batch_bounds()


def test_backlog_counts_messages(golden: Path) -> None:
    request = BacklogRequest(groups="CGALL,CGX")
    rows = expectations.rows(measure(plan(take(golden), request), request, as_of_ms=0))
    lags = {(r["group"], r["topic"], r["queueId"]): r["lag"] for r in rows}
    told = goldens.batch_lags(TOPIC)
    assert len(told) == 4
    assert {name: lags[name] for name in told} == told
    log = sum(file.stat().st_size for file in (golden / "commitlog").iterdir())
    assert all(row["bytesBehind"] <= log for row in rows)


def test_backlog_by_tag_counts_the_messages_of_batches_too(golden: Path) -> None:
    tagged = {"CGX": {TOPIC: "TagA"}}
    request = BacklogRequest(groups="CGX", subscriptions=tagged)
    rows = expectations.rows(measure(plan(take(golden), request), request, as_of_ms=0))
    behind = [row for row in read_slices(of_topic(golden), tags="TagA") if row["queueOffset"] >= 7]
    assert sum(r["lagMatching"] for r in rows if r["topic"] == TOPIC) == len(behind) > 20


def test_any_range_of_queue_offsets_gives_its_messages(golden: Path) -> None:
    whole, slices = read_slices(of_topic(golden)), of_topic(golden)
    for start in range(0, 60, 7):
        for length in (1, 5, 40):
            ranges = [(start, start + length)] * len(slices)
            expected = [row for row in whole if start <= row["queueOffset"] < start + length]
            assert read_slices(cut(slices, ranges)) == expected


@pytest.mark.parametrize("settings", [
    {"batch_rows": 3}, {"merged": True}, {"read_mode": "mmap"},
    {"first_rows": 2, "merged": True, "batch_rows": 10},
    pytest.param({"batch_bytes": 1}, marks=soak.not_in_check),
])  # fmt: skip
def test_messages_are_the_same_whatever_the_settings(
    golden: Path, settings: dict[str, Any]
) -> None:
    def name(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["topic"], row["queueId"], row["queueOffset"]

    assert sorted(read(golden, **settings), key=name) == read(golden)


@pytest.mark.parametrize("column", PROFILES["full"])
def test_each_column_alone_is_that_of_the_whole_row(golden: Path, column: str) -> None:
    assert [row[column] for row in read(golden, columns=(column,))] == [
        row[column] for row in read(golden)
    ]


def test_tags_keys_and_ids_are_those_of_the_messages(golden: Path) -> None:
    """The unit of a batch has no hash of them, and no index has them."""
    whole = read(golden)
    tagged = [row for row in whole if row["tags"] == "TagA"]
    assert {row["sysFlag"] & batch_stores.INNER for row in tagged} == {0, batch_stores.INNER}
    assert read(golden, tags="TagA") == tagged
    row = next(row for row in whole if row["keys"] and row["sysFlag"] & batch_stores.INNER)
    for names in ({"keys": (row["keys"].split(" ")[0],)}, {"msg_ids": (row["msgId"],)}):
        found = narrowed(slices_of(take(golden, broker_name="b")), *(
            names.get("keys", ()), names.get("msg_ids", ())
        ))  # fmt: skip
        assert row in read_slices(found, **names)


def test_the_table_of_tags_counts_messages_and_the_bytes_of_a_record_once(golden: Path) -> None:
    whole = [row for row in read(golden) if row["topic"] == TOPIC]
    parts = tag_table.plan(of_topic(golden), "*")
    names = [name for name, *_ in tag_table.COLUMNS]
    rows = [r for part in parts for b in part.batches(names) for r in expectations.rows(b)]
    counts: dict[str | None, int] = {}
    for row in rows:
        counts[row["tag"]] = counts.get(row["tag"], 0) + row["messageCount"]
    assert counts == {
        tag: sum(row["tags"] == tag for row in whole) for tag in {row["tags"] for row in whole}
    }
    log = sum(file.stat().st_size for file in (golden / "commitlog").iterdir())
    assert 0 < sum(row["bytes"] for row in rows) <= log


def test_slices_weigh_what_their_records_have(golden: Path) -> None:
    snapshot = take(golden)
    with closing(source_of(snapshot)) as source:
        weighed = source.weigh(slices_of(snapshot))
    with Store(open_dir(golden, in_batches=True)) as store:
        queue = store.queue(TOPIC, 0)
        assert isinstance(queue, BatchQueue)
        size = sum(int(units["size"].sum()) for _, _, units in queue.batches())
    assert next(w.total for w in weighed if w.slice.topic == TOPIC) == size


def test_a_time_begins_at_the_first_message_of_a_batch(golden: Path) -> None:
    whole = read_slices(of_topic(golden))
    row = next(r for r in whole if r["queueId"] == 0 and r["queueOffset"] > 20)
    ms = row["storeTimestamp"] // 1000
    snapshot = take(golden)
    with closing(source_of(snapshot)) as source:
        ranges = resolve(source, snapshot, lambda _: (AtTimestamp(ms), Latest()))
    start = next(start for queue, start, _ in ranges if (queue.topic, queue.queue_id) == (TOPIC, 0))
    stored = [r["queueOffset"] for r in whole if r["queueId"] == 0
              and r["storeTimestamp"] // 1000 >= ms]  # fmt: skip
    assert start == min(stored)


def test_check_finds_nothing_in_what_a_broker_wrote(golden: Path) -> None:
    assert check(golden) == []


def test_a_tail_sees_the_batches_that_come(tmp_path: Path) -> None:
    records = batch_stores.place([batch([client_message(b"a"), client_message(b"b")])] * 3, [2] * 3)
    root = batch_stores.lay_out(tmp_path / "store", records)
    batch_stores.write_units(root, [records[0].unit()])
    (root / "abort").touch()  # Its broker runs: it has not entered the others yet.
    with closing(tail_of(root, broker_name="b")) as tail:
        assert tail.look(at_once=True) == {("T", 0): (0, 2)}
        batch_stores.write_units(root, [record.unit() for record in records])
        assert tail.look(at_once=True) == {("T", 0): (0, 6)}
        size = records[0].message.size
        assert tail.fitting(("T", 0), 0, 6, 2 * size) == (4, 2 * size)


# --- what is not whole ------------------------------------------------------------------------


def three(first: int = 0) -> list[batch_stores.Record]:
    messages = [client_message(f"body {n}".encode(), b"TAGS\1a\2") for n in range(4)]
    return batch_stores.place([batch(messages)] * 3, [4] * 3, first)


def test_queue_offsets_without_a_message_are_passed_over(tmp_path: Path) -> None:
    """However many: a unit says any base."""
    root = batch_stores.lay_out(tmp_path / "store", three())
    far = batch_stores.place([batch([client_message(b"x")])] * 4, [1] * 4, 2**61)
    made = [*three()[:2], *far[2:]]
    messages = [record.message for record in made]
    placed = batch_stores.place(messages, [record.count for record in made])
    kept = [
        batch_stores.Record(replace(at.message, queue_offset=record.base), record.base, at.count)
        for record, at in zip(made, placed, strict=True)
    ]
    shutil.rmtree(root)
    batch_stores.lay_out(root, kept)
    (queue,) = take(root).queues
    assert (queue.low, queue.high) == (0, 2**61 + 4)
    assert [row["queueOffset"] for row in read(root)] == [*range(8), 2**61 + 2, 2**61 + 3]
    (root / "abort").touch()  # Of such a store the last records are looked for.
    assert len(read(root)) == 10


@pytest.mark.parametrize("units", [
    pytest.param(lambda units: [units[0], units[2], units[1]], id="back"),
    pytest.param(lambda units: [units[0], count(units[0], 32_767), units[1]], id="overlapping"),
    pytest.param(lambda units: [units[0], base(units[1], 2**63 - 2), units[2]], id="at the end"),
])  # fmt: skip
def test_units_out_of_order_are_an_error_of_the_store(tmp_path: Path, units: Any) -> None:
    root = batch_stores.lay_out(tmp_path / "store", three())
    batch_stores.write_units(root, units([record.unit() for record in three()]))
    with pytest.raises(CorruptStoreError):
        read(root)
    assert any(finding.severity == "error" for finding in check(root))


def test_a_unit_of_too_many_messages_gives_those_that_are_there(tmp_path: Path) -> None:
    root = batch_stores.lay_out(tmp_path / "store", three())
    units = [record.unit() for record in three()]
    batch_stores.write_units(root, [*units[:2], count(units[2], 5)])
    with pytest.raises(CorruptStoreError, match="holds no message of that queue offset"):
        read(root)
    assert [row["queueOffset"] for row in read(root, on_corrupt="skip")] == list(range(12))
    assert [finding.problem for finding in check(root)] == ["count is 5, the record says 4"]


@pytest.mark.parametrize(("harm", "reason"), [
    pytest.param(lambda u: count(u, 32_767), "more messages than its record has room for",
                 id="messages"),
    pytest.param(lambda u: struct.pack(">q", 1) + u[8:], "before the one of the unit before it",
                 id="record"),
])  # fmt: skip
def test_units_claim_no_more_rows_than_the_log_has_bytes_for(
    tmp_path: Path, harm: Any, reason: str
) -> None:
    """Else a few units would make rows, and errors, for hours."""
    root = batch_stores.lay_out(tmp_path / "store", three())
    units = [record.unit() for record in three()]
    batch_stores.write_units(root, [*units[:2], harm(units[2])])
    with pytest.raises(CorruptStoreError, match=reason):
        read(root)
    assert [row["queueOffset"] for row in read(root, on_corrupt="skip")] == list(range(8))
    assert any(finding.severity == "error" for finding in check(root))


HARMS = {
    "a message that reaches out of its batch": (0, ">i", 10_000),
    "a message shorter than its head": (0, ">i", 21),
    "a message of no length": (0, ">i", 0),
    "a body that reaches out of its message": (16, ">i", 2**31 - 1),
    "a body below zero": (16, ">i", -1),
    "properties that do not fill the message": (26, ">h", 3),
    "properties below zero": (26, ">h", -5),
}


@pytest.mark.parametrize("what", HARMS)
def test_a_batch_whose_lengths_do_not_add_up_is_named(tmp_path: Path, what: str) -> None:
    at, code, value = HARMS[what]
    broken = bytearray(three()[1].message.body)
    struct.pack_into(code, broken, at, value)
    made = three()
    messages = [made[0].message, batch([bytes(broken)]), made[2].message]
    root = batch_stores.lay_out(tmp_path / "store", batch_stores.place(messages, [4] * 3))
    with pytest.raises(CorruptStoreError, match="do not add up to its body"):
        read(root)
    kept = [row["queueOffset"] for row in read(root, on_corrupt="skip")]
    assert kept == [0, 1, 2, 3, 8, 9, 10, 11]
    rescued = read(root, on_corrupt="rescue")
    assert [row["crcOk"] for row in rescued].count(False) == 4


def test_a_batch_in_a_body_is_no_batch(tmp_path: Path) -> None:
    """Messages have no flag that says so: nothing is taken apart twice."""
    inner = client_message(client_message(client_message(b"deep")))
    root = batch_stores.lay_out(tmp_path / "store", batch_stores.place([batch([inner])], [1]))
    assert [row["body"] for row in read(root)] == [client_message(client_message(b"deep"))]


def test_a_batch_compressed_as_a_whole_is_named(tmp_path: Path) -> None:
    packed = batch([client_message(b"x" * 9)], sys_flag=batch_stores.INNER | 1)
    root = batch_stores.lay_out(tmp_path / "store", batch_stores.place([packed], [1]))
    with pytest.raises(CorruptStoreError, match="compressed as a whole"):
        read(root)


def test_a_batch_of_more_messages_than_a_unit_can_say_is_named(tmp_path: Path) -> None:
    body = client_message(b"") * 32_768
    records = batch_stores.place([batch([body])], [32_767])
    root = batch_stores.lay_out(tmp_path / "store", records)
    with pytest.raises(CorruptStoreError, match="more than 32767 messages"):
        read(root)


def test_the_checksum_of_a_batch_is_that_of_each_of_its_messages(tmp_path: Path) -> None:
    made = three()
    wrong = replace(made[1].message, body_crc=7)
    messages = [made[0].message, wrong, made[2].message]
    root = batch_stores.lay_out(tmp_path / "store", batch_stores.place(messages, [4] * 3))
    with pytest.raises(CorruptStoreError, match="checksum"):
        read(root)
    rows = read(root, verify_crc=False)
    assert [row["crcOk"] for row in rows] == [True] * 4 + [False] * 4 + [True] * 4


def test_a_record_of_another_queue_is_named(tmp_path: Path) -> None:
    made = three()
    messages = [made[0].message, replace(made[1].message, queue_id=3)]
    root = batch_stores.lay_out(tmp_path / "store", batch_stores.place(messages, [4] * 2))
    with pytest.raises(CorruptStoreError, match="of another topic, queue"):
        read(root)


def test_a_missing_file_is_named_and_the_next_goes_on(tmp_path: Path) -> None:
    made = batch_stores.place([three()[0].message] * 7, [4] * 7)
    root = batch_stores.lay_out(tmp_path / "store", made, per_file=2)
    (root / "batchconsumequeue/T/0" / f"{2 * 46:020d}").unlink()
    with pytest.raises(CorruptStoreError, match=r"missing.* mqlog salvage"):
        read(root)
    kept = [row["queueOffset"] for row in read(root, on_corrupt="skip")]
    assert kept == [*range(8), *range(16, 28)]


def test_expired_messages_are_before_the_low_end(tmp_path: Path) -> None:
    root = batch_stores.lay_out(tmp_path / "store", three())
    with Store(open_dir(root, in_batches=True)) as store:
        queue = store.queue("T", 0)
        second = three()[1].message.physical_offset
        assert [queue.bounds(low) for low in (0, 1, second, second + 1, 10**6)] == [
            (0, 12), (4, 12), (4, 12), (8, 12), (12, 12)
        ]  # fmt: skip


def test_of_a_store_that_was_killed_only_batches_with_a_record_count(tmp_path: Path) -> None:
    made = three()
    root = batch_stores.lay_out(tmp_path / "store", made)
    (root / "abort").touch()
    log = root / "commitlog" / f"{0:020d}"
    data = log.read_bytes()
    log.write_bytes(data[: made[1].message.physical_offset].ljust(len(data), b"\0"))
    (queue,) = take(root).queues
    assert (queue.low, queue.high) == (0, 4)


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    per_file=st.integers(1, 5),
    bounds=st.tuples(st.integers(0, 60), st.integers(0, 60)),
)
def test_units_of_any_range_are_those_of_its_messages(
    tmp_path_factory: pytest.TempPathFactory,
    counts: list[int],
    per_file: int,
    bounds: tuple[int, int],
) -> None:
    messages = [batch([client_message(b"m")] * count) for count in counts]
    records = batch_stores.place(messages, counts)
    root = batch_stores.lay_out(tmp_path_factory.mktemp("s") / "store", records, per_file)
    start, end = sorted(min(bound, sum(counts)) for bound in bounds)
    every = [r.message.physical_offset for r in records for _ in range(r.count)]
    with Store(open_dir(root, in_batches=True)) as store:
        units = store.queue("T", 0).read(start, end)
        assert units["physical_offset"].tolist() == every[start:end]


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["open", "recover", "copy"])
def test_nothing_is_written_to_such_a_store_and_it_is_not_copied(tmp_path: Path, what: str) -> None:
    root = batch_stores.lay_out(tmp_path / "store", three())
    before = goldens.digest(root)
    works = {
        "open": lambda: Store.open(root),
        "recover": lambda: recover(str(root), RecoverSettings()),
        "copy": lambda: copy_store(str(root), str(tmp_path / "copy")),
    }
    with pytest.raises(UnsupportedStoreError, match="BATCH_CONSUME_QUEUE"):
        works[what]()
    assert goldens.digest(root) == before


def test_a_topic_with_both_kinds_of_queue_is_refused(tmp_path: Path) -> None:
    root = batch_stores.lay_out(tmp_path / "store", three())
    (root / "consumequeue" / "T" / "0").mkdir(parents=True)
    with pytest.raises(UnsupportedStoreError, match="in consumequeue and in batchconsumequeue"):
        take(root)


def test_such_queues_beside_queues_in_rocksdb_are_refused(tmp_path: Path) -> None:
    root = batch_stores.lay_out(tmp_path / "store", three())
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / "CURRENT").touch()
    with pytest.raises(StoreError, match="other queues are in RocksDB"):
        take(root)


def count(unit: bytes, number: int) -> bytes:
    return unit[:36] + struct.pack(">h", number) + unit[38:]


def base(unit: bytes, number: int) -> bytes:
    return unit[:28] + struct.pack(">q", number) + unit[36:]


def test_a_message_of_the_topic_that_is_no_batch_is_a_row(tmp_path: Path) -> None:
    made = batch_stores.place([Message(body=b"single"), three()[0].message], [1, 4])
    root = batch_stores.lay_out(tmp_path / "store", made)
    rows = read(root)
    assert [(row["queueOffset"], row["body"]) for row in rows][:2] == [
        (0, b"single"), (1, b"body 0"),
    ]  # fmt: skip
    assert rows[0]["storeSize"] == made[0].message.size
