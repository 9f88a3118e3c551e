"""Scanning: any slices of any store give exactly the messages the oracle says are there."""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.codec.schema import PROFILES, message_schema
from mqstore.errors import CorruptStoreError, DataLossError
from mqstore.files.log import commit_log
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice, slices_of
from support import expectations, goldens, kernels, oracle, strategies
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore, lay_out

FULL = PROFILES["full"]
SETTINGS = ScanSettings(columns=FULL)


def rows_of(batches: Iterator[pa.RecordBatch], columns: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(message_schema(columns))
        assert batch.num_rows > 0
        found += expectations.rows(batch)
    return found


def read_slices(slices: Sequence[QueueSlice], settings: ScanSettings) -> list[dict[str, Any]]:
    return rows_of(scan(slices, settings), settings.columns)


def read_all(root: Path, settings: ScanSettings = SETTINGS) -> list[dict[str, Any]]:
    return read_slices(slices_of(take(root, broker_name="b")), settings)


def expected_of(laid: Laid, keep: Callable[[Message], bool] = lambda _: True) -> list[Any]:
    return [
        expectations.row(m, "b") for _, held in sorted(laid.queues.items()) for m in held if keep(m)
    ]


any_settings = st.builds(
    ScanSettings,
    columns=st.just(FULL),
    batch_rows=st.integers(1, 9),
    batch_bytes=st.sampled_from([1, 500, 1 << 20]),
    read_mode=st.sampled_from(["pread", "mmap"]),
    first_rows=st.integers(1, 9),
)


@given(batch=strategies.batches(max_size=30), layout=strategies.layouts(), settings=any_settings)
def test_any_store_reads_as_the_oracle_says(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[Message],
    layout: Layout,
    settings: ScanSettings,
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store") / "store", batch, layout)
    assert read_all(laid.root, settings) == expected_of(laid)


@given(batch=strategies.batches(max_size=30), expired=st.integers(1, 3))
def test_what_has_expired_is_not_read_and_nothing_else_is_missing(
    tmp_path_factory: pytest.TempPathFactory, batch: list[Message], expired: int
) -> None:
    root = tmp_path_factory.mktemp("store") / "store"
    filling = [Message(topic="Fill", body=bytes(1900)) for _ in range(expired + 1)]
    layout = Layout(commit_log_bytes=2500, queue_units=4, expired_files=expired)
    laid = lay_out(root, [*batch, *filling], layout)
    assert read_all(laid.root) == expected_of(laid)


@given(batch=strategies.batches(max_size=30, topics=("T",)), data=st.data())
def test_any_ranges_of_queues_give_those_messages(
    tmp_path_factory: pytest.TempPathFactory, batch: list[Message], data: st.DataObject
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store") / "store", batch, Layout(queue_units=3))
    slices, expected = [], []
    for piece in data.draw(st.permutations(slices_of(take(laid.root, broker_name="b")))):
        start = data.draw(st.integers(piece.start, piece.end))
        end = data.draw(st.integers(start, piece.end))
        slices.append(replace(piece, start=start, end=end))
        expected += laid.queues[piece.topic, piece.queue_id][start:end]
    found = rows_of(scan(slices, SETTINGS), FULL)
    assert found == [expectations.row(m, "b") for m in expected]


def by_queue(rows: list[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Return the rows of each queue, in the order they came in."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["topic"], row["queueId"]), []).append(row)
    return found


@given(
    batch=strategies.batches(max_size=30),
    layout=strategies.layouts(),
    settings=any_settings,
    tags=st.sampled_from(["*", "A", "A || B"]),
    data=st.data(),
)
def test_merged_slices_give_each_queue_as_it_is_alone(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[Message],
    layout: Layout,
    settings: ScanSettings,
    tags: str,
    data: st.DataObject,
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store") / "store", batch, layout)
    slices = []
    for piece in data.draw(st.permutations(slices_of(take(laid.root, broker_name="b")))):
        start = data.draw(st.integers(piece.start, piece.end))
        slices.append(replace(piece, start=start, end=data.draw(st.integers(start, piece.end))))
    alone = replace(settings, tags=tags)
    found = read_slices(slices, replace(alone, merged=True))
    assert by_queue(found) == by_queue(read_slices(slices, alone))
    if tags == "*":
        places = [row["physicalOffset"] for row in found]
        assert places == sorted(places)


@given(
    batch=strategies.batches(max_size=30),
    on_corrupt=st.sampled_from(["skip", "rescue", "fail"]),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), max_size=6),
    settings=any_settings,
)
def test_merged_slices_tell_of_the_same_damage(
    tmp_path_factory: pytest.TempPathFactory,
    batch: list[Message],
    on_corrupt: str,
    flips: list[tuple[float, int]],
    settings: ScanSettings,
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store") / "store", batch)
    slices = slices_of(take(laid.root, broker_name="b"))
    for where, bit in flips:
        message = laid.messages[int(where * len(laid.messages))] if laid.messages else None
        if message is not None:
            place = message.physical_offset + int(where * 1e6) % message.size
            flip(laid, place, bit)
    alone = replace(settings, on_corrupt=on_corrupt)

    def outcome(asked: ScanSettings) -> object:
        try:
            return by_queue(read_slices(slices, asked))
        except CorruptStoreError:
            return CorruptStoreError

    assert outcome(replace(alone, merged=True)) == outcome(alone)


def flip(laid: Laid, physical_offset: int, bit: int) -> None:
    """Turn one bit of the CommitLog over."""
    files = sorted((laid.root / "commitlog").iterdir())
    path = max((p for p in files if int(p.name) <= physical_offset), key=lambda p: int(p.name))
    data = bytearray(path.read_bytes())
    data[physical_offset - int(path.name)] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("profile", ["minimal", "standard", "kafka"])
def test_each_profile_gives_its_columns(store: MakeStore, profile: str) -> None:
    laid = store([Message(body=b"b", properties=b"KEYS\x01k1 k2\x02TAGS\x01A")] * 3)
    columns = PROFILES[profile]
    found = read_all(laid.root, replace(SETTINGS, columns=columns))
    of = expectations.kafka_row if profile == "kafka" else lambda m: expectations.row(m, "b")
    expected = [of(m) for m in laid.messages]
    assert found == [{name: row[name] for name in columns} for row in expected]


def tagged(*tags: str | None) -> list[Message]:
    return [
        Message(body=str(i).encode(), properties=b"" if t is None else f"TAGS\x01{t}".encode())
        for i, t in enumerate(tags)
    ]


@pytest.mark.parametrize(
    ("expression", "bodies"),
    [
        ("*", "0123456"),
        ("A", "0"),
        ("Aa", "2"),
        ("BB", "3"),
        ("A || BB", "03"),
        (" A||Aa ", "02"),
        ("nobody", ""),
        ("标签C", "5"),
        ("a||b", ""),
    ],
)
def test_tags_pass_by_hash_and_then_by_name(store: MakeStore, expression: str, bodies: str) -> None:
    laid = store(tagged("A", None, "Aa", "BB", "B", "标签C", "a||b"))
    found = read_all(laid.root, replace(SETTINGS, columns=("body",), tags=expression))
    assert b"".join(row["body"] for row in found).decode() == bodies


@given(
    batch=strategies.batches(max_size=30, topics=("T", oracle.SCHEDULE_TOPIC)),
    tags=st.lists(st.sampled_from(["TagA", "标签C", "😀", "Aa", "BB", "z"]), min_size=1),
)
def test_any_tag_expression_gives_the_messages_with_those_tags(
    tmp_path_factory: pytest.TempPathFactory, batch: list[Message], tags: list[str]
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store") / "store", batch)
    found = read_all(laid.root, replace(SETTINGS, tags=" || ".join(tags)))
    assert found == expected_of(laid, lambda m: m.tags in tags)


@pytest.mark.parametrize("kind", kernels.KINDS)
@pytest.mark.parametrize(
    ("tags", "sql", "bodies"),
    [
        ("*", "a > 5", "13"),
        ("*", "a IS NULL", "4"),
        ("A", "a > 5", "1"),
        ("*", "name = 'grün' OR TAGS = 'B'", "023"),
        ("*", "NOT (a > 5)", "0"),
        ("*", "nobody = 5", ""),
    ],
)
def test_sql_chooses_by_properties_and_together_with_tags(
    store: MakeStore, kind: str, tags: str, sql: str, bodies: str
) -> None:
    properties = [
        {"TAGS": "B", "a": "5"},
        {"TAGS": "A", "a": "6"},
        {"a": "abc", "name": "grün"},
        {"TAGS": "B", "a": "70"},
        {},
    ]
    laid = store(
        [
            Message(body=str(i).encode(), properties=oracle.join_properties(each))
            for i, each in enumerate(properties)
        ]
    )
    with kernels.using(kind):
        found = read_all(laid.root, replace(SETTINGS, columns=("body",), tags=tags, sql=sql))
    assert b"".join(row["body"] for row in found).decode() == bodies


@pytest.mark.parametrize("kind", kernels.KINDS)
def test_sql_sees_text_that_is_not_utf_8_as_the_columns_show_it(
    store: MakeStore, kind: str
) -> None:
    laid = store([Message(properties=b"a\x01\xff5\x02b\x011\x02b\x012")])
    with kernels.using(kind):
        found = read_all(laid.root, replace(SETTINGS, sql="a ENDSWITH '5' AND a <> '5' AND b = 2"))
    assert len(found) == 1


def test_a_tags_code_that_is_an_address_is_decided_by_the_tag(tmp_path: Path) -> None:
    """With enableConsumeQueueExt a unit holds an address in consumequeue_ext, not a hash."""
    laid = lay_out(tmp_path / "store", tagged("A", "B", "A", None))
    for m in laid.messages:
        path, position = laid.unit_of(("T", 0), m.queue_offset)
        address = -(2**63) + 20 * m.queue_offset
        unit = struct.pack(">qiq", m.physical_offset, m.size, address)
        data = bytearray(path.read_bytes())
        data[position : position + len(unit)] = unit
        path.write_bytes(data)
    found = read_all(laid.root, replace(SETTINGS, columns=("body",), tags="A"))
    assert [row["body"] for row in found] == [b"0", b"2"]


def test_a_light_queue_gives_the_messages_of_its_parent_under_its_own_name(
    tmp_path: Path,
) -> None:
    """INNER_MULTI_DISPATCH: one record, and a unit for it in each %LMQ% queue."""
    laid = lay_out(tmp_path / "store", tagged("A", "B", "C"))
    folder = laid.root / "consumequeue" / "%LMQ%mine" / "0"
    folder.mkdir(parents=True)
    units = b"".join(oracle.unit(m) for m in laid.messages[1:])
    (folder / ("0" * 20)).write_bytes(units.ljust(320, b"\0"))
    found = [row for row in read_all(laid.root) if row["topic"] == "%LMQ%mine"]
    assert [(r["queueOffset"], r["body"], r["tags"]) for r in found] == [
        (0, b"1", "B"),
        (1, b"2", "C"),
    ]


@pytest.mark.parametrize("lost", [1, 2, 4])
@pytest.mark.parametrize("on_corrupt", ["skip", "rescue"])
def test_a_lost_consume_queue_file_costs_its_own_messages_only(
    tmp_path: Path, on_corrupt: str, lost: int
) -> None:
    laid = lay_out(tmp_path / "store", [Message() for _ in range(80)])
    slices = slices_of(take(laid.root))
    laid.unit_of(("T", 0), 16 * lost)[0].unlink()
    found = read_slices(slices, replace(SETTINGS, on_corrupt=on_corrupt))
    gone = range(16 * lost, 16 * lost + 16)
    assert [row["queueOffset"] for row in found] == [q for q in range(80) if q not in gone]


@pytest.mark.parametrize("fails", [True, False])
def test_a_log_file_that_expires_while_a_task_reads_is_a_data_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    monkeypatch.setattr(commit_log, "OPEN_FILES", 1)
    laid = lay_out(
        tmp_path / "store", [Message(queue_id=n % 2, body=bytes(300)) for n in range(80)]
    )
    settings = replace(SETTINGS, batch_rows=40, fail_on_data_loss=fails)
    batches = scan(slices_of(take(laid.root)), settings)
    assert next(batches).num_rows == 40
    first, low = laid.file_of(laid.messages[40])[0], laid.messages[40].physical_offset
    for path in sorted(first.parent.iterdir()):
        if path < first:
            path.unlink()
    held = [m for m in laid.messages if m.physical_offset >= int(first.name) and m.queue_id]
    assert int(first.name) <= low
    if fails:
        with pytest.raises(DataLossError, match=r"T/1 .*\[0, \d\d\)"):
            list(batches)
    else:
        found = [row["queueOffset"] for batch in batches for row in expectations.rows(batch)]
        assert found == [m.queue_offset for m in held]
        assert f"the store holds [{held[0].queue_offset}, 40)" in caplog.text


def keyed(*keys: str) -> list[Message]:
    return [
        Message(properties=f"KEYS\x01{k}\x02UNIQ_KEY\x01{i:032X}".encode())
        for i, k in enumerate(keys)
    ]


@pytest.mark.parametrize(
    ("keys", "rows"),
    [(("a",), [0, 2]), (("b",), [1, 2]), (("a", "b"), [0, 1, 2]), (("ab",), [3]), (("z",), [])],
)
def test_a_key_is_one_of_the_words_of_keys(
    store: MakeStore, keys: tuple[str, ...], rows: list[int]
) -> None:
    laid = store(keyed("a", "b", "a b", "ab", "abc"))
    found = read_all(laid.root, replace(SETTINGS, keys=keys))
    assert [row["queueOffset"] for row in found] == rows


def test_a_message_is_found_by_either_of_its_ids(store: MakeStore) -> None:
    laid = store(keyed("a", "b", "c", "d"))
    ids = (f"{1:032x}", laid.messages[2].offset_msg_id)
    found = read_all(laid.root, replace(SETTINGS, msg_ids=ids))
    assert [row["queueOffset"] for row in found] == [1, 2]


def test_bodies_stay_compressed_when_asked_for_as_stored(store: MakeStore) -> None:
    stored = oracle.compress(b"x" * 5000, oracle.ZLIB)
    laid = store([Message(body=stored, sys_flag=1 | oracle.ZLIB)])
    assert read_all(laid.root)[0]["body"] == b"x" * 5000
    (row,) = read_all(laid.root, replace(SETTINGS, decompress=False))
    assert (row["body"], row["compression"], row["crcOk"]) == (stored, "zlib", True)


def test_a_golden_store_reads_as_its_own_client_decoded_it(golden: tuple[str, Path]) -> None:
    version, root = golden
    found = {(r["topic"], r["queueId"], r["queueOffset"]): r for r in read_all(root)}
    for told in goldens.expected(version):
        row = found[told["topic"], told["queueId"], told["queueOffset"]]
        assert goldens.as_told(row, version) == told


def test_nothing_to_read_is_no_batch(store: MakeStore) -> None:
    laid = store([Message()])
    assert list(scan([], SETTINGS)) == []
    (piece,) = slices_of(take(laid.root))
    assert list(scan([replace(piece, end=0)], SETTINGS)) == []
