"""Texts of changes as Arrow columns, by the types of messages and of CREATE TABLE."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from changes.recordings import changes_of, create_tables, names_of, recorded, truth
from mqstore.bodies.ddl import to_ddl
from mqstore.changes.change import INSERT, UPDATE, map_array
from mqstore.changes.column_types import arrow_fields, column_type
from mqstore.changes.table_schemas import table_schemas
from mqstore.changes.values import typed_rows
from mqstore.errors import InvalidOptionError


@pytest.mark.parametrize(
    ("text", "ddl"),
    [
        ("tinyint(3) unsigned", "SMALLINT"),
        ("int(10) unsigned zerofill", "BIGINT"),
        ("BIGINT UNSIGNED", "DECIMAL(20,0)"),
        ("decimal(18,4)", "DECIMAL(18,4)"),
        ("decimal(65,30)", "STRING"),
        ("decimal(10,0) unsigned", "DECIMAL(10,0)"),
        ("numeric", "STRING"),
        ("bit(10)", "BIGINT"),
        ("bit(64)", "DECIMAL(20,0)"),
        ("datetime(6)", "TIMESTAMP_NTZ"),
        ("timestamp(3)", "TIMESTAMP"),
        ("timestamp(6) without time zone", "TIMESTAMP_NTZ"),
        ("timestamp with time zone", "TIMESTAMP"),
        ("character varying(40)", "STRING"),
        ("double precision", "DOUBLE"),
        ("double(10,2) unsigned", "DOUBLE"),
        ("float", "FLOAT"),
        ("enum('a)','it''s','c,d')", "STRING"),
        ("year(4)", "INT"),
        ("time(6)", "STRING"),
        ("varbinary(16)", "BINARY"),
        ("bool", "BOOLEAN"),
        ("int64", "BIGINT"),
        ("io.debezium.time.MicroTimestamp", "TIMESTAMP_NTZ"),
        ("io.debezium.time.ZonedTimestamp", "TIMESTAMP"),
        ("org.apache.kafka.connect.data.Decimal(18,4)", "DECIMAL(18,4)"),
        ("org.apache.kafka.connect.data.Decimal(2)", "DECIMAL(38,2)"),
        ("io.debezium.data.Bits(10)", "BIGINT"),
        ("io.debezium.data.Json", "STRING"),
        ("", "STRING"),
    ],
)
def test_a_type_of_a_message_has_an_arrow_type(text: str, ddl: str) -> None:
    assert to_ddl(pa.struct([("a", column_type(text).arrow)])) == f"a {ddl}"


def test_labels_of_an_enum_are_read_with_their_quotes() -> None:
    assert column_type("enum('a)','it''s','c,d','\\'')").labels == ("a)", "it's", "c,d", "'")


def test_a_value_that_does_not_fit_is_null_and_named_and_its_neighbours_stay() -> None:
    table = table_schemas(
        "changesSchema", "i TINYINT, n DECIMAL(5,2), d DATE, t TIMESTAMP, l DATETIME(6), b BINARY"
    ).only
    assert table is not None
    rows = [
        {"i": "127", "n": "-1.5", "d": "2024-02-29", "t": "2024-01-01T00:00:00.5Z", "b": "AP8="},
        {"i": "128", "n": "1.005", "d": "2024-02-00", "t": "yesterday", "l": "17", "b": "?"},
        None,
        {"n": "1e999999999", "l": "0000-00-00 00:00:00", "i": None, "more": "x"},
        {"i": "true", "n": "999.99", "l": "2024-01-01 00:00:00.000001"},
    ]
    for given in (rows, map_array(rows)):
        structs, problems = typed_rows(given, table.arrow)
        structs.validate(full=True)
        assert structs.to_pylist() == [
            {
                "i": 127, "n": Decimal("-1.50"), "d": date(2024, 2, 29),
                "t": datetime(2024, 1, 1, 0, 0, 0, 500_000, UTC), "l": None, "b": b"\0\xff",
            },
            dict.fromkeys(("i", "n", "d", "t", "l", "b")),
            None,
            dict.fromkeys(("i", "n", "d", "t", "l", "b")),
            {
                "i": 1, "n": Decimal("999.99"), "d": None, "t": None, "b": None,
                "l": datetime(2024, 1, 1, 0, 0, 0, 1),
            },
        ]  # fmt: skip
        found = {number: {p.column for p in of} for number, of in problems.items()}
        assert found == {1: {"i", "n", "d", "t", "l", "b"}, 3: {"n", "l", "more"}}


def test_the_typed_rows_of_a_recording_have_the_values_of_their_texts() -> None:
    database = truth("mariadb")
    kinds = database["kinds"]
    for name, files, schemas in (
        ("canalProtobuf", ["canal_protobuf"], None),
        ("debezium", names_of("mariadb", "dbz_schema_shop_kinds"), None),
        ("debezium", names_of("mariadb", "dbz_plain_shop_kinds"), create_tables(database)),
    ):
        changes = [
            change
            for change in changes_of(recorded("mariadb", *files), name, schemas)
            if change.table == "kinds" and change.op in {INSERT, UPDATE}
        ]
        types = changes[0].types or kinds.types
        structs, problems = typed_rows([change.row for change in changes], arrow_fields(types))
        zero = {"da", "dt0", "ts0"} if name == "canalProtobuf" else set()
        assert {p.column for of in problems.values() for p in of} == zero
        ids = [int(change.row["id"]) for change in changes if change.row]
        assert structs.field("id").to_pylist() == ids
        numbers = [change.row["d1"] for change in changes if change.row]
        assert structs.field("d1").to_pylist() == [n if n is None else float(n) for n in numbers]


def test_create_tables_of_a_database_are_read_with_names_types_and_keys() -> None:
    text = """
    -- MariaDB dump
    /*!40101 SET character_set_client = utf8 */;
    CREATE TABLE IF NOT EXISTS `shop`.`or``ders` (
      `id` bigint(20) unsigned NOT NULL AUTO_INCREMENT COMMENT 'the key, (really)',
      `amount` decimal(18,4) DEFAULT 0.0000,
      `kind` enum('a','b)') CHARACTER SET gbk NOT NULL DEFAULT 'a',
      `sum` int(11) GENERATED ALWAYS AS (`id` + 1) STORED,
      `key` varchar(10) COLLATE utf8mb4_bin DEFAULT NULL,
      PRIMARY KEY (`id`,`kind`(10) DESC),
      UNIQUE KEY `k` (`key`),
      CONSTRAINT `c` FOREIGN KEY (`key`) REFERENCES `x` (`y`)
    ) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
    CREATE TABLE "public"."docs" (
        "id" integer PRIMARY KEY,
        at timestamp(6) without time zone DEFAULT now() NOT NULL,
        tags character varying(40)
    );
    """
    orders, docs = table_schemas("changesSchema", text).tables
    assert (orders.database, orders.table, orders.keys) == ("shop", "or`ders", ("id", "kind"))
    assert dict(orders.columns) == {
        "id": "bigint(20) unsigned",
        "amount": "decimal(18,4)",
        "kind": "enum('a','b)')",
        "sum": "int(11)",
        "key": "varchar(10)",
    }
    assert (docs.database, docs.table, docs.keys) == ("public", "docs", ("id",))
    assert docs.columns["at"] == "timestamp(6) without time zone"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id BIGNT", "unknown type: BIGNT"),
        ("id", "the column id has no type"),
        ("id BIGINT, id INT", "two columns have the name id"),
        ("CREATE TABLE t (id BIGINT, PRIMARY KEY (no))", "names no, which is no column"),
        ("CREATE TABLE t", "has no columns"),
        ("CREATE TABLE (id BIGINT)", "no name"),
        ("''", "missing before"),
        ("()", "missing before"),
        (";", "has no column"),
        ("/nowhere/at/all.sql", "cannot be read"),
        ("", "is empty"),
    ],
)
def test_a_schema_that_is_none_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"changesSchema") as error:
        table_schemas("changesSchema", text)
    assert reason in str(error.value)
