"""Messages as documents show them, of producers that were not run: Maxwell, variants of Canal."""

import json
from typing import Any

import pytest

from mqstore.changes.change import Change, ChangeMessage, ChangeSequence
from mqstore.changes.decode_context import LAST_ROW, DecodeContext
from mqstore.changes.formats import CHANGE_FORMATS, decoded
from mqstore.changes.table_schemas import table_schemas


def changes(body: dict[str, Any], name: str = "maxwell", schema: str = "") -> list[Change]:
    context = DecodeContext(table_schemas("changesSchema", schema) if schema else None)
    message = ChangeMessage(json.dumps(body).encode(), None, {})
    of_format = decoded(CHANGE_FORMATS[name], message, context)
    assert of_format == decoded(CHANGE_FORMATS["auto"], message, context)
    return of_format


def row(**more: Any) -> dict[str, Any]:
    return {
        "database": "shop", "table": "e", "type": "insert", "ts": 1_477_053_217, "xid": 23_396,
        "position": "master.000006:800911", "primary_key_columns": ["id"],
        "data": {"id": 1, "c": "x", "n": 1.5, "none": None}, **more,
    }  # fmt: skip


def test_rows_of_maxwell_have_a_sequence_that_ends_with_the_row_that_commits() -> None:
    [insert] = changes(row(xoffset=3))
    assert (insert.op, insert.database, insert.table, insert.keys) == (
        "insert", "shop", "e", ("id",),
    )  # fmt: skip
    assert insert.row == {"id": "1", "c": "x", "n": "1.5", "none": None}
    assert insert.sequence == ChangeSequence(0, 6, 800_911, 3)
    assert (insert.source_time_us, insert.transaction) == (1_477_053_217_000_000, "23396")
    [commit] = changes(row(commit=True))
    assert commit.sequence == ChangeSequence(0, 6, 800_911, LAST_ROW)
    [without] = changes(row(position=None))
    assert without.sequence is None


def test_updates_deletes_and_changed_keys_of_maxwell() -> None:
    [update] = changes(row(type="update", old={"c": None}))
    assert update.before == {"id": "1", "c": None, "n": "1.5", "none": None}
    [delete] = changes(row(type="delete"))
    assert (delete.row, (delete.before or {})["id"]) == (None, "1")
    gone, come = changes(row(type="update", old={"id": 9}))
    assert (gone.op, gone.moved_to, come.op, come.moved_from) == (
        "delete", {"id": "1"}, "update", {"id": "9"},
    )  # fmt: skip


def test_ddl_and_bootstraps_of_maxwell() -> None:
    sql = "ALTER TABLE e ADD c INT"
    [ddl] = changes(
        {"type": "table-alter", "database": "shop", "table": "e", "def": {}, "sql": sql,
         "ts": 1_477_053_126_000}
    )  # fmt: skip
    assert (ddl.op, ddl.sql, ddl.source_time_us) == ("ddl", sql, 1_477_053_126_000_000)
    [start] = changes({**row(type="bootstrap-start"), "data": {}})
    assert start.op == "other"
    [copied] = changes(row(type="bootstrap-insert", position=None))
    assert (copied.op, copied.snapshot) == ("insert", True)


def test_a_set_of_maxwell_has_its_labels_by_a_schema() -> None:
    body = row(data={"id": 1, "s": ["a", "b"]})
    [by_schema] = changes(body, schema="CREATE TABLE e (id INT, s SET('a','b'))")
    assert by_schema.row == {"id": "1", "s": "a,b"}
    [plain] = changes(body)
    assert plain.row == {"id": "1", "s": '["a", "b"]'}


@pytest.mark.parametrize("body", [{"type": "insert", "database": "d", "table": "t", "ts": 1}])
def test_a_row_of_maxwell_without_data_is_bad(body: dict[str, Any]) -> None:
    [bad] = changes(body)
    assert (bad.op, bad.reason) == (None, "insert without a row in data")


def flat(**more: Any) -> dict[str, Any]:
    return {"database": "d", "table": "t", "type": "INSERT", "isDdl": False,
            "data": [{"id": "1"}], **more}  # fmt: skip


def test_variants_of_canal_may_lack_fields_have_numbers_and_all_columns_in_old() -> None:
    [insert] = changes(flat(data=[{"id": 1, "n": 1.5}], id=0), "canal")
    assert (insert.row, insert.keys, insert.types) == ({"id": "1", "n": "1.5"}, (), {})
    gone, come = changes(
        flat(type="UPDATE", pkNames=["id"], data=[{"id": "2", "c": "x"}],
             old=[{"id": "1", "c": "x"}], mysqlType={"id": "INT", "c": "VARCHAR(4)"}),
        "canal",
    )  # fmt: skip
    assert (gone.before, come.row) == ({"id": "1", "c": "x"}, {"id": "2", "c": "x"})
    [beat] = changes(flat(isHeartbeat=True), "canal")
    assert beat.op == "other"
