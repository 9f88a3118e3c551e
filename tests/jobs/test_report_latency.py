"""The latency of a report: the rows of ``mqlog latency``, of the newest messages."""

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.command import Run
from mqlog_jobs.places import Named
from mqlog_jobs.report import gather as gathering
from mqlog_jobs.report import latency_section
from mqlog_jobs.report.facts import Facts, Latencies, Looked, Unread
from mqlog_jobs.report.gather import ReportRequest, gather
from mqlog_jobs.report.latencies import Bounds, Traced, latencies
from mqlog_jobs.report.page import page
from mqstore.format.names import TRACE_TOPIC
from mqstore.tables import latency
from support import goldens
from support.oracle import Message, join_properties
from support.stores import Layout, MakeStore

START = 1_700_000_000_000
LARGE = Layout(commit_log_bytes=1 << 20)


def facts_of(*roots: Path, **options: str) -> Facts:
    with Named.of(map(str, roots)).opened(damaged=True) as stores:
        return gather(stores, ReportRequest(**options))


def found(facts: Facts) -> Latencies:
    assert isinstance(facts.latency, Latencies)
    return facts.latency


def message(key: str, at: int, topic: str = "T", queue_id: int = 0) -> Message:
    times = {"born_timestamp_ms": START + at - 5, "store_timestamp_ms": START + at}
    properties = join_properties({"UNIQ_KEY": key})
    return Message(topic=topic, properties=properties, queue_id=queue_id, **times)


def trace(key: str, at: int, group: str = "CG") -> Message:
    """A delivery that begins 10 ms and ends 30 ms behind ``at``."""
    began, ended = START + at + 10, START + at + 30
    events = (f"SubBefore,{began},R,{group},{key},{key},0,k",
              f"SubAfter,{key},{key},1,true,k,0,{ended},{group}")  # fmt: skip
    body = "".join(event.replace(",", "\x01") + "\x02" for event in events).encode()
    return Message(topic=TRACE_TOPIC, body=body, store_timestamp_ms=START + at + 40)


def test_the_rows_are_those_of_the_command(run: Run, tmp_path: Path) -> None:
    root = goldens.unpack("5.5.0-traces", tmp_path)
    told = run("latency", root, "--json").rows
    facts = facts_of(root)

    assert len(told) > 10
    assert sorted(map(str, found(facts).rows)) == sorted(map(str, told))
    text = "".join(page(facts))
    assert 'href="#latency"' in text
    assert '<th scope="row">Work of the consumer</th>' in text
    assert "mqlog latency reads all" not in text


def test_a_group_that_is_named_is_the_only_one(tmp_path: Path) -> None:
    root = goldens.unpack("5.5.0-traces", tmp_path)
    assert {row["group"] for row in found(facts_of(root, groups="CG_T")).rows} == {None, "CG_T"}


def test_a_trace_topic_of_another_name_is_named(store: MakeStore) -> None:
    root = store([message("a", 0), replace(trace("a", 1), topic="Own")], LARGE).root
    assert facts_of(root).latency is None
    rows = found(facts_of(root, trace_topic="Own")).rows
    assert [(row["topic"], row["group"]) for row in rows] == [("T", None), *[("T", "CG")] * 4]


def test_a_place_without_traces_has_no_such_section(store: MakeStore) -> None:
    facts = facts_of(store([message("a", 0)]).root)
    assert facts.latency is None
    assert 'id="latency"' not in "".join(page(facts))


def test_of_many_traces_the_newest_are_read_and_the_messages_stored_since(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = range(0, 100_000, 1_000)
    laid = [one for at in times for one in (message(f"m{at}", at), trace(f"m{at}", at))]
    laid.sort(key=lambda one: one.store_timestamp_ms)
    root = store(laid, LARGE).root
    whole = found(facts_of(root))
    assert (whole.since_ms, whole.traces, whole.messages) == (
        None,
        Looked(100, 100),
        Looked(100, 100),
    )

    monkeypatch.setattr(gathering, "TRACE_BYTES", 2_000)
    facts = facts_of(root)
    part = found(facts)
    assert part.traces.is_sample
    looked = part.traces.messages
    assert 2 < looked < 20
    assert part.since_ms == START + times[-looked] + 40
    assert part.messages == Looked(looked - 1, 100)  # The first trace is of a message before it.
    assert {row["untraced"] for row in part.rows if row["group"]} == {0}
    assert {row["maxMs"] for row in part.rows if row["stage"] == "WORK"} == {20.0}
    text = "".join(page(facts))
    assert f"the newest {looked} of 100 trace messages were read" in text
    assert f"{looked - 1} of 100 messages were looked at, the newest of each queue" in text
    assert "mqlog latency reads all" in text


def test_messages_queues_and_lines_are_bounded(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = [
        message(f"{topic}{n}", n, topic, n % 2)
        for topic, number in (("T", 40), ("U", 20), ("V", 10)) for n in range(number)
    ]  # fmt: skip
    root = store([*laid, trace("T39", 39), trace("U19", 19, "other")], LARGE).root
    with Named.of([str(root)]).opened(damaged=True) as stores:
        queues = [queue for one in stores.held_of(lambda _: True) for queue in one.queues]
        part = latencies(stores, queues, Bounds(1 << 20, 4, 12), Traced())
    assert isinstance(part, Latencies)
    assert (part.messages, part.topics_left_out) == (Looked(12, 70), 1)
    assert [(row["topic"], row["group"], row["messages"]) for row in part.rows] == [
        ("T", None, 6), ("U", None, 6), *[("T", "CG", 6)] * 4, *[("U", "other", 6)] * 4,
    ]  # fmt: skip
    monkeypatch.setattr(latency_section, "LISTED", 3)
    text = "".join(latency_section.latency_section(part).parts())
    assert "12 of 70 messages were looked at, the newest of each queue. 1 topic with fewer" in text
    assert "1 more topics and groups is not listed; mqlog latency lists all." in text


def test_traces_of_too_many_groups_are_told_and_the_rest_of_the_report_is_there(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency, "MAX_COUNTED_APART", 2)
    laid = [message("a", 0), *(trace("a", 1, f"g{n}") for n in range(3))]
    facts = facts_of(store(laid, LARGE).root)
    assert isinstance(facts.latency, Unread)
    text = "".join(page(facts))
    assert "T has more groups, queues and intervals than fit into memory" in text
    assert '<a href="#latency">Latency</a> could not be read' in text


def test_every_stage_has_a_name_and_one_without_a_duration_no_line() -> None:
    assert tuple(latency_section.STAGE_WORDS) == latency.STAGES
    row = dict.fromkeys(latency.SCHEMA.names) | {
        "topic": "T", "group": "CG", "stage": "WORK", "count": 0, "messages": 3, "untraced": 3,
        "unfinished": 0, "failed": 0, "exact": True,
    }  # fmt: skip
    whole = Looked(3, 3)
    known = Latencies((row,), None, whole, whole, 0)
    text = "".join(latency_section.latency_section(known).parts())
    assert "3 messages, 3 untraced" in text
    assert "Work of the consumer" not in text
    none = replace(known, rows=())
    assert "No message was stored" in "".join(latency_section.latency_section(none).parts())
