"""Audits of tables: Parquet files beside a store, told apart row by row; hostile ones refused."""

import json
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from audit.test_audit import BY_ID, BY_OFFSET, LAYOUT, message
from mqstore.audit import identities
from mqstore.audit.differences import differences
from mqstore.audit.errors import CorruptTableError
from mqstore.audit.found import Difference
from mqstore.audit.parquet import TableSide
from mqstore.audit.rows import AuditRule
from mqstore.audit.sides import AuditSide, Side, matched
from mqstore.audit.table_addresses import TableAddress
from mqstore.codec.schema import PROFILES
from mqstore.errors import InvalidOptionError, StoreError, UnsafePathError
from mqstore.read.directory import open_origin
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from support.stores import lay_out

COUNT = 60


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "a" / "store", [message(n) for n in range(COUNT)], LAYOUT).root


def rows_of(store: Path) -> pa.Table:
    with closing(open_origin(store).bounds()) as source:
        settings = ScanSettings(columns=PROFILES["full"])
        rows = pa.Table.from_batches(scan(slices_of(source.snapshot()), settings))
    # As Spark and others write them: every column may have nulls.
    return rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))


def written(folder: Path, rows: pa.Table, **how: Any) -> Path:
    """A table of three files in folders of topics, its rows in no order."""
    turned = rows.take(list(range(rows.num_rows))[::-1])
    for number in range(3):
        some = turned.take(list(range(number, rows.num_rows, 3)))
        path = folder / f"part-{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(some, path, row_group_size=7, **how)
    return folder


def compared(first: Side, second: Side, rule: AuditRule) -> list[Difference]:
    sides = matched(first, second)
    return list(differences(sides, (sides[0].digests(rule), sides[1].digests(rule)), rule))


def side_at(table: Path, kind: str = "parquet") -> TableSide:
    return TableSide.at(TableAddress(kind, str(table)))


def audited(
    store: Path, table: Path, rule: AuditRule = BY_OFFSET, kind: str = "parquet"
) -> list[Difference]:
    with closing(open_origin(store).bounds()) as source:
        return compared(AuditSide.of([(source, source.snapshot())]), side_at(table, kind), rule)


def replaced(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, values)


def set_in(rows: pa.Table, name: str, row: int, value: object) -> pa.Table:
    values = rows.column(name).to_pylist()
    values[row] = value
    return replaced(rows, name, pa.array(values, rows.schema.field(name).type))


@pytest.mark.parametrize("how", [{}, {"use_deprecated_int96_timestamps": True}], ids=["us", "96"])
@pytest.mark.parametrize("rule", [BY_OFFSET, BY_ID], ids=["by offset", "by id"])
def test_a_table_of_all_messages_of_a_store_is_the_same(
    store: Path, tmp_path: Path, rule: AuditRule, how: dict[str, bool]
) -> None:
    table = written(tmp_path / "lake", rows_of(store), **how)
    assert audited(store, table, rule) == []
    # Other writers have larger types, and no name of a broker.
    rows = rows_of(store).drop_columns(["brokerName"])
    rows = replaced(rows, "body", rows["body"].cast(pa.large_binary()))
    rows = replaced(rows, "topic", rows["topic"].dictionary_encode())
    rows = replaced(rows, "queueId", rows["queueId"].cast(pa.int64()))
    assert audited(store, written(tmp_path / "other", rows), rule) == []


@pytest.mark.parametrize("rule", [BY_OFFSET, BY_ID], ids=["by offset", "by id"])
def test_rows_that_are_missing_extra_doubled_and_altered_are_named(
    store: Path, tmp_path: Path, rule: AuditRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "_MOST_IN_MEMORY", 3)  # In several passes.
    rows = rows_of(store)
    altered = set_in(set_in(rows, "body", 7, b"!"), "flag", 7, 9)
    extra = set_in(set_in(rows.slice(20, 1), "queueOffset", 0, 10**6), "msgId", 0, "new")
    changed = pa.concat_tables([altered.slice(1), rows.slice(30, 1), extra])
    found = audited(store, written(tmp_path / "lake", changed), rule)

    def place(row: int) -> tuple[str, int, int]:
        one = rows.slice(row, 1).to_pylist()[0]
        return one["topic"], one["queueId"], one["queueOffset"]

    told = {one.kind: one for one in found}
    assert len(found) == len(told) == 4
    for kind, row in (("missing", 0), ("altered", 7), ("doubled", 30)):
        known = told[kind].first or told[kind].second
        assert known is not None
        assert (known.topic, known.queue_id, known.queue_offset) == place(row)
    assert told["altered"].fields == ("flag", "body")
    assert told["extra"].second is not None
    assert told["extra"].second.queue_offset == 10**6
    assert told["extra"].message_id == ("new" if rule.by == "id" else None)


def test_a_table_of_two_brokers_is_compared_broker_by_broker(store: Path, tmp_path: Path) -> None:
    rows = rows_of(store)
    names = [pa.array([name] * COUNT) for name in "xy"]
    both = [replaced(rows, "brokerName", name) for name in names]
    whole = written(tmp_path / "whole", pa.concat_tables(both))
    less = written(tmp_path / "less", pa.concat_tables([both[0], both[1].slice(1)]))
    (found,) = compared(side_at(whole), side_at(less), BY_OFFSET)
    assert found.kind == "missing"
    assert found.first is not None
    assert found.first.broker == "y"
    nameless = written(tmp_path / "nameless", rows.drop_columns(["brokerName"]))
    with pytest.raises(InvalidOptionError, match="rows without brokerName"):
        compared(side_at(whole), side_at(nameless), BY_OFFSET)


def logged(table: Path, *batches: tuple[str, list[str]]) -> None:
    """The log of Spark's sink of files, as FileStreamSinkLog writes it."""
    folder = table / "_spark_metadata"
    folder.mkdir()
    for name, paths in batches:
        lines = [json.dumps({"path": path, "action": "add"}) for path in paths]
        (folder / name).write_text("\n".join(["v1", *lines]))


def test_the_log_of_sparks_sink_says_which_files_count_and_folders_the_topic(
    store: Path, tmp_path: Path
) -> None:
    rows = rows_of(store)
    table = tmp_path / "lake" / "%RETRY%g"
    addresses = []
    for number, topic in enumerate("AB"):
        some = rows.filter(pa.compute.equal(rows["topic"], topic)).drop_columns(["topic"])
        path = written(table / f"topic={topic}", some) / "part-0.parquet"
        addresses += [f"file://{quote(str(one))}" for one in sorted(path.parent.iterdir())]
        path.with_name(f"left-{number}.parquet").write_bytes(path.read_bytes())
    assert [one.kind for one in audited(store, table)].count("doubled") == 20
    logged(table, ("0", ["file:///gone"]), ("1.compact", addresses[:3]), ("2", addresses[3:]))
    assert audited(store, table) == []
    (table / "_spark_metadata" / "4").write_text("v1")
    with pytest.raises(InvalidOptionError, match="lacks batches between others"):
        audited(store, table)


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ('v1\n{"path": "file:///etc/passwd"}', "names file:///etc/passwd, which is not in"),
        ('v1\n{"path": "file://LAKE/../../x.parquet"}', "which is not in"),
        ('v1\n{"path": "s3://bucket/x.parquet"}', "which is not in"),
        ('v1\n{"path": "file://LAKE/%00.parquet"}', "which is not in"),
        ('v1\n{"path": 7}', "which is not in"),
        ('v1\n{"path": "file://LAKE/absent.parquet"}', "is not there"),
        ("v1\n[" * 5000, "has a line that names no file"),
        ("v9\n", "is no log of v1"),
    ],
)
def test_a_log_made_to_harm_is_refused(store: Path, tmp_path: Path, batch: str, told: str) -> None:
    table = written(tmp_path / "lake", rows_of(store))
    logged(table)
    (table / "_spark_metadata" / "0").write_text(batch.replace("LAKE", str(table)))
    with pytest.raises(StoreError, match=told):
        audited(store, table)


HOSTILE: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "no body": (lambda t: t.drop_columns(["body"]), "column body is missing.*columns=full"),
    "twice": (lambda t: t.append_column("flag", t["flag"]), "column flag is there twice"),
    "text body": (lambda t: replaced(t, "body", t["topic"]), "column body is string"),
    "text offset": (lambda t: replaced(t, "queueOffset", t["topic"]), "column queueOffset is"),
    "null offset": (lambda t: set_in(t, "queueOffset", 5, None), "column queueOffset has a null"),
    "negative offset": (lambda t: set_in(t, "queueOffset", 5, -1), "column queueOffset has -1"),
    "negative queue": (lambda t: set_in(t, "queueId", 5, -7), "column queueId has -7"),
    "wide queue": (
        lambda t: replaced(t, "queueId", pa.array([2**40] * COUNT)),
        "cannot be read: .*2\\*\\*|cannot be read: Integer value",
    ),
    "far time": (
        lambda t: replaced(
            t, "storeTimestamp", pa.array([2**62] * COUNT, pa.int64()).cast(pa.timestamp("us"))
        ),
        "a time outside of the years 1 to 9999",
    ),
    "no UTF-8": (
        lambda t: replaced(
            t, "topic", pa.array([b"\xff\xfe"] * COUNT, pa.binary()).view(pa.string())
        ),
        "cannot be read: .*UTF8",
    ),
    "null value": (lambda t: set_in(t, "properties", 5, [("a", None)]), "properties has a null"),
    "other map": (
        lambda t: replaced(
            t, "properties", pa.array([[("a", 1)]] * COUNT, pa.map_(pa.string(), pa.int32()))
        ),
        "column properties is map<string, int32",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_rows_that_no_message_can_be_are_refused_with_file_and_column(
    store: Path, tmp_path: Path, name: str
) -> None:
    change, told = HOSTILE[name]
    table = written(tmp_path / "lake", change(rows_of(store)))
    with pytest.raises((CorruptTableError, InvalidOptionError), match=told) as refused:
        audited(store, table)
    assert "part-" in str(refused.value)


def test_what_is_no_table_of_parquet_is_refused(store: Path, tmp_path: Path) -> None:
    table = written(tmp_path / "lake", rows_of(store))
    path = table / "part-0.parquet"
    whole = path.read_bytes()
    for damage in (b"", b"PAR1", whole[: len(whole) // 2], whole[:4] + bytes(2000) + whole[2004:]):
        path.write_bytes(damage)
        with pytest.raises(CorruptTableError, match=r"part-0\.parquet.*cannot be read"):
            audited(store, table)
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(UnsafePathError, match="is a symbolic link"):
        audited(store, table)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UnsafePathError, match="is no plain file"):
        audited(store, table)
    (table / "_delta_log").mkdir()
    with pytest.raises(InvalidOptionError, match="is a table of Delta: write delta:"):
        audited(store, table)
    with pytest.raises(InvalidOptionError, match="has no file"):
        audited(store, store / "commitlog")


def test_a_large_row_group_is_never_in_memory_as_a_whole(store: Path, tmp_path: Path) -> None:
    rows = pa.concat_tables([rows_of(store).slice(0, 1)] * 640)
    rows = replaced(rows, "body", pa.array([os.urandom(100_000) for _ in range(len(rows))]))
    table = tmp_path / "lake"
    table.mkdir()
    # Pages of 1 MiB: a page is what is in memory at least.
    pq.write_table(rows, table / "one.parquet", use_dictionary=False, write_batch_size=10)
    del rows
    before = pa.total_allocated_bytes()
    side = side_at(table)
    held = [pa.total_allocated_bytes() - before for _ in side.pieces(BY_OFFSET)]
    assert len(held) > 10
    assert max(held) < 24 << 20
