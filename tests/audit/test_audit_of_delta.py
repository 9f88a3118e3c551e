"""Audits of Delta tables without Spark: the files of the last version alone count."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from audit.test_audit import BY_ID, BY_OFFSET, LAYOUT, message
from audit.test_audit_of_tables import COUNT, audited, replaced, rows_of, side_at
from mqstore.audit.errors import CorruptTableError
from mqstore.audit.rows import AuditRule
from mqstore.errors import InvalidOptionError, StoreError
from support.stores import lay_out

TOPICS = {"A": "%RETRY%g|1", "B": "B"}
"""Names that are written otherwise in paths."""


def store_in(folder: Path) -> Path:
    sent = [replace(one, topic=TOPICS[one.topic]) for one in map(message, range(COUNT))]
    return lay_out(folder / "a" / "store", sent, LAYOUT).root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return store_in(tmp_path)


@pytest.fixture
def rows(store: Path) -> pa.Table:
    found = rows_of(store)
    return found.append_column("date", found["storeTimestamp"].cast(pa.date32()))


@pytest.fixture
def table(tmp_path: Path, rows: pa.Table) -> Path:
    """As an archive makes one: by day and topic, in two commits."""
    folder = tmp_path / "my lake"
    for some in (rows.slice(0, 25), rows.slice(25)):
        write_deltalake(folder, some, partition_by=["date", "topic"], mode="append")
    return folder


def kinds(store: Path, table: Path, rule: AuditRule = BY_OFFSET) -> list[str]:
    named = pa.table(DeltaTable(table).get_add_actions())["path"].to_pylist()
    ours = {str(file.path.relative_to(table)) for file in side_at(table, "delta").files}
    assert ours == set(map(unquote, named))
    return [one.kind for one in audited(store, table, rule, "delta")]


def log_of(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def commit(table: Path, *actions: dict[str, Any]) -> None:
    """One more version, as another writer would add it."""
    path = table / "_delta_log" / f"{len(log_of(table)):020d}.json"
    path.write_text("\n".join(map(json.dumps, actions)))


def added(table: Path, kind: str = "add") -> list[dict[str, Any]]:
    lines = (line for path in log_of(table) for line in path.read_text().splitlines())
    actions = list(map(json.loads, lines))
    return [action[kind] for action in actions if kind in action]


@pytest.mark.parametrize("rule", [BY_OFFSET, BY_ID], ids=["by offset", "by id"])
def test_rows_that_a_later_version_removed_or_wrote_anew_count_no_more(
    store: Path, table: Path, rows: pa.Table, rule: AuditRule
) -> None:
    assert kinds(store, table, rule) == []
    delta = DeltaTable(table)
    delta.delete("queueOffset = 3")
    assert kinds(store, table, rule) == ["missing"] * 6
    lost = rows.filter(pc.equal(rows["queueOffset"], 3))
    write_deltalake(table, lost, mode="append")
    assert kinds(store, table, rule) == []
    assert DeltaTable(table).optimize.compact()["numFilesRemoved"] > 0
    assert kinds(store, table, rule) == []
    write_deltalake(table, rows.slice(0, 1), mode="append")
    assert kinds(store, table, rule) == ["doubled"]
    write_deltalake(table, rows, mode="overwrite")
    assert kinds(store, table, rule) == []
    write_deltalake(table, rows.slice(0, 0), mode="overwrite")
    assert kinds(store, table, rule) == ["missing"] * COUNT


def test_a_checkpoint_has_what_the_versions_before_it_say(
    store: Path, table: Path, rows: pa.Table
) -> None:
    DeltaTable(table).delete("queueOffset = 3")
    DeltaTable(table).create_checkpoint()
    for path in log_of(table)[:-1]:
        path.rename(table / path.name)  # As a cleanup of the log removes them.
    assert kinds(store, table) == ["missing"] * 6
    write_deltalake(table, rows.filter(pc.equal(rows["queueOffset"], 3)), mode="append")
    assert kinds(store, table) == []
    (checkpoint,) = (table / "_delta_log").glob("*.parquet")
    parts = [checkpoint.with_suffix(f".{n:010d}.{2:010d}.parquet") for n in (1, 2)]
    shutil.copy(checkpoint, parts[0])  # The first of two parts, and the second is not there yet.
    assert kinds(store, table) == []
    checkpoint.unlink()
    with pytest.raises(InvalidOptionError, match="lacks versions between others"):
        audited(store, table, kind="delta")
    checkpoint.write_bytes(b"PAR1")
    with pytest.raises(CorruptTableError, match=r"checkpoint\.parquet.*cannot be read"):
        audited(store, table, kind="delta")


def test_columns_that_the_table_is_partitioned_by_are_not_in_its_files(
    store: Path, tmp_path: Path, rows: pa.Table
) -> None:
    by = ["topic", "queueId", "brokerName", "flag"]
    table = tmp_path / "lake"
    write_deltalake(table, rows, partition_by=by)
    assert kinds(store, table) == []
    assert kinds(store, table, BY_ID) == []
    other = replaced(rows, "queueId", pa.array([5] * COUNT, pa.int32()))
    write_deltalake(table, other.slice(0, 1), mode="append")
    assert kinds(store, table) == ["extra"]
    nameless = replaced(rows, "topic", pa.array([None] * COUNT, pa.string()))
    write_deltalake(table, nameless.slice(0, 1), mode="append")
    with pytest.raises(InvalidOptionError, match="column topic has a null"):
        audited(store, table, kind="delta")
    by_time = tmp_path / "by time"
    write_deltalake(by_time, rows, partition_by=["storeTimestamp"])
    with pytest.raises(InvalidOptionError, match="is partitioned by storeTimestamp, of type time"):
        audited(store, by_time, kind="delta")


def test_a_deletion_vector_is_refused_until_its_file_is_written_anew(
    store: Path, table: Path
) -> None:
    first, second = added(table)[:2]
    vector = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1, "cardinality": 1}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["deletionVectors"]}
    commit(
        table,
        {"protocol": {**protocol, "readerFeatures": ["deletionVectors"]}},
        {"remove": {"path": first["path"], "dataChange": True}},
        {"add": {**first, "deletionVector": vector}},
    )
    with pytest.raises(InvalidOptionError, match=r"deletion vector.*REORG TABLE"):
        audited(store, table, kind="delta")
    # The same vector, as a checkpoint writes it, with another order.
    gone = {"offset": 1, "pathOrInlineDv": "ab", "storageType": "u"}
    commit(table, {"remove": {"path": first["path"], "deletionVector": gone}}, {"add": first})
    assert [one.kind for one in audited(store, table, kind="delta")] == []
    commit(table, {"remove": {"path": second["path"]}})
    assert "missing" in [one.kind for one in audited(store, table, kind="delta")]


def protocol(*features: Any, version: Any = 3) -> dict[str, Any]:
    return {"protocol": {"minReaderVersion": version, "readerFeatures": list(features)}}


def table_of(table: Path, **more: Any) -> dict[str, Any]:
    return {"metaData": {**added(table, "metaData")[0], **more}}


REFUSED: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "feature": (lambda _: protocol("fromTomorrow"), r"knows fromTomorrow: the job audit\.py"),
    "no feature": (lambda _: protocol({"a": 1}), "needs a reader that knows"),
    "version": (lambda _: protocol(version=9), "needs a reader of version 9"),
    "names": (
        lambda t: table_of(t, configuration={"delta.columnMapping.mode": "name"}),
        "has other names of columns in files",
    ),
    "no schema": (lambda t: table_of(t, schemaString="{"), "has no schema of the table"),
    "deep schema": (lambda t: table_of(t, schemaString="[" * 10**5), "has no schema of the table"),
    "no column": (lambda t: table_of(t, partitionColumns=["msgId", 7, "x"]), "no schema|partition"),
    "no list": (lambda t: table_of(t, partitionColumns=7), "has no schema of the table"),
    "no map": (lambda t: table_of(t, configuration=[1]), "has no schema of the table"),
    "sidecar": (lambda _: {"sidecar": {"path": "file:///etc/passwd"}}, "v2Checkpoint"),
    "outside": (
        lambda _: {"add": {"path": "../x.parquet"}},
        r"names \.\./x\.parquet, which is not",
    ),
    "encoded": (lambda _: {"add": {"path": "%2e%2e/x.parquet"}}, "which is not in"),
    "absolute": (lambda _: {"add": {"path": "file:///etc/passwd"}}, "which is not in"),
    "bucket": (lambda _: {"add": {"path": "s3://b/x.parquet"}}, "which is not in"),
    "null byte": (lambda _: {"add": {"path": "a%00.parquet"}}, "which is not in"),
    "long": (lambda _: {"add": {"path": "a" * 5000}}, "which is not in|is not there"),
    "number": (lambda _: {"add": {"path": 7}}, "which is not in"),
    "absent": (lambda t: {"add": {**added(t)[0], "path": "x.parquet"}}, "is not there"),
    "no values": (lambda t: {"add": {**added(t)[0], "partitionValues": 7}}, "a file of partition"),
    "no topic": (lambda t: {"add": {**added(t)[0], "partitionValues": {}}}, "a file of partition"),
    "no action": (lambda _: {"add": [1]}, "has an action add that is none"),
    "no vector": (lambda t: {"add": {**added(t)[0], "deletionVector": 7}}, "a deletion vector"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_log_that_this_reader_cannot_be_right_about_is_refused(
    store: Path, table: Path, name: str
) -> None:
    made, told = REFUSED[name]
    commit(table, made(table))
    with pytest.raises(StoreError, match=told):
        audited(store, table, kind="delta")


def test_what_is_no_table_of_delta_or_leads_out_of_it_is_refused(
    store: Path, table: Path, tmp_path: Path
) -> None:
    log = log_of(table)
    for text, told in (("[" * 10**6, "has a line that is no action"), ("\n", "no action")):
        (table / "_delta_log" / f"{len(log):020d}.json").write_text(text)
        with pytest.raises(InvalidOptionError, match=told):
            audited(store, table, kind="delta")
    (table / "_delta_log" / f"{len(log):020d}.json").unlink()
    for name in ("checkpoint.0d3-a.json", "checkpoint.0d3-a.parquet"):
        path = table / "_delta_log" / f"{1:020d}.{name}"
        path.touch()
        with pytest.raises(InvalidOptionError, match="v2Checkpoint"):
            audited(store, table, kind="delta")
        path.unlink()
    data = side_at(table, "delta").files[0].path
    data.rename(tmp_path / "x.parquet")
    data.symlink_to(tmp_path / "x.parquet")
    with pytest.raises(StoreError, match="is a symbolic link"):
        audited(store, table, kind="delta")
    log[0].rename(tmp_path / "0.json")
    log[0].symlink_to(tmp_path / "0.json")
    with pytest.raises(StoreError, match="is a symbolic link"):
        audited(store, table, kind="delta")
    (table / "_delta_log").rename(tmp_path / "log")
    (table / "_delta_log").symlink_to(tmp_path / "log")
    with pytest.raises(StoreError, match="has no directory _delta_log"):
        audited(store, table, kind="delta")
    with pytest.raises(InvalidOptionError, match="is a table of Delta: write delta:"):
        audited(store, table, kind="iceberg")
    (tmp_path / "empty" / "_delta_log").mkdir(parents=True)
    with pytest.raises(InvalidOptionError, match="has no version"):
        audited(store, tmp_path / "empty", kind="delta")
