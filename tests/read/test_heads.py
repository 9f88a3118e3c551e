"""Store timestamps and tags of records, against the oracle and against broken bytes."""

from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.files.base.directory import Directory
from mqstore.files.log.commit_log import CommitLog
from mqstore.read.heads import NO_TIMESTAMP, read_columns, store_timestamps, tags_of
from support import strategies
from support.oracle import Message
from support.stores import Laid, Layout, lay_out

Made: TypeAlias = tuple[list[Message], Layout]


@st.composite
def _stores(draw: st.DrawFn) -> Made:
    found = draw(strategies.batches(max_size=12))
    large = draw(st.sampled_from([0, 0, 5000]))
    # A body over a page is not read on the way to the tags behind it.
    grown = [
        Message(**{**_fields(m), "body": bytes(large + 1), "sys_flag": m.sys_flag & ~0x701})
        if large and draw(st.booleans())
        else m
        for m in found
    ]
    return grown, Layout(commit_log_bytes=16_384, start=draw(st.sampled_from([0, 2**40])))


def _fields(m: Message) -> dict[str, object]:
    return {name: getattr(m, name) for name in m.__dataclass_fields__}


def _places(laid: Laid) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([m.physical_offset for m in laid.messages], np.int64),
        np.array([m.size for m in laid.messages], np.int64),
    )


@given(made=_stores(), data=st.data())
def test_heads_are_what_the_oracle_reads_in_any_order(
    made: tuple[list[Message], Layout],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store"), *made)
    places, sizes = _places(laid)
    order = np.array(data.draw(st.permutations(range(len(places)))), np.intp)
    with CommitLog([Directory(str(laid.root / "commitlog"))]) as log:
        times = store_timestamps(log, places[order], sizes[order])
        found = list(read_columns(log, places[order], sizes[order], tags_of))
    assert times.tolist() == [laid.messages[i].store_timestamp_ms for i in order]
    pairs = [pair for rows, column in found for pair in zip(rows, column.to_pylist(), strict=True)]
    assert sorted(pairs, key=lambda pair: pair[0]) == [
        (row, laid.messages[i].tags) for row, i in enumerate(order)
    ]


@given(made=_stores(), data=st.data())
def test_no_byte_and_no_unit_is_trusted(
    made: tuple[list[Message], Layout],
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("store"), *made)
    for path in sorted((laid.root / "commitlog").iterdir()):
        content = bytearray(path.read_bytes())
        for position in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=30)):
            content[position] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
    numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 40_000)
    pairs = data.draw(st.lists(st.tuples(numbers, numbers), max_size=10))
    pairs += [(m.physical_offset, m.size) for m in laid.messages]
    places = np.array([place for place, _ in pairs], np.int64)
    sizes = np.array([size for _, size in pairs], np.int64)
    with CommitLog([Directory(str(laid.root / "commitlog"))]) as log:
        assert len(store_timestamps(log, places, sizes)) == len(pairs)
        for rows, column in read_columns(log, places, sizes, tags_of):
            column.validate(full=True)
            assert len(rows) == len(column) <= len(pairs)


def test_a_time_that_no_calendar_has_is_none(tmp_path: Path) -> None:
    laid = lay_out(tmp_path, [Message(store_timestamp_ms=time) for time in (5, 2**62)])
    with CommitLog([Directory(str(tmp_path / "commitlog"))]) as log:
        assert store_timestamps(log, *_places(laid)).tolist() == [5, NO_TIMESTAMP]
