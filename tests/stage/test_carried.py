"""Rows that were messages before: what they keep of what they were, and what is made anew."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from appending import SMALL, append, held, rows
from oracle import split_properties

MAP = pa.map_(pa.string(), pa.string())
READ = [("UNIQ_KEY", "OLD"), ("WAIT", "false"), ("a", "b")]
OLD = dict(READ)


def properties_of(root: Path) -> list[dict[str, str]]:
    return [split_properties(m.properties) for m in held(root)]


def was_read(*maps: list[tuple[str, str]] | None) -> pa.RecordBatch:
    """Return rows with these properties and a column that only a read has."""
    return rows(len(maps), brokerName="b", properties=pa.array(list(maps), MAP))


@pytest.mark.parametrize(
    "columns",
    [{"brokerName": "b"}, {"queueOffset": 7}, {"brokerName": "b", "properties": pa.nulls(1)}],
    ids=str,
)
@pytest.mark.parametrize("settings", [{}, {"uniq_key": "random"}], ids=str)
def test_a_column_that_is_passed_over_takes_nothing_from_a_message(
    tmp_path: Path, columns: dict[str, Any], settings: dict[str, Any]
) -> None:
    append(tmp_path / "s", rows(1, **columns), **SMALL, **settings)
    (found,) = properties_of(tmp_path / "s")
    assert len(found.pop("UNIQ_KEY")) == 32
    assert found == {"WAIT": "true"}


def test_properties_that_were_read_are_all_there_are(tmp_path: Path) -> None:
    append(tmp_path / "s", was_read(READ, [("a", "b")], []), **SMALL, partitioner="single")
    assert properties_of(tmp_path / "s") == [OLD, {"a": "b"}, {}]


@pytest.mark.parametrize("kind", ["deterministic", "random", "none"])
def test_a_kind_of_ids_that_is_asked_for_beats_those_that_were_read(
    tmp_path: Path, kind: str
) -> None:
    batch = was_read(READ, [("a", "b")])
    append(tmp_path / "s", batch, **SMALL, partitioner="single", uniq_key=kind)
    found = properties_of(tmp_path / "s")
    ids = [p.pop("UNIQ_KEY", "") for p in found]
    assert found == [{"WAIT": "false", "a": "b"}, {"a": "b"}]
    assert [len(i) for i in ids] == ([0, 0] if kind == "none" else [32, 32])
    assert kind == "none" or ids[0] != ids[1]


def test_rows_without_a_map_among_rows_that_were_read_get_what_a_producer_adds(
    tmp_path: Path,
) -> None:
    append(tmp_path / "s", was_read(READ, None, []), **SMALL, partitioner="single")
    first, made, last = properties_of(tmp_path / "s")
    assert (first, last) == (OLD, {})
    assert len(made.pop("UNIQ_KEY")) == 32
    assert made == {"WAIT": "true"}
