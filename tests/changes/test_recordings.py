"""Recorded messages of real producers give the rows of their database, but for known losses.

A table is made of changes in a plain dictionary; each value is compared with what the database's
client printed at the end. What a producer loses before a message is sent is counted exactly.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import pytest

from changes.recordings import (
    Recorded,
    Table,
    changes_of,
    create_tables,
    names_of,
    printed,
    recorded,
    truth,
    wanted,
)
from mqstore.changes.change import DDL, DELETE, INSERT, OTHER, TRUNCATE, UPDATE, Change

Row = dict[str, str | None]
ALTERED = {"remark": 84, "channel": 32}
"""Values of orders that no message has: of a column renamed, and of one added with a default."""
ZERO_DATES = {"da": 6, "ts0": 2, "dt0": 3}
"""Zero dates of kinds, for which Debezium sends null or 1970."""
CHARSETS = {"v_latin": 7, "v_gbk": 4}
"""Texts of kinds in GBK and Latin-1, which Canal destroys."""


class Difference(NamedTuple):
    missing: int
    surplus: int
    columns: dict[str, int]


NONE = Difference(0, 0, {})


def tables_of(changes: Iterable[Change], *, by_sequence: bool) -> dict[str, dict[tuple, Row]]:
    """The rows of each table by their keys: the last change of a key counts."""
    last: dict[str, dict[tuple, tuple]] = {}
    emptied: dict[str, tuple] = {}
    for number, change in enumerate(changes):
        assert change.op is not None, change.reason
        order = (change.sequence if by_sequence else (number,), change.op != DELETE)
        if change.op == TRUNCATE:
            emptied[change.table] = max(order, emptied.get(change.table, order))
        if change.op not in {INSERT, UPDATE, DELETE} or not change.keys:
            continue
        image = change.before if change.op == DELETE else change.row
        key = tuple(image[name] for name in change.keys)
        rows = last.setdefault(change.table, {})
        if key not in rows or order >= rows[key][0]:
            rows[key] = (order, change.row)
    return {
        table: {
            key: row
            for key, (order, row) in rows.items()
            if row is not None and not order < emptied.get(table, order)
        }
        for table, rows in last.items()
    }


def differences(
    tables: dict[str, dict[tuple, Row]], database: dict[str, Table]
) -> dict[str, Difference]:
    """By table with a key: rows that lack, rows that are too many, values that differ."""
    found = {}
    for name, table in database.items():
        if not table.keys:
            continue
        want = {tuple(row[key] for key in table.keys): row for row in table.rows}
        rows = tables.get(name, {})
        columns = Counter(
            column
            for key in want.keys() & rows.keys()
            for column, kind in table.types.items()
            if printed(rows[key].get(column), kind) != wanted(want[key][column], kind)
        )
        missing, surplus = len(want.keys() - rows.keys()), len(rows.keys() - want.keys())
        found[name] = Difference(missing, surplus, dict(columns))
    return found


@pytest.mark.parametrize(
    ("prefix", "name"),
    [("dbz_plain", "debezium"), ("dbz_flatten", "debeziumFlat"), ("dbz_plain", "auto")],
)
def test_debezium_without_schemas_gives_the_database_by_its_create_tables(
    prefix: str, name: str
) -> None:
    database = truth("mariadb")
    messages = recorded("mariadb", *names_of("mariadb", f"{prefix}_shop"))
    changes = list(changes_of(messages, name, create_tables(database)))
    assert [change.problems for change in changes if change.problems] == []
    assert differences(tables_of(changes, by_sequence=True), database) == {
        "CaseTable": NONE,
        "items": Difference(0, 40, {}),  # Removed by TRUNCATE, which no message tells.
        "kinds": Difference(0, 0, ZERO_DATES),
        "late": NONE,
        "orders": Difference(0, 0, ALTERED),
    }


def test_debezium_with_schemas_gives_the_database_by_the_types_of_its_messages() -> None:
    database = truth("mariadb")
    messages = recorded("mariadb", *names_of("mariadb", "dbz_schema_shop"))
    # time.precision.mode=connect: TIME beyond a day is null, microseconds are cut.
    cut = {"dt6": 10, "ti0": 7, "ti6": 8}
    unsigned = {"b1": 3}  # Above 2**63 - 1: negative.
    of_bits = {"bit1": 4}  # BIT(1) is a boolean in the schema, and so are its texts.
    found = differences(tables_of(changes_of(messages, "debezium"), by_sequence=True), database)
    assert found["kinds"] == Difference(0, 0, {**ZERO_DATES, **cut, **unsigned, **of_bits})
    assert found["orders"] == Difference(0, 0, {**ALTERED, "at": 143})
    assert found["items"] == Difference(0, 40, {})
    assert (found["CaseTable"], found["late"]) == (NONE, NONE)
    with_types = changes_of(messages, "debezium", create_tables(database))
    found = differences(tables_of(with_types, by_sequence=True), database)
    assert found["kinds"] == Difference(0, 0, {**ZERO_DATES, **cut})


@pytest.mark.parametrize("name", ["canalProtobuf", "auto"])
def test_canal_protobuf_gives_the_database_by_its_sequence_and_truncate_too(name: str) -> None:
    database = truth("mariadb")
    changes = list(changes_of(recorded("mariadb", "canal_protobuf"), name))
    assert differences(tables_of(changes, by_sequence=True), database) == {
        "CaseTable": NONE,
        "items": NONE,
        "kinds": Difference(0, 0, CHARSETS),
        "late": NONE,
        "orders": Difference(0, 0, ALTERED),
    }
    doubtful = {problem.column for change in changes for problem in change.problems}
    assert doubtful == {"v_latin", "v_gbk"}


def test_canal_flat_gives_the_database_where_each_table_has_one_queue() -> None:
    database = truth("mariadb-by-table")
    changes = list(changes_of(recorded("mariadb-by-table", "canal_flat"), "canal"))
    assert {change.sequence for change in changes} == {None}
    assert differences(tables_of(changes, by_sequence=False), database) == {
        "CaseTable": NONE,
        "items": NONE,
        "kinds": Difference(0, 0, {"v_latin": 9, "v_gbk": 4}),
        "late": NONE,
        "orders": Difference(0, 0, {"remark": 78, "channel": 25}),
    }


def test_canal_flat_cut_by_key_over_queues_has_no_order_that_is_right() -> None:
    database = truth("mariadb")
    changes = changes_of(recorded("mariadb", "canal_flat"), "auto")
    found = differences(tables_of(changes, by_sequence=False), database)
    assert (found["orders"].missing, found["orders"].surplus) == (5, 2)
    assert (found["items"].missing, found["items"].surplus) == (0, 31)
    assert (found["CaseTable"], found["late"]) == (NONE, NONE)


def test_a_change_of_canal_flat_and_of_its_protobuf_has_the_same_row() -> None:
    def rows(name: str, file: str) -> Counter[str]:
        return Counter(
            repr((c.op, c.database, c.table, c.keys, c.row, c.moved_to, c.moved_from, c.sql))
            for c in changes_of(recorded("mariadb", file), name)
        )

    # The types of ENUM and SET, binary, times: all 31 types of the table kinds.
    assert rows("canal", "canal_flat") == rows("canalProtobuf", "canal_protobuf")


def test_a_changed_key_is_a_delete_and_an_upsert_that_name_each_other() -> None:
    moves: dict[str, Counter[tuple]] = {}
    for name, files in {
        "canal": ["canal_flat"],
        "canalProtobuf": ["canal_protobuf"],
        "debezium": names_of("mariadb", "dbz_plain_shop"),
        "debeziumFlat": names_of("mariadb", "dbz_flatten_shop"),
    }.items():
        changes = list(changes_of(recorded("mariadb", *files), name))
        gone = [c for c in changes if c.moved_to is not None]
        come = [c for c in changes if c.moved_from is not None]
        assert {c.op for c in gone} == {DELETE}
        assert not any(c.op == DELETE for c in come)
        for change in gone:
            assert change.before is not None
            assert change.keys
        moves[name] = Counter(
            (c.table, tuple(c.before[k] for k in c.keys), tuple(c.moved_to.values())) for c in gone
        )
        back = Counter(
            (c.table, tuple(c.moved_from.values()), tuple(c.row[k] for k in c.keys)) for c in come
        )
        assert moves[name] == back
    assert moves["canal"].keys() == moves["canalProtobuf"].keys()
    assert moves["debezium"].keys() == moves["debeziumFlat"].keys()
    assert len(moves["canalProtobuf"]) > 20
    # Debezium began with a snapshot, which has the keys as they were after the first moves.
    assert len(moves["debezium"]) > 20
    assert moves["debezium"].keys() < moves["canal"].keys()


def test_schema_changes_and_transactions_of_debezium_are_no_changes_of_rows() -> None:
    ddl = list(changes_of(recorded("mariadb", "dbz_plain", "dbz_schema", "dbz_flatten"), "auto"))
    assert {change.op for change in ddl} == {DDL}
    assert all(change.sql and change.sequence for change in ddl)
    assert {change.database for change in ddl if change.table} == {"shop"}
    limits = list(changes_of(recorded("mariadb", "dbz_plain_transaction"), "debezium"))
    assert {(change.op, change.transaction is None) for change in limits} == {(OTHER, False)}


def one_by_one(messages: list[Recorded], name: str = "debezium") -> list[Change]:
    return list(changes_of(messages, name))


def test_postgresql_names_unavailable_columns_and_a_before_image_that_is_a_key_alone() -> None:
    changes = sorted(
        one_by_one(recorded("postgresql", "pg_shop_docs")),
        key=lambda c: (c.sequence.file or 0, c.sequence.position, c.op != DELETE),
    )
    assert [change.op for change in changes] == [
        INSERT, UPDATE, DELETE, INSERT, UPDATE, DELETE, INSERT, INSERT,
    ]  # fmt: skip
    first, toasted, gone, come, short = changes[:5]
    assert first.snapshot
    assert first.sequence.file is None
    assert (toasted.unavailable, "doc" in toasted.row) == (("doc",), False)
    assert (gone.before, gone.moved_to) == ({"id": "1"}, {"id": "2"})
    assert (come.moved_from, come.unavailable) == ({"id": "1"}, ("doc",))
    assert (short.row["doc"], short.unavailable, short.row["a"]) == ("short", (), "[1, 2, null]")
    assert first.row["free"] == "123.456789"  # A NUMERIC that has its own scale.
    assert {(change.database, change.table) for change in changes} == {("shop", "docs")}
    whole = one_by_one(recorded("postgresql", "pg_shop_full_"))
    assert [c.before and c.before["q"] for c in whole] == [None, "1", "2"]
    assert [c.keys for c in one_by_one(recorded("postgresql", "pg_shop_nokey"))] == [()]
