"""Latencies against what clients measured themselves, and against messages laid out by hand."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.errors import InvalidOptionError, UnknownGroupError
from mqstore.format.names import TRACE_TOPIC
from mqstore.format.trace_entries import SUB_BEFORE, TraceEntry
from mqstore.tables import deliveries, latency, percentiles
from mqstore.tables.percentiles import MAX_EXACT, Durations
from support import goldens, parts, traced
from support.oracle import Message, join_properties
from support.stores import Layout, MakeStore

Row = dict[str, Any]
LARGE = Layout(commit_log_bytes=65_536)


@pytest.fixture(params=goldens.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def read(root: Path, **options: str) -> list[Row]:
    return parts.rows("latency", [work.part for work in parts.planned(root, "latency", **options)])


def stage(rows: list[Row], group: str | None, name: str) -> Row:
    (found,) = (row for row in rows if (row["group"], row["stage"]) == (group, name))
    return found


def nearest(values: list[int], share: float) -> int:
    """The least value that at least that share does not exceed."""
    ordered = sorted(values)
    return next(v for n, v in enumerate(ordered, 1) if n >= share * len(ordered))


def test_latencies_are_within_2_ms_of_what_real_clients_measured(
    version: str, tmp_path: Path
) -> None:
    root = goldens.unpack(f"{version}-traces", tmp_path)
    rows = read(root, subscribe="Traced")
    measured = [row for row in traced.lines(version, "measured") if row["event"] == "consumed"]
    sent = [row for row in traced.lines(version, "measured") if row["event"] == "sent"]
    batch = {msg_id for row in sent if row["kind"] == "BATCH" for msg_id in row["msgId"].split(",")}
    lost = {call(row) for row in measured if version == "5.5.0" and row["msgId"] in batch}
    for group in ("CG_T", "CG_T_B", "CG_T_O"):
        calls = [row for row in measured if row["group"] == group and call(row) not in lost]
        assert_times(stage(rows, group, "WORK"), [row["end"] - row["start"] for row in calls])
        again = {row["msgId"]: row["start"] for row in calls if row["reconsumeTimes"]}
        first = {row["msgId"]: row["end"] for row in calls if not row["reconsumeTimes"]}
        waits = [start - first[msg_id] for msg_id, start in again.items()]
        # From the end of one call to the start of another: both are off by at most 2 ms.
        assert_times(stage(rows, group, "RETRIES"), waits, 4)
        untraced = 14 - len({row["msgId"] for row in calls})
        for name in latency.STAGES[1:]:
            row = stage(rows, group, name)
            assert (row["messages"], row["untraced"]) == (14, untraced)
            assert row["failed"] == (3 if group == "CG_T" else 0)
    produced = stage(rows, None, "BORN_TO_STORED")
    assert (produced["count"], produced["untraced"]) == (14, 1)  # One was sent one way.


def call(row: Row) -> tuple[object, ...]:
    """Which call of a listener a delivery was in."""
    return row["group"], row["start"], row["end"], row["messages"] > 1 or row["msgId"]


def assert_times(row: Row, values: list[int], within: int = 2) -> None:
    assert row["count"] == len(values)
    if not values:
        assert row["p50Ms"] is row["maxMs"] is None
        return
    for name, share in (("p50Ms", 0.5), ("p95Ms", 0.95), ("p99Ms", 0.99), ("maxMs", 1.0)):
        assert abs(row[name] - nearest(values, share)) <= within, name


def message(key: str, born: int, stored: int, **more: Any) -> Message:
    properties = join_properties({"UNIQ_KEY": key})
    return Message(
        topic="T", properties=properties, born_timestamp_ms=born, store_timestamp_ms=stored, **more
    )


def trace(*entries: str) -> Message:
    body = b"".join(entry.replace(",", "\x01").encode() + b"\x02" for entry in entries)
    return Message(topic=TRACE_TOPIC, body=body, store_timestamp_ms=10_000_000)


def before(key: str, at: int, request: str, times: int = 0, group: str = "g") -> str:
    return f"SubBefore,{at},R,{group},{request},{key},{times},k"


def after(key: str, at: int, request: str, success: str = "true", group: str = "g") -> str:
    return f"SubAfter,{request},{key},1,{success},k,0,{at},{group}"


@pytest.fixture
def laid(store: MakeStore) -> Path:
    return store(
        [
            message("a", 1_000_000, 1_000_010),
            message("b", 1_000_000, 1_000_020, queue_id=1),
            message("c", 1_000_000, 1_060_030, queue_id=1),
            message("d", 1_060_000, 1_060_040),
            # Events of one message lie in several trace messages, in any order.
            trace(after("a", 1_000_200, "1"), before("b", 1_000_300, "2")),
            trace(before("a", 1_000_100, "1"), after("b", 1_000_350, "2", "false")),
            trace(before("b", 1_009_000, "3", 1), after("b", 1_009_500, "3")),
            # The start of a delivery of c is not traced, nor the end of one of d.
            trace(after("c", 1_070_000, "4"), before("d", 1_060_020, "5")),
            trace(before("elsewhere", 1, "6"), after("elsewhere", 2, "6")),
        ],
        LARGE,
    ).root


def test_each_stage_counts_what_is_traced_and_nothing_is_guessed(laid: Path) -> None:
    rows = read(laid)
    assert [(r["group"], r["stage"]) for r in rows] == [
        (None, "BORN_TO_STORED"),
        *(("g", name) for name in latency.STAGES[1:]),
    ]
    found = {r["stage"]: (r["count"], r["p50Ms"], r["maxMs"]) for r in rows}
    assert found == {
        "BORN_TO_STORED": (4, 20.0, 60_030.0),
        "STORED_TO_DELIVERED": (3, 90.0, 280.0),  # Of d it is -20: clocks differ.
        "WORK": (3, 100.0, 500.0),
        "RETRIES": (1, 8_650.0, 8_650.0),
        "END_TO_END": (3, 9_500.0, 70_000.0),
    }
    group = stage(rows, "g", "WORK")
    assert (group["messages"], group["untraced"]) == (4, 0)
    assert (group["unfinished"], group["failed"], group["exact"]) == (1, 1, True)


def test_a_delivery_without_a_time_is_no_duration(store: MakeStore) -> None:
    again = before("a", 0, "2", 1).replace(",0,", ",,", 1)
    first = before("a", 0, "0").replace(",0,", ",,", 1)
    events = [before("a", 1_000_100, "1"), after("a", 1_000_200, "1", "false"), first, again]
    root = store([message("a", 1_000_000, 1_000_010), trace(*events)], LARGE).root

    rows = read(root)

    assert stage(rows, "g", "RETRIES")["count"] == 0
    assert stage(rows, "g", "STORED_TO_DELIVERED")["maxMs"] == 90.0


def test_messages_without_a_trace_are_counted_also_of_a_named_group_without_any(
    laid: Path, store: MakeStore
) -> None:
    assert {row["untraced"] for row in read(laid)} == {0, 4}
    committed = {("T", "quiet"): {0: 1}}
    root = store([message("a", 1, 2)], Layout(group_offsets=committed)).root
    assert [row["group"] for row in read(root)] == [None]
    rows = read(root, groups="quiet")
    assert [(r["group"], r["count"], r["messages"], r["untraced"]) for r in rows] == [
        (None, 1, 1, 1),
        *[("quiet", 0, 1, 1)] * 4,
    ]
    with pytest.raises(UnknownGroupError, match="no group quite; did you mean quiet"):
        read(root, groups="quite")


def test_a_row_for_each_queue_and_interval(laid: Path) -> None:
    stored = [
        (row["queueId"], row["intervalStart"], row["count"])
        for row in read(laid, byQueue="true", interval="1m")
        if row["stage"] == "BORN_TO_STORED"
    ]
    assert sorted(stored) == [
        (0, 960_000_000, 1),
        (0, 1_020_000_000, 1),
        (1, 960_000_000, 1),
        (1, 1_020_000_000, 1),
    ]
    times = {
        (row["intervalStart"], row["count"])
        for row in read(laid, interval="1m")
        if row["stage"] == "WORK"
    }
    assert times == {(960_000_000, 3), (1_020_000_000, 0)}
    with pytest.raises(InvalidOptionError, match="interval"):
        read(laid, interval="0")


def test_the_window_chooses_messages_and_not_their_traces(laid: Path) -> None:
    rows = read(laid, startingTimestamp="1000020", endingTimestamp="1000021")
    assert stage(rows, None, "BORN_TO_STORED")["count"] == 1
    assert stage(rows, "g", "WORK")["count"] == 2
    assert stage(rows, "g", "RETRIES")["maxMs"] == 8_650.0


def test_several_passes_over_the_traces_give_what_one_gives(
    laid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read(laid)
    (part,) = (work.part for work in parts.planned(laid, "latency"))
    assert isinstance(part, latency.LatencyPart)
    monkeypatch.setattr(latency, "PASS_MESSAGES", 1)
    again = latency.LatencyPart(part.messages, part.traces, pass_messages=1)
    assert parts.rows("latency", [again]) == whole


def test_topics_share_a_pass_over_the_traces_and_have_the_rows_of_each_alone(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = store(
        [
            *(replace(message(key, 1_000_000, 1_000_010), topic=topic)
              for topic, keys in (("A", "abb"), ("B", "bc"), ("C", "d")) for key in keys),
            *(trace(before(key, 1_000_100, key), after(key, 1_000_200 + at, key))
              for at, key in enumerate("abc")),
        ],
        LARGE,
    ).root  # fmt: skip
    alone = [row for topic in "ABC" for row in read(root, subscribe=topic)]
    order = ("topic", "group", "stage")
    alone.sort(key=lambda row: [str(row[name]) for name in order])
    for most, wanted in ((200_000, [6]), (5, [5, 1]), (4, [3, 3]), (1, [3, 2, 1])):
        monkeypatch.setattr(latency, "PASS_MESSAGES", most)
        planned = [work.part for work in parts.planned(root, "latency")]
        lengths = [sum(one.end - one.start for one in part.messages) for part in planned]
        rows = sorted(
            parts.rows("latency", planned), key=lambda row: [str(row[name]) for name in order]
        )
        assert lengths == wanted
        assert rows == alone
    assert [row["count"] for row in rows if row["stage"] == "WORK"] == [
        2,
        2,
    ]  # The id of b is of A and B.


def test_more_than_fits_into_memory_is_an_error_that_says_what_to_do(
    laid: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "MAX_DELIVERIES", 3)
    with pytest.raises(InvalidOptionError, match="T has more deliveries than fit into memory"):
        read(laid)
    monkeypatch.setattr(deliveries, "MAX_DELIVERIES", 100)
    found = deliveries.Deliveries()
    entry = TraceEntry(event=SUB_BEFORE, fields=8, group="g", request_id="r" * 60_000)
    with pytest.raises(deliveries.TooManyDeliveriesError):
        found.add(0, entry)
    monkeypatch.undo()
    monkeypatch.setattr(latency, "MAX_COUNTED_APART", 1)
    with pytest.raises(InvalidOptionError, match="more groups, queues and intervals than fit"):
        read(laid, byQueue="true")


def test_many_durations_have_percentiles_within_one_percent_of_the_values() -> None:
    random = np.random.default_rng(7)
    for values in (
        random.lognormal(3, 2, 300_000).astype(np.int64),
        random.integers(-50, 50, 300_000),
        np.repeat(np.arange(3), 100_000),
    ):
        found = Durations()
        for part in np.array_split(random.permutation(values), 7):
            found.add(part)
        assert not found.is_exact
        *shares, largest = found.percentiles()
        assert largest == values.max()
        for share, value in zip(percentiles.PERCENTILES, shares, strict=True):
            assert value is not None
            below, up_to = (values < value).mean(), (values <= value + 1).mean()
            assert below - 0.01 <= share <= up_to + 0.01


def test_percentiles_are_exact_up_to_a_hundred_thousand_durations() -> None:
    found = Durations()
    found.add(np.arange(MAX_EXACT - 1, -1, -1))
    assert found.percentiles() == (49_999.0, 94_999.0, 98_999.0, 99_999.0)
    assert found.is_exact
    found.add(np.array([5]))
    assert (found.is_exact, found.count) == (False, MAX_EXACT + 1)


def test_without_the_package_of_the_sketch_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    found = Durations()
    found.add(np.arange(10))
    with pytest.raises(InvalidOptionError, match="pip install datasketches"):
        found.add(np.arange(MAX_EXACT))
