"""What a run does with tables, one by one: changes are made by hand."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from delta.change_batches import batch_of, message
from mqlog_jobs.delta import run_state
from mqlog_jobs.delta.change_rules import ChangeRules
from mqlog_jobs.delta.change_run import ChangeRun
from mqlog_jobs.delta.lake_table import folder_name
from mqstore.changes.change import Change, ChangeSequence
from mqstore.merge.errors import NewSourceError, NoChangeOrderError

MINUTE_US = 60_000_000


def change(op: str, key: int, position: int | None = None, **more: Any) -> Change:
    row = {"id": str(key), **more.pop("row", {})}
    image = {"before": more.pop("before", row)} if op == "delete" else {"row": row}
    values = {
        "database": "shop",
        "table": "orders",
        "keys": ("id",),
        "types": {"id": "bigint", "qty": "int", "note": "varchar(9)"},
        "sequence": None if position is None else ChangeSequence(0, 1, position),
    }
    return Change(op=op, **image, **(values | more))


def taken(root: Path, *batches: list[tuple[Change, dict]], **rules: Any) -> list[dict[str, Any]]:
    """The summaries of a run over batches; the position is the number of messages so far."""
    run = ChangeRun(root, run_state.load(root), ChangeRules(**rules))
    begin = run.begin().get("CDC", {}).get("0", 0)
    return [
        run.take(batch_of(batch), {"CDC": {"0": number + 1}})
        for number, batch in enumerate(batches)
        if number >= begin
    ]


def rows(root: Path, table: str = "shop.orders") -> dict[Any, dict[str, Any]]:
    lake = DeltaTable(str(root / folder_name(table))).to_pyarrow_table().to_pylist()
    return {
        row["id"]: {name: value for name, value in row.items() if name in {"qty", "note", "doc"}}
        for row in lake
        if not row["_mqlogDeleted"]
    }


def test_a_table_that_cannot_go_on_stops_alone_by_name_and_is_tried_again(tmp_path: Path) -> None:
    good = {"table": "items"}
    batches = [
        [(change("insert", 1, 10, row={"qty": "1"}), message(0))],
        [
            (change("insert", 2, 20, types={"id": "datetime"}, row={"qty": "1"}), message(1)),
            (change("insert", 3, 30, row={"qty": "3"}, **good), message(2)),
        ],
        [(change("insert", 4, 40, row={"qty": "4"}), message(3))],
    ]
    summaries = taken(tmp_path, *batches)
    assert list(summaries[-1]["stopped"]) == ["shop.orders"]
    assert "the column id is int64 in the lake" in summaries[-1]["stopped"]["shop.orders"]
    assert rows(tmp_path) == {1: {"qty": 1}}
    assert rows(tmp_path, "shop.items") == {3: {"qty": 3}}
    batches[1][0] = (change("insert", 2, 20, row={"qty": "2"}), message(1))
    summaries = taken(tmp_path, *batches)
    assert summaries[-1]["stopped"] == {}
    assert rows(tmp_path) == {1: {"qty": 1}, 2: {"qty": 2}, 4: {"qty": 4}}


def test_a_table_that_is_wanted_later_gets_its_changes_from_the_first_on(tmp_path: Path) -> None:
    batches = [
        [(change("insert", 1, 10, row={"qty": "1"}), message(0))],
        [(change("insert", 2, 20, table="items"), message(1))],
        [(change("insert", 3, 30, row={"qty": "3"}), message(2))],
    ]
    taken(tmp_path, *batches, tables=("*", "!shop.orders"))
    assert not (tmp_path / "shop.orders").exists()
    taken(tmp_path, *batches, tables=("shop.*",))
    assert rows(tmp_path) == {1: {"qty": 1}, 3: {"qty": 3}}


def test_a_changed_key_in_a_table_of_two_queues_is_refused_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    moved = [
        (change("delete", 1, moved_to={"id": "2"}), message(1, 1)),
        (change("insert", 2, moved_from={"id": "1"}), message(1, 1)),
        (change("insert", 9, table="items"), message(2, 1)),
    ]
    batches = [[(change("insert", 1, row={"qty": "1"}), message(0))], moved]
    with pytest.raises(NoChangeOrderError, match=r"shop.orders.*2 queues.*CDC/broker-a/1, offset"):
        taken(tmp_path, *batches)
    assert rows(tmp_path) == {1: {"qty": 1}}
    assert not (tmp_path / "shop.items").exists()
    taken(tmp_path, *batches, by_queue=True)
    assert list(rows(tmp_path)) == [2]


def test_a_new_log_stops_before_anything_is_lost_and_goes_on_when_told(tmp_path: Path) -> None:
    def at(op: str, position: int, minutes: float, qty: int) -> Change:
        time_us = int(minutes * MINUTE_US)
        return change(op, 1, position, row={"qty": str(qty)}, source_time_us=time_us)

    batches = [
        [(at("insert", 900, 10, 1), message(0))],
        [(at("update", 4, 10.5, 2), message(1))],
        [(at("update", 9, 12, 3), message(2))],
    ]
    with pytest.raises(NewSourceError, match="--new-source"):
        taken(tmp_path, *batches)
    assert rows(tmp_path) == {1: {"qty": 1}}
    run = ChangeRun(tmp_path, run_state.load(tmp_path), ChangeRules())
    run.new_source()
    begin = run.begin()["CDC"]["0"]
    assert begin == 1  # From where its sequences fell.
    for number, batch in enumerate(batches[begin:], begin):
        run.take(batch_of(batch), {"CDC": {"0": number + 1}})
    assert rows(tmp_path) == {1: {"qty": 3}}


def test_a_value_that_a_change_does_not_know_comes_from_the_row_of_the_old_key(
    tmp_path: Path,
) -> None:
    types = {"id": "int64", "qty": "int32", "doc": "string"}
    batches = [
        [
            (
                change(
                    "insert",
                    2,
                    20,
                    row={"qty": "2"},
                    unavailable=("doc",),
                    moved_from={"id": "1"},
                    types=types,
                ),
                message(0, 1),
            )
        ],
        [(change("delete", 1, 20, moved_to={"id": "2"}, types=types), message(1))],
        [(change("insert", 1, 10, row={"qty": "1", "doc": "large"}, types=types), message(2))],
    ]
    summaries = taken(tmp_path, *batches)
    assert [one["waiting"] for one in summaries] == [1, 1, 0]
    assert rows(tmp_path) == {2: {"qty": 2, "doc": "large"}}


def test_a_wider_type_widens_the_column_and_new_columns_are_added(tmp_path: Path) -> None:
    wide = {"id": "bigint", "qty": "bigint", "note": "varchar(9)"}
    taken(
        tmp_path,
        [(change("insert", 1, 10, row={"qty": "1"}), message(0))],
        [(change("insert", 2, 20, row={"qty": str(2**40), "note": "n"}, types=wide), message(1))],
        [(change("insert", 3, 30, row={"qty": "3"}), message(2))],
    )
    assert rows(tmp_path) == {
        1: {"qty": 1, "note": None},
        2: {"qty": 2**40, "note": "n"},
        3: {"qty": 3, "note": None},
    }


def test_a_ddl_that_the_lake_cannot_follow_is_counted_or_stops_the_table(tmp_path: Path) -> None:
    def ddl(sql: str) -> list[tuple[Change, dict]]:
        return [(change("ddl", 0, 20, row={}, sql=sql), message(1))]

    first = [(change("insert", 1, 10, row={"qty": "1"}), message(0))]
    add = ddl("ALTER TABLE orders ADD COLUMN a int, ADD b int NOT NULL DEFAULT '1', ADD KEY k (a)")
    (_, summary) = taken(tmp_path / "a", first, add)
    assert (summary["unapplied"], summary["stopped"]) == (["shop.orders: default of b"], {})
    (_, summary) = taken(tmp_path / "b", first, add, on_ddl="stop")
    assert "--on-ddl ignore" in summary["stopped"]["shop.orders"]
    odd = ddl("ALTER TABLE orders PARTITION BY HASH(id)")
    assert taken(tmp_path / "c", first, odd)[1]["stopped"]
    assert not taken(tmp_path / "d", first, odd, on_ddl="ignore")[1]["stopped"]
    drop = ddl("DROP TABLE orders")
    taken(tmp_path / "e", first, drop, [(change("insert", 7, 15), message(2))])
    assert rows(tmp_path / "e") == {}


@pytest.mark.parametrize(
    "name", ["../../x", "..", ".", "a/b.c", "_bad", "_mqlog.x", "a b", "顺序.表", "x\0y", "C:\\x"]
)
def test_a_tables_name_cannot_lead_out_of_the_directory(name: str, tmp_path: Path) -> None:
    folder = folder_name(name)
    assert "/" not in folder
    assert "\\" not in folder
    assert folder.strip(".") == folder
    assert not folder.startswith("_")
    database, _, table = name.rpartition(".")
    batch = [(change("insert", 1, 10, database=database, table=table or "t"), message(0))]
    taken(tmp_path / "lake", batch)
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


def test_names_of_tables_that_differ_have_folders_that_differ() -> None:
    names = ["a.b", "a+2E+b", "a/b", "a.b.c", "a_b", "_b", "+5F+b", ".b"]
    assert len({folder_name(name) for name in names}) == len(names)
    with pytest.raises(ValueError, match="gives no folder"):
        folder_name("x" * 300)
