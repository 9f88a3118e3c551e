"""Audits of Iceberg tables without Spark: the files of the last snapshot alone count."""

import gzip
import json
import os
import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from audit.test_audit import BY_ID, BY_OFFSET
from audit.test_audit_of_delta import store_in
from audit.test_audit_of_tables import COUNT, audited, rows_of, side_at
from mqstore.audit import avro
from mqstore.audit.avro import records
from mqstore.audit.errors import CorruptTableError
from mqstore.audit.rows import AuditRule
from mqstore.errors import InvalidOptionError, StoreError
from support import soak

MUTANTS = soak.size("mutated_manifests", check=60, test=600, whole=50_000)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return store_in(tmp_path)


@pytest.fixture
def rows(store: Path) -> pa.Table:
    return rows_of(store)


@pytest.fixture
def iceberg(tmp_path: Path, rows: pa.Table) -> Iterator[Table]:
    """By topic, in two snapshots."""
    catalog = InMemoryCatalog("lakes", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    where = f"file://{tmp_path}/my lake/50%25"
    table = catalog.create_table("shop.messages", rows.schema, location=where)
    with table.update_spec() as spec:
        spec.add_field("topic", IdentityTransform(), "topic")
    table.append(rows.slice(0, 25))
    table.append(rows.slice(25))
    yield table
    catalog.close()


def metadata_of(table: Table) -> Path:
    return Path(table.metadata_location.removeprefix("file://"))


def kinds(store: Path, table: Table, rule: AuditRule = BY_OFFSET) -> list[str]:
    where = metadata_of(table)
    named = [task.file.file_path for task in table.scan().plan_files()]
    files = side_at(where, "iceberg").files
    assert sorted(f"file://{file.path}" for file in files) == sorted(named)
    return [one.kind for one in audited(store, where, rule, "iceberg")]


@pytest.mark.parametrize("rule", [BY_OFFSET, BY_ID], ids=["by offset", "by id"])
def test_rows_that_a_later_snapshot_removed_or_wrote_anew_count_no_more(
    store: Path,
    iceberg: Table,
    rows: pa.Table,
    rule: AuditRule,
) -> None:
    assert kinds(store, iceberg, rule) == []
    iceberg.delete("queueOffset == 3")
    assert kinds(store, iceberg, rule) == ["missing"] * 6
    iceberg.append(rows.filter(pc.equal(rows["queueOffset"], 3)))
    assert kinds(store, iceberg, rule) == []
    iceberg.append(rows.slice(0, 1))
    assert kinds(store, iceberg, rule) == ["doubled"]
    iceberg.overwrite(rows)
    assert kinds(store, iceberg, rule) == []
    iceberg.delete("queueOffset >= 0")
    assert kinds(store, iceberg, rule) == ["missing"] * COUNT


def test_a_column_is_known_by_its_number_whatever_name_a_file_has_for_it(
    store: Path,
    iceberg: Table,
    rows: pa.Table,
) -> None:
    with iceberg.update_schema() as schema:
        schema.rename_column("body", "payload")
        schema.rename_column("keys", "body")
    with pytest.raises(InvalidOptionError, match="column body is string"):
        audited(store, metadata_of(iceberg), kind="iceberg")
    with iceberg.update_schema() as schema:
        schema.rename_column("body", "keys")
        schema.rename_column("payload", "body")
    assert kinds(store, iceberg) == []
    with iceberg.update_schema() as schema:
        schema.delete_column("brokerName")
        schema.rename_column("flag", "brokerName")
    with iceberg.update_schema() as schema:
        schema.rename_column("brokerName", "flag")
    with iceberg.update_schema() as schema:
        schema.add_column("brokerName", StringType())
    # The new column has another number, and files have no value of it.
    assert kinds(store, iceberg) == []
    assert side_at(metadata_of(iceberg), "iceberg").names == ("",)
    with iceberg.update_schema() as schema:
        schema.delete_column("flag")
    with pytest.raises(InvalidOptionError, match="column flag is missing"):
        audited(store, metadata_of(iceberg), kind="iceberg")


def hadoop(where: Path, *numbers: int, hint: str | None = None) -> Path:
    """The table of a catalog as one of a Hadoop catalog has its files of metadata."""
    folder = where.parent
    for number, path in zip(numbers, sorted(folder.glob("0*.json"))[-len(numbers) :], strict=True):
        (folder / f"v{number}.metadata.json").write_bytes(path.read_bytes())
    if hint is not None:
        (folder / "version-hint.text").write_text(hint)
    return folder.parent


def test_of_a_table_at_a_path_the_last_metadata_is_found_as_spark_finds_it(
    store: Path,
    iceberg: Table,
) -> None:
    iceberg.delete("queueOffset == 3")
    where = metadata_of(iceberg)
    folder, name = where.parents[1], where.name
    with pytest.raises(InvalidOptionError, match=f"write iceberg:{folder}/metadata/{name}"):
        audited(store, folder, kind="iceberg")
    root = hadoop(where, 8, 9, 10)
    lost = ["missing"] * 6

    def found() -> list[str]:
        return [one.kind for one in audited(store, root, kind="iceberg")]

    assert found() == lost
    for hint in ("9", "10\n", "x", "99", ""):  # A hint may be behind, or be none.
        hadoop(where, 10, hint=hint)
        assert found() == lost
    last = where.parent / "v10.metadata.json"
    packed = gzip.compress(last.read_bytes())
    last.unlink()
    assert found() == []
    (where.parent / "v10.gz.metadata.json").write_bytes(packed)
    assert found() == lost
    (where.parent / "v10.gz.metadata.json").write_bytes(packed[:-20])
    with pytest.raises(CorruptTableError, match="cannot be read"):
        found()


def test_a_table_that_was_moved_or_has_links_is_refused(
    store: Path,
    iceberg: Table,
    tmp_path: Path,
) -> None:
    where = metadata_of(iceberg)
    root = where.parents[1]
    with pytest.raises(InvalidOptionError, match="is a table of Iceberg: write iceberg:"):
        audited(store, root)
    data = side_at(where, "iceberg").files[0].path
    data.rename(tmp_path / "x.parquet")
    with pytest.raises(InvalidOptionError, match=r"is not there, and .*avro names it"):
        audited(store, where, kind="iceberg")
    data.symlink_to(tmp_path / "x.parquet")
    with pytest.raises(StoreError, match="is a symbolic link"):
        audited(store, where, kind="iceberg")
    root.rename(tmp_path / "moved")
    moved = tmp_path / "moved" / "metadata"
    with pytest.raises(InvalidOptionError, match="is read only where it was written"):
        audited(store, moved / where.name, kind="iceberg")
    moved.rename(tmp_path / "other")
    moved.symlink_to(tmp_path / "other")
    with pytest.raises(InvalidOptionError, match="has no directory metadata"):
        audited(store, moved / where.name, kind="iceberg")


# A table by hand: what no writer here writes, and what is made to harm.


def number(value: int) -> bytes:
    left, found = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def text(value: str) -> bytes:
    data = value.encode()
    return number(len(data)) + data


def record(name: str, *fields: tuple[int, Any]) -> dict[str, Any]:
    named = [{"name": f"f{n}", "type": kind, "field-id": n} for n, kind in fields]
    return {"type": "record", "name": name, "fields": named}


def container(schema: Any, *rows: bytes, codec: str = "null", count: int | None = None) -> bytes:
    """A file of Avro, with a block for all rows."""
    sync, block = b"0123456789abcdef", b"".join(rows)
    if codec == "deflate":
        block = zlib.compress(block, wbits=-15)
    elif codec == "zstandard":
        block = pa.Codec("zstd").compress(block).to_pybytes()
    facts = text("avro.schema") + text(json.dumps(schema)) + text("avro.codec") + text(codec)
    rows_in = len(rows) if count is None else count
    framed = number(rows_in) + number(len(block)) + block + sync
    return b"Obj\x01" + number(2) + facts + number(0) + sync + framed


LISTED = record("list", (500, "string"), (502, "int"), (517, "int"))
OF_DATA = record(
    "data",
    (100, "string"),
    (101, "string"),
    (102, record("partition", (1000, ["null", "string"]), (1001, "long"))),
)
ENTRY = record("entry", (0, "int"), (2, OF_DATA))


class ByHand:
    """A table of one file, as version 1 of the format may have it."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.root = folder / "by hand"
        self.metadata = self.root / "metadata"
        self.metadata.mkdir(parents=True)
        self.kept = rows_of(store)
        rows = self.kept.filter(pc.equal(self.kept["topic"], "B"))
        rows = rows.filter(pc.equal(rows["queueId"], 1))
        names = rows.schema.names
        self.ids = {name: 50 + n for n, name in enumerate(names)}
        self.data = self.root / "a%20b?#.parquet"
        self.rows = rows
        self.write(rows.drop_columns(["topic", "queueId"]))
        self.facts: dict[str, Any] = {
            "format-version": 1,
            "current-snapshot-id": 5,
            "snapshots": [{"snapshot-id": 5, "manifest-list": f"file:{self.metadata}/list.avro"}],
            "schema": {"fields": [self.field(name) for name in names]},
            "partition-spec": [
                {"source-id": self.ids["topic"], "transform": "identity", "name": "topic"},
                {"source-id": self.ids["queueId"], "transform": "identity", "name": "queueId"},
                {"source-id": self.ids["storeTimestamp"], "transform": "day", "name": "day"},
            ],
        }
        self.entries = [self.entry()]
        self.manifests = [(f"{self.metadata}/m.avro", 0)]
        self.save()

    def field(self, name: str) -> dict[str, Any]:
        kinds = {"topic": "string", "queueId": "int"}
        return {"id": self.ids[name], "name": name, "type": kinds.get(name, "any")}

    def write(self, rows: pa.Table, ids: dict[str, int] | None = None) -> None:
        known = self.ids if ids is None else ids
        fields = [
            field.with_metadata({"PARQUET:field_id": str(known[field.name])})
            if field.name in known
            else field
            for field in rows.schema
        ]
        pq.write_table(rows.cast(pa.schema(fields)), self.data)

    def entry(self, path: str = "", kind: str = "PARQUET", status: int = 1) -> bytes:
        partition = number(1) + text("B") + number(1)
        return number(status) + text(path or str(self.data)) + text(kind) + partition

    def save(self, codec: str = "null") -> None:
        (self.metadata / "v1.metadata.json").write_text(json.dumps(self.facts))
        listed = [text(path) + number(0) + number(content) for path, content in self.manifests]
        (self.metadata / "list.avro").write_bytes(container(LISTED, *listed, codec=codec))
        (self.metadata / "m.avro").write_bytes(container(ENTRY, *self.entries, codec=codec))

    def side(self) -> Any:
        return side_at(self.root, "iceberg")

    def read(self) -> int:
        return sum(len(found.queue) for _, found in self.side().pieces(BY_OFFSET))


@pytest.fixture
def by_hand(tmp_path: Path, store: Path) -> ByHand:
    return ByHand(tmp_path, store)


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_values_of_a_partition_are_those_of_its_rows_and_removed_entries_do_not_count(
    by_hand: ByHand, codec: str
) -> None:
    by_hand.entries += [by_hand.entry("/gone", status=2), by_hand.entry(f"file://{by_hand.data}")]
    by_hand.save(codec)
    assert by_hand.read() == 2 * len(by_hand.rows)
    (queues,) = {tuple(found.queues) for _, found in by_hand.side().pieces(BY_OFFSET)}
    assert queues == (("B", 1),)
    by_hand.facts["current-snapshot-id"] = -1
    by_hand.save()
    assert by_hand.side().files == ()


def without(by_hand: ByHand, *names: str) -> None:
    for name in names:
        del by_hand.facts[name]


def write_with(by_hand: ByHand, **ids: int) -> None:
    by_hand.write(by_hand.rows, {**by_hand.ids, **ids})


REFUSED: dict[str, tuple[Callable[[ByHand], object], str]] = {
    "version": (lambda t: t.facts.update({"format-version": 4}), "is of version 4 of the format"),
    "no version": (lambda t: without(t, "format-version"), "is no metadata of a table"),
    "no schema": (lambda t: t.facts.update(schema=[]), "is no metadata of a table"),
    "no snapshot": (lambda t: t.facts.update(snapshots=[]), "is no metadata of a table"),
    "odd snapshots": (lambda t: t.facts.update(snapshots=7), "is no metadata of a table"),
    "odd spec": (lambda t: t.facts.update({"partition-spec": [[]]}), "is no metadata of a table"),
    "odd number": (lambda t: t.facts["schema"]["fields"][0].update(id=1e999), "is no metadata of"),
    "no list": (lambda t: t.facts["snapshots"][0].pop("manifest-list"), "without a list of manif"),
    "default": (
        lambda t: t.facts["schema"]["fields"].append(
            {"id": 99, "name": "flag", "type": "int", "initial-default": 7}
        ),
        "has a value for rows of files without the column flag",
    ),
    "list outside": (
        lambda t: t.facts["snapshots"][0].update({"manifest-list": "/etc/passwd"}),
        "names /etc/passwd, which is not in",
    ),
    "list remote": (
        lambda t: t.facts["snapshots"][0].update({"manifest-list": "s3://b/x.avro"}),
        "which is not in",
    ),
    "host": (
        lambda t: t.facts["snapshots"][0].update({"manifest-list": f"file://h{t.root}/l.avro"}),
        "which is not in",
    ),
    "deletes": (lambda t: t.manifests.append((f"{t.root}/metadata/d.avro", 1)), "a delete file"),
    "twice": (lambda t: t.manifests.append(t.manifests[0]), "names m.avro twice"),
    "outside": (lambda t: t.entries.append(t.entry(f"{t.root}/../x")), "which is not in"),
    "relative": (lambda t: t.entries.append(t.entry("x.parquet")), "which is not in"),
    "null byte": (lambda t: t.entries.append(t.entry(f"{t.root}/a\0")), "which is not in"),
    "ORC": (lambda t: t.entries.append(t.entry(kind="ORC")), "is ORC, and files of Parquet"),
    "no numbers": (lambda t: t.write(t.rows, {}), "has no numbers of columns"),
    "number twice": (lambda t: write_with(t, tags=t.ids["body"]), "or one twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_this_reader_cannot_be_right_about_is_refused(
    by_hand: ByHand, name: str
) -> None:
    change, told = REFUSED[name]
    (by_hand.metadata / "d.avro").write_bytes(container(ENTRY, by_hand.entry()))
    change(by_hand)
    by_hand.save()
    with pytest.raises(StoreError, match=told):
        by_hand.side()


WIDE = record("wide", *((n, "null") for n in range(1000)))
HARMFUL: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is no container file of Avro"),
    "cut": (container(ENTRY)[:30], "cannot be read"),
    "no schema": (b"Obj\x01" + number(0), "cannot be read"),
    "deep": (container([[]] * 3).replace(b"[[], [], []]", b"[" * 12), "cannot be read"),
    "nested": (container(json.loads("[" * 60 + '"int"' + "]" * 60)), "is nested too deep"),
    "of no bytes": (container(WIDE, count=10**12), "has records of no bytes"),
    "list of no bytes": (
        container(record("r", (0, {"type": "array", "items": WIDE})), number(10**12)),
        "list of values of no bytes",
    ),
    "long list": (
        container(record("r", (0, {"type": "array", "items": "int"})), number(10**12)),
        "cannot be read",
    ),
    "more than there are": (container(ENTRY, count=10**12), "cannot be read"),
    "fewer than there are": (
        container(record("r", (0, "int"), (2, "int")), b"\0\0\0", count=0),
        "other records",
    ),
    "no such type": (container("shape"), "cannot be read"),
    "itself": (container(record("r", (0, ["null", "r"])), b"\2" * 99), "cannot be read"),
    "no branch": (container(["null", "int"], b"\x10"), "cannot be read"),
    "negative branch": (container(["null", "int"], b"\1"), "has a value of no type"),
    "long number": (container("long", b"\xff" * 40), "a number that is too long"),
    "negative length": (container("bytes", number(-5)), "ends within a value"),
    "codec": (container("long", codec="snappy"), "is packed by b'snappy'"),
    "no text": (container("string", number(1) + b"\xff"), "cannot be read"),
    "other mark": (container("long", b"\0")[:-1] + b"x", "without the mark of the file"),
    "no entry": (container(record("r", (0, "int")), b"\0"), "has an entry without a file"),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_manifest_made_to_harm_is_refused(by_hand: ByHand, name: str) -> None:
    data, told = HARMFUL[name]
    (by_hand.metadata / "m.avro").write_bytes(data)
    with pytest.raises((CorruptTableError, InvalidOptionError), match=told):
        by_hand.side()


def test_a_block_that_unpacks_to_too_much_is_refused(
    by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = by_hand.metadata / "m.avro"
    monkeypatch.setattr(avro, "_MOST_BLOCK_BYTES", 1000)
    for codec in ("null", "deflate", "zstandard"):
        path.write_bytes(container("string", text("x" * 2000), codec=codec))
        with pytest.raises(CorruptTableError, match="a block of more than 1,000 bytes"):
            by_hand.side()
    path.write_bytes(container("string", text("x" * 500)))
    monkeypatch.setattr(avro, "_MOST_UNPACKED_BYTES", 400)
    with pytest.raises(CorruptTableError, match="unpacks to more than 400 bytes"):
        by_hand.side()
    monkeypatch.setattr(avro, "_MOST_AVRO_BYTES", 300)
    with pytest.raises(CorruptTableError, match="has more than 300 bytes"):
        by_hand.side()
    monkeypatch.undo()
    monkeypatch.setattr(avro, "_MOST_AVRO_HEADER_BYTES", 20)
    with pytest.raises(CorruptTableError, match="cannot be read"):
        by_hand.side()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ({"type": "array", "items": {"type": "array", "items": "int"}}, b"\6\0\0\0\0"),
        ({"type": "map", "values": "int"}, b"\2\2a\4\0"),
    ],
)
def test_items_of_a_manifest_are_passed_over(tmp_path: Path, kind: object, data: bytes) -> None:
    path = tmp_path / "m.avro"
    path.write_bytes(container(record("r", (7, kind), (8, "int")), data + b"\2"))
    assert list(records(path)) == [{7: None, 8: 1}]


def test_metadata_made_to_harm_is_refused(by_hand: ByHand) -> None:
    path = by_hand.metadata / "v1.metadata.json"
    for data in (b"", b"[" * 10**6, b"[]", b"7", b"\xff", b"\x1f\x8b", gzip.compress(b"[" * 10**6)):
        path.write_bytes(data)
        with pytest.raises(
            (CorruptTableError, InvalidOptionError),
            match=r"cannot be read|is no metadata of a table",
        ):
            by_hand.side()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match="is no plain file"):
        by_hand.side()


@pytest.mark.soak
def test_no_damage_to_a_manifest_gives_another_error(by_hand: ByHand) -> None:
    rng = random.Random(soak.SEED)
    path = by_hand.metadata / "m.avro"
    whole = path.read_bytes()
    for _ in range(MUTANTS):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        with suppress(StoreError):
            by_hand.read()
    soak.tell(f"{MUTANTS} damaged manifests")


def test_a_file_that_a_writer_of_iceberg_made_is_read_as_it_reads_it(iceberg: Table) -> None:
    snapshot = iceberg.current_snapshot()
    assert snapshot is not None
    path = Path(snapshot.manifest_list.removeprefix("file://"))
    theirs = snapshot.manifests(iceberg.io)
    ours = list(records(path))
    assert [one[500] for one in ours] == [one.manifest_path for one in theirs]
    assert [one[502] for one in ours] == [one.partition_spec_id for one in theirs]
