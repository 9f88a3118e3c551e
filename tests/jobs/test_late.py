"""LATE is said of the same groups by backlog, top, forecast, the report and Prometheus's gauges."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from jobs.command import Run
from mqlog_jobs.output.forecast_view import forecasts
from mqlog_jobs.places import Named
from mqlog_jobs.report.gather import ReportRequest, gather
from mqlog_jobs.top.meter import Meter
from mqlog_jobs.work.show_backlog import late_after_ms
from mqstore.backlog import BacklogRequest, Statuses
from mqstore.backlog.plan import plan_all
from support.growing import grow
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore

START = 1_700_000_000_000
NEW_MS = 4_000_000_000_000
DAY_MS = 86_400_000
LONG_AGO = "1h"
NEVER = "9999999h"
Words = dict[tuple[str, str], str]


def messages() -> list[Message]:
    """Messages of topics that were stored long ago, and of one that were stored just now."""
    old = [
        Message(topic=topic, queue_id=n % 2, store_timestamp_ms=START + n, body=b"b")
        for topic in ("A", "B")
        for n in range(20)
    ]
    return [*old, Message(topic="New", store_timestamp_ms=NEW_MS)]


@pytest.fixture
def laid(store: MakeStore) -> Laid:
    offsets = {
        ("A", "behind"): {0: 3, 1: 10},
        ("A", "done"): {0: 10, 1: 10},
        ("B", "behind"): {0: 10, 1: 10},
        ("B", "ahead"): {0: 99, 1: 0},
        ("New", "fresh"): {0: 0},
    }
    return store(messages(), Layout(commit_log_bytes=1 << 20, group_offsets=offsets))


def of_command(run: Run, *words: object) -> Words:
    """The statuses of groups in topics that are not OK, as rows of a command have them."""
    found: dict[tuple[str, str], set[str]] = {}
    for row in run(*words, "--json").rows:
        words_of = set(str(row["status"]).split(", ")) - {"OK"}
        if row["group"] is not None and words_of:
            found.setdefault((str(row["group"]), str(row["topic"])), set()).update(words_of)
    return {pair: ", ".join(sorted(statuses)) for pair, statuses in found.items()}


def of_report(root: Path, after: str) -> Words:
    asked = ReportRequest(late_after_ms=late_after_ms(after))
    with Named.of([str(root)]).opened(damaged=True) as stores:
        behind = gather(stores, asked).behind
    assert isinstance(behind, tuple)
    return {(one.group, one.topic): ", ".join(one.statuses) for one in behind if one.statuses}


@pytest.mark.parametrize("after", [LONG_AGO, NEVER])
def test_each_door_says_the_same_status(run: Run, laid: Laid, after: str) -> None:
    late = ("--late-after", after)
    told = of_command(run, "backlog", laid.root, *late)
    expected = {("ahead", "B"): "AHEAD"}
    if after == LONG_AGO:
        expected |= {("behind", "A"): "LATE", ("ahead", "B"): "AHEAD, LATE"}
    assert told == expected
    assert of_command(run, "top", laid.root, "--interval", "0.1", *late) == told
    assert of_command(run, "forecast", laid.root, *late) == told
    assert of_report(laid.root, after) == told
    gauges = run("backlog", laid.root, *late, "--prometheus", "-").out.splitlines()
    name = 'mqlog_consumer_queues{broker="broker-1",topic="A",group="behind",status='
    counts = {line.removeprefix(name) for line in gauges if line.startswith(name)}
    assert counts == ({'"OK"} 1', '"LATE"} 1'} if after == LONG_AGO else {'"OK"} 2'})


def test_an_hour_is_the_default_everywhere(run: Run, laid: Laid) -> None:
    expected = of_command(run, "backlog", laid.root)
    assert "LATE" in expected["behind", "A"]
    assert of_command(run, "top", laid.root, "--interval", "0.1") == expected
    assert of_command(run, "forecast", laid.root) == expected


def words_of(laid: Laid, statuses: Statuses, as_of_ms: int, **asked: object) -> Words:
    request = BacklogRequest(late_after_ms=DAY_MS, **asked)  # type: ignore[arg-type]
    with Named.of([str(laid.root)]).opened() as stores:
        snapshots = stores.held_of(lambda _: True)
        items = plan_all(stores.sources, snapshots, request)
    words = statuses.of(items, as_of_ms)
    return {
        (item.group, f"{item.topic}/{item.queue_id}"): word
        for item, word in zip(items, words, strict=True)
        if word != "OK"
    }


def test_a_time_that_was_read_is_remembered_until_the_group_may_be_late(
    laid: Laid, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, reads = Statuses(BacklogRequest(late_after_ms=DAY_MS)), []
    measure = Statuses._first_times

    def counted(self: Statuses, items: list[object], as_of_ms: int) -> object:
        reads.append(len(items))
        return measure(self, items, as_of_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(Statuses, "_first_times", counted)
    ahead = {("ahead", "B/0"): "AHEAD"}
    assert words_of(laid, known, START + 10) == ahead
    assert words_of(laid, known, START + 1_000) == ahead
    assert reads == [3, 0]
    late = ahead | {("ahead", "B/1"): "LATE", ("behind", "A/0"): "LATE"}
    assert words_of(laid, known, START + DAY_MS + 100) == late
    assert reads == [3, 0, 0]


def test_what_passes_an_expression_is_looked_for_where_it_was_not_yet(laid: Laid) -> None:
    asked = {"subscriptions": {"behind": {"A": "TagX"}}}
    known = Statuses(BacklogRequest(late_after_ms=DAY_MS))
    pair, later = ("behind", "A/0"), NEW_MS + 2 * DAY_MS
    assert pair not in words_of(laid, known, later, **asked)
    more = Message(
        topic="A", properties=b"TAGS\x01TagX\x02", store_timestamp_ms=NEW_MS + 1, body=b"b"
    )
    grown = grow(laid, [*messages(), more])
    assert words_of(grown, known, later, **asked)[pair] == "LATE"


def test_one_look_reads_no_more_queues_than_it_may(laid: Laid) -> None:
    known = Statuses(BacklogRequest(late_after_ms=DAY_MS), most=1)
    found = [len(words_of(laid, known, START + 2 * DAY_MS)) for _ in range(3)]
    assert found == [2, 3, 3]


def test_top_finds_a_group_late_that_was_not_when_it_began(laid: Laid) -> None:
    with (
        Named.of([str(laid.root)]).opened(damaged=True) as stores,
        closing(Meter(stores, BacklogRequest(late_after_ms=DAY_MS))) as meter,
    ):
        found = {flow.group: flow.statuses for flow in meter.measure().flows if flow.topic == "A"}
        assert found == {"behind": ("LATE",), "done": ()}
        found = {flow.place[1:]: flow.status for flow in meter.queues("behind", "A")}
        assert found == {("A", 0): "LATE", ("A", 1): "OK", ("B", 0): "OK", ("B", 1): "OK"}


def told(run: Run, *words: object) -> str:
    return " ".join(run("forecast", *words).out.split())


def test_a_forecast_says_what_it_cannot_know_and_what_would_make_it_known(
    run: Run, laid: Laid
) -> None:
    said = told(run, laid.root, "-g", "behind")
    assert "one look: no rates, so no time of catching up" in said
    assert "catching up: not known from one look; --look-again 15s takes another" in said
    assert "loss: not known for messages in the file that is written" in said
    said = told(run, laid.root, "-g", "done")
    assert "not known" not in said


@pytest.mark.parametrize(
    ("over_ms", "lag", "cell"), [(15_000, 1_000, "?"), (600_000, 1_000, ""), (15_000, 20, "")]
)
def test_a_time_that_the_looks_do_not_carry_is_not_never(
    over_ms: int, lag: int, cell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = datetime(2027, 1, 15, tzinfo=UTC)
    ahead = None if cell else now + timedelta(seconds=lag)
    row = {
        "brokerName": "b", "group": "g", "topic": "T", "queueId": 0, "lag": lag,
        "storedRate": 1.0, "consumedRate": 2.0, "looks": 2, "ratesMs": over_ms,
        "etaZero": ahead, "etaZeroEarliest": ahead, "etaZeroLatest": ahead,
        "etaLoss": now, "etaLossEarliest": now, "etaLossLatest": now, "lossBy": "TIME",
        "status": "OK", "asOf": now,
    }  # fmt: skip
    forecasts(Console(width=120), [row], 1)
    out = capsys.readouterr().out
    carried = "catching up: 15 s of looks carry a time up to 5 m ahead, not 16 m 40 s"
    assert (carried in " ".join(out.split())) == bool(cell)
    assert "never" not in out
