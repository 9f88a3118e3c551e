"""Change rows: one shape for all producers."""

import pyarrow as pa

from mqstore.changes.change import CHANGE_COLUMNS, Change, ChangeSequence, Problem, change_column


def test_the_columns_of_changes_have_their_types_and_keep_null_apart_from_absent() -> None:
    changes = [
        Change(op="insert", table="t", row={"a": None, "b": ""}, sequence=ChangeSequence(0, 7, 4)),
        Change(op="delete", keys=("a",), before={"a": "1"}, moved_to={"a": "2"}),
        Change(op=None, reason="cut", problems=[Problem("a", "why")]),
    ]
    rows = pa.table({c.name: change_column(c.name, changes) for c in CHANGE_COLUMNS})
    assert rows.schema.types == [column.type for column in CHANGE_COLUMNS]
    rows.validate(full=True)
    assert rows["row"].to_pylist() == [[("a", None), ("b", "")], None, None]
    assert rows["before"].to_pylist() == [None, [("a", "1")], None]
    assert rows["movedTo"].to_pylist() == [None, [("a", "2")], None]
    assert rows["keys"].to_pylist() == [[], ["a"], []]
    assert rows["snapshot"].to_pylist() == [False, False, None]
    assert rows["sequence"].to_pylist()[0] == {"epoch": 0, "file": 7, "position": 4, "row": 0}
    assert rows["problems"].to_pylist()[2] == [{"column": "a", "reason": "why"}]


def test_maps_of_no_rows_and_of_nothing_are_maps() -> None:
    assert change_column("row", []).to_pylist() == []
    assert change_column("row", [Change(op="other"), Change(op="other")]).to_pylist() == [None] * 2
