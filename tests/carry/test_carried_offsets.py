"""Where groups go on in the target of a replay: nothing is skipped, and what cannot be carried."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqlog_jobs.places import Named
from mqstore.carry.groups import (
    StandingOffset,
    carried_offsets,
    check_stood_still,
    standing_offsets,
)
from mqstore.carry.marks import GroupMarks
from mqstore.codec.offset_map import OFFSET_MAP
from mqstore.errors import InvalidOptionError
from mqstore.live.send.requests import Queue
from support.oracle import Message
from support.stores import Layout, lay_out, write_json

NAMES = [field.name for field in OFFSET_MAP]


def marks_of(rows: Sequence[tuple[Any, ...]], standing: Sequence[StandingOffset]) -> GroupMarks:
    committed: dict[tuple[str, str, int], list[int]] = {}
    for one in standing:
        committed.setdefault(one.queue, []).append(one.committed)
    marks = GroupMarks(committed)
    for start in range(0, len(rows), 7):  # In pieces.
        some = [dict(zip(NAMES, row, strict=True)) for row in rows[start : start + 7]]
        marks.write("piece", pa.Table.from_pylist(some, schema=OFFSET_MAP))
    return marks


@given(
    sources=st.lists(st.integers(0, 2), max_size=30),
    committed=st.lists(st.integers(0, 12), min_size=3, max_size=3),
    targets=st.integers(1, 2),
)
def test_a_group_goes_on_where_nothing_is_skipped_and_as_late_as_that_allows(
    sources: list[int], committed: list[int], targets: int
) -> None:
    """``sources``: the source queue of each replayed message, in the order they were sent."""
    ends: dict[tuple[str, int], int] = {}
    rows: list[tuple[Any, ...]] = []
    for queue in sources:
        old, new = ends.get(("old", queue), 0), ends.get(("new", queue % targets), 0)
        ends["old", queue], ends["new", queue % targets] = old + 1, new + 1
        rows.append(("a", "T", queue, old, "z", "N", queue % targets, new, "id"))
    standing = [
        StandingOffset("G", ("a", "T", n), at, 0, ends.get(("old", n), 0))
        for n, at in enumerate(committed)
    ]
    found = carried_offsets(standing, marks_of(rows, standing))

    for target in range(targets):
        own = [row for row in rows if row[6] == target]
        at = {one.new_offset for one in found if one.to == Queue("N", "z", target)}
        if not own:
            assert at == set()
            continue
        waiting = [row[7] for row in own if row[3] >= committed[row[2]]]
        assert at == {min(waiting) if waiting else len(own)}
        (start,) = at
        assert start is not None
        for one in (one for one in found if one.to == Queue("N", "z", target)):
            of_it = [row for row in own if row[2] == one.standing.queue[2]]
            done = [row for row in of_it if row[3] < one.standing.committed]
            assert one.replayed == len(of_it) - len(done)
            assert one.again >= sum(row[7] >= start for row in done)


def test_a_waiting_message_of_which_no_place_is_known_is_refused() -> None:
    row = ("a", "T", 0, 5, None, None, None, None, "id")
    consumed = StandingOffset("G", ("a", "T", 0), 6, 0, 6)
    assert carried_offsets([consumed], marks_of([row], [consumed]))[0].to is None
    waiting = StandingOffset("G", ("a", "T", 0), 5, 0, 6)
    marks = marks_of([row], [waiting])
    with pytest.raises(InvalidOptionError, match="it is not known where they are"):
        carried_offsets([waiting], marks)


def test_offsets_that_moved_meanwhile_are_refused() -> None:
    before = StandingOffset("G", ("a", "T", 0), 5, 0, 9)
    check_stood_still([before], [StandingOffset("G", ("a", "T", 0), 5, 0, 20)])
    with pytest.raises(InvalidOptionError, match="committed offsets meanwhile"):
        check_stood_still([before], [StandingOffset("G", ("a", "T", 0), 6, 0, 9)])


def standing(root: Path, topics: Sequence[str] | None = None) -> list[StandingOffset]:
    with Named.of([str(root)]).opened(groups=("G",)) as stores:
        return standing_offsets(stores, ["G"], topics)


def laid(tmp_path: Path, offsets: dict[tuple[str, str], dict[int, int]]) -> Path:
    messages = [Message(topic=topic) for topic in ("T", "T", "T", "%RETRY%G", "OTHER")]
    return lay_out(tmp_path / "store", messages, Layout(group_offsets=offsets)).root


def test_the_offsets_of_a_store_stand_in_its_users_topics(tmp_path: Path) -> None:
    root = laid(tmp_path, {("T", "G"): {0: 2}, ("%RETRY%G", "G"): {0: 1}, ("OTHER", "G"): {0: 1}})
    assert [(one.queue[1], one.committed, one.waiting) for one in standing(root)] == [
        ("OTHER", 1, 0),
        ("T", 2, 1),
    ]
    assert [one.queue[1] for one in standing(root, ["T"])] == ["T"]


@pytest.mark.parametrize(
    ("offsets", "topics", "said"),
    [
        ({("T", "G"): {0: 2}, ("%RETRY%G", "G"): {0: 0}}, None, "wait for another delivery"),
        ({("OTHER", "G"): {0: 0}}, ["T"], "has committed no offset in a topic"),
    ],
)
def test_a_group_that_no_offset_tells_of_is_refused(
    tmp_path: Path,
    offsets: dict[tuple[str, str], dict[int, int]],
    topics: list[str] | None,
    said: str,
) -> None:
    with pytest.raises(InvalidOptionError, match=said):
        standing(laid(tmp_path, offsets), topics)


def test_a_group_that_pops_is_refused(tmp_path: Path) -> None:
    root = laid(tmp_path, {("T", "G"): {0: 2}})
    modes = {"messageRequestModeMap": {"T": {"G": {"mode": "POP", "popShareQueueNum": 0}}}}
    write_json(root / "config" / "messageRequestMode.json", modes)
    with pytest.raises(InvalidOptionError, match="pops T"):
        standing(root)
    assert [one.queue[1] for one in standing(laid(tmp_path / "b", {("OTHER", "G"): {0: 0}}))]
