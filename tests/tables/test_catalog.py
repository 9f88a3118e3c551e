"""A table is one value; whatever lists tables takes it from the catalog."""

import subprocess
import sys

import pyarrow as pa
import pytest

from mqstore.request.read_options import READ_OPTIONS, TABLES, takers
from mqstore.tables.catalog import CATALOG
from mqstore.tables.columns import BROKER_NAME
from mqstore.tables.table import ALWAYS, Table

COLUMNS = (BROKER_NAME, ("n", pa.int32(), False, "a number"))


def test_a_table_without_an_option_list_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="options"):
        Table("new", COLUMNS, lambda _: [])  # type: ignore[call-arg]


def test_a_table_cannot_be_sorted_by_a_column_that_it_lacks() -> None:
    with pytest.raises(ValueError, match="table new has no columns"):
        Table("new", COLUMNS, lambda _: [], frozenset(), order=("m",))


def test_a_new_table_takes_no_option_that_it_does_not_name() -> None:
    new = Table("new", COLUMNS, lambda _: [], frozenset())
    assert {name for name in declared() if new.takes(name)} == ALWAYS
    assert new.schema.names == ["brokerName", "n"]


def declared() -> set[str]:
    return {option.name for option in READ_OPTIONS.values()}


@pytest.mark.parametrize("table", CATALOG.values(), ids=lambda table: table.name)
def test_every_option_of_a_table_is_an_option_of_a_read(table: Table) -> None:
    assert table.options <= declared()
    assert all(table.name in takers(option) for option in table.options | ALWAYS)
    assert "brokerName" in table.schema.names


def test_the_values_of_the_option_are_the_messages_and_the_tables() -> None:
    assert list(TABLES) == ["messages", *CATALOG]
    assert [table.name for table in CATALOG.values()] == list(CATALOG)


def test_a_command_of_one_table_does_not_load_the_code_of_the_others() -> None:
    code = "import sys; from mqstore.request import read; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert "mqstore.request.read_options" in loaded
    assert not {"mqstore.tables.verify", "mqstore.tables.traces", "pyarrow.compute"} & set(loaded)
