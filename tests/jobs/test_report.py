"""What a report says of stores: the same numbers as the tables, sampled where it says so."""

import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.command import Run
from mqlog_jobs.places import Named
from mqlog_jobs.report.behind import waiting
from mqlog_jobs.report.facts import Facts, Rates, Unread
from mqlog_jobs.report.gather import ReportRequest, gather
from mqlog_jobs.report.lag_history import HistoryQuery
from mqlog_jobs.report.messages_section import rates_section
from mqlog_jobs.report.page import page
from mqlog_jobs.report.rates import TimedQueue, rates, step_ms
from mqlog_jobs.report.tag_counts import tags_of
from mqstore.backlog import BacklogRequest, plan
from mqstore.read.directory import open_origin, take
from mqstore.read.queues import QueueBounds
from mqstore.read.source import slices_of
from mqstore.read.store_bounds import StoreBounds
from mqstore.tables.samples import SAMPLE_SCHEMA, Recording
from support import goldens
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore

SECOND = 1000
NOW_MS = 1_790_000_000_000
START = 1_700_000_000_000
OWN = re.compile("[GH](Topic|Batch|Order|Delay|Tx)")


def facts_of(*paths: Path, verify: bool | None = None) -> Facts:
    with Named.of(map(str, paths)).opened(damaged=True) as stores:
        return gather(stores, ReportRequest(verify=verify))


def messages(count: int, every_ms: int, tags: tuple[str, ...] = ("a",)) -> list[Message]:
    """Return messages of four queues, one each ``every_ms``."""
    return [
        Message(
            queue_id=n % 4,
            body=b"b" * (n % 7),
            properties=f"TAGS\x01{tags[n % len(tags)]}\x02".encode(),
            store_timestamp_ms=START + n * every_ms,
        )
        for n in range(count)
    ]


def timed(laid: Laid) -> list[TimedQueue]:
    held = {q: [m.store_timestamp_ms for m in kept] for q, kept in laid.queues.items()}
    return [
        TimedQueue(
            0, queue, held[queue.topic, queue.queue_id][0], held[queue.topic, queue.queue_id][-1]
        )
        for queue in take(laid.root).queues
    ]


def test_backlog_is_that_of_the_command_by_group_and_topic(run: Run, golden_550: Path) -> None:
    wanted: Counter[tuple[object, object]] = Counter()
    sizes: Counter[tuple[object, object]] = Counter()
    for row in run("backlog", golden_550, "--json").rows:
        wanted[row["group"], row["topic"]] += int(str(row["lag"]))
        sizes[row["group"], row["topic"]] += int(str(row["bytesBehind"]))

    behind = facts_of(golden_550).behind

    assert not isinstance(behind, Unread)
    assert {(one.group, one.topic): one.lag for one in behind} == dict(wanted)
    assert {(one.group, one.topic): one.bytes for one in behind} == dict(sizes)
    assert not any(one.is_weighed for one in behind)
    assert [one.lag for one in behind] == sorted(wanted.values(), reverse=True)


def test_rates_count_every_message_in_the_step_it_was_stored_in(golden: tuple[str, Path]) -> None:
    version, root = golden
    found = facts_of(root).rates

    assert isinstance(found, Rates)
    wanted: dict[str, list[int]] = {}
    for message in goldens.expected(version):
        if OWN.fullmatch(message["topic"]):
            at = int(message["store"]) - found.start_ms
            wanted.setdefault(message["topic"], [0] * found.steps)[at // found.step_ms] += 1
    assert found.counts == wanted
    assert (found.queues_looked, found.left_out) == (found.queues, 0)


def test_tags_are_those_of_all_messages_of_a_topic(golden_550: Path) -> None:
    wanted = Counter(
        message["properties"].get("TAGS")
        for message in goldens.expected("5.5.0")
        if message["topic"] == "GTopic"
    )
    tags = facts_of(golden_550).tags

    assert not isinstance(tags, Unread)
    assert {tag.tag: tag.messages for tag in tags["GTopic"].tags} == dict(wanted)
    assert not tags["GTopic"].looked.is_sample


def test_a_sample_of_tags_keeps_their_shares_and_is_called_a_sample(store: MakeStore) -> None:
    laid = store(messages(4000, 10, tags=("a", "a", "a", "b", "b", "c")), Layout(queue_units=500))
    slices = {"T": slices_of(take(laid.root))}

    found = tags_of(slices, most=400)["T"]

    assert found.looked.is_sample
    assert found.looked.messages == 400
    assert found.looked.of == 4000
    counts = {tag.tag: tag.messages for tag in found.tags}
    assert list(counts) == ["a", "b", "c"]
    assert sum(counts.values()) == pytest.approx(4000, abs=3)
    assert counts["a"] == pytest.approx(2000, rel=0.1)
    assert tags_of(slices)["T"].tags[0].messages == 2001


def test_rates_of_some_queues_stand_for_their_topic_and_the_page_says_so(store: MakeStore) -> None:
    laid = store(messages(4000, 250), Layout(queue_units=500))
    source = open_origin(laid.root).bounds()

    whole, part = (rates([source], timed(laid), most) for most in (4, 1))

    assert whole.step_ms == part.step_ms
    assert sum(whole.counts["T"]) == sum(part.counts["T"]) == 4000
    assert part.counts["T"] == pytest.approx(whole.counts["T"], abs=4)
    assert (part.queues_looked, part.queues) == (1, 4)
    assert "1 of 4 queues were looked at" in "".join(rates_section(part).parts())
    assert "queues were looked at" not in "".join(rates_section(whole).parts())
    source.close()


@pytest.mark.parametrize(
    ("last", "most", "step"),
    [(0, 60, SECOND), (71 * SECOND, 72, SECOND), (72 * SECOND, 99, 2 * SECOND),
     (72 * SECOND, 1, 5 * SECOND), (10**14, 72, 10**14 // 71 + 1)],
)  # fmt: skip
def test_a_step_is_a_usual_one_of_which_there_are_few(last: int, most: int, step: int) -> None:
    assert step_ms(0, last, most) == step


def test_looks_into_queues_for_rates_are_bounded(
    store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid = store(messages(4000, 250), Layout(queue_units=500))
    source = open_origin(laid.root).bounds()
    looked: list[int] = []

    def first_at(queues: Sequence[QueueBounds], times_ms: Sequence[int]) -> list[int]:
        looked.append(len(queues))
        return StoreBounds.first_at(source, queues, times_ms)

    monkeypatch.setattr(source, "first_at", first_at)
    for looks, steps in ((10**6, 72), (200, 50), (1, 24)):
        looked.clear()
        found = rates([source], timed(laid), looks=looks)
        assert found.steps <= steps
        assert sum(looked) <= steps * 4
        assert sum(found.counts["T"]) == 4000
    source.close()


def test_bytes_of_a_long_backlog_are_estimated_and_its_lag_and_age_are_not(
    store: MakeStore,
) -> None:
    layout = Layout(queue_units=500, group_offsets={("T", "CG"): dict.fromkeys(range(4), 10)})
    laid = store(messages(4000, 10), layout)
    items = plan(take(laid.root), BacklogRequest())
    now = START + 60 * SECOND

    (whole,) = waiting(items, now).behind
    (part,) = waiting(items, now, most_messages=400).behind

    assert not whole.is_weighed
    assert part.is_weighed
    assert part.bytes == pytest.approx(whole.bytes, rel=0.05)
    assert replace(part, bytes=0, is_weighed=False) == replace(whole, bytes=0)
    assert part.lag == 4 * 990
    assert part.oldest_ms == START + 40 * 10


def test_a_damaged_store_has_a_report_that_says_what_is_broken(run: Run, tmp_path: Path) -> None:
    root = goldens.unpack("5.5.0", tmp_path)
    (root / "config" / "consumerOffset.json").write_text("{")
    (root / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    log = sorted((root / "commitlog").iterdir())[1]
    log.write_bytes(bytes(log.stat().st_size))
    target = tmp_path / "report.html"

    done = run("report", root, "-o", target)

    assert (done.code, done.err) == (0, "")
    text = target.read_text()
    assert "Needs a look" in text
    assert re.search(r"Verify</a> found [\d,]+ errors", text)
    assert "This part could not be read: </strong>[MQLOG_CORRUPT" in text
    assert str(root) in text


def test_a_large_log_is_verified_only_if_that_is_asked_for(golden_550: Path) -> None:
    unasked, asked = (facts_of(golden_550, verify=wanted).verified for wanted in (False, True))

    assert (unasked.checked, unasked.skipped) == ((), {"broker-a": "--no-verify"})
    assert (asked.checked, asked.skipped) == (("broker-a",), {})
    assert "was not checked" in "".join(page(facts_of(golden_550, verify=False)))


def test_several_stores_are_one_report(run: Run, store: MakeStore, tmp_path: Path) -> None:
    offsets = {("T", "CG"): dict.fromkeys(range(4), 1)}
    laid = [store(messages(40, 10), Layout(group_offsets=offsets)) for _ in range(2)]
    target = tmp_path / "both.html"

    done = run("report", laid[0].root.parent.parent / "broker-*" / "store", "-o", target)

    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("; 72 messages waiting for 1 group\n")
    facts = facts_of(*(one.root for one in laid))
    assert [place.broker for place in facts.places] == ["broker-1", "broker-2"]
    assert not isinstance(facts.behind, Unread)
    assert [(one.lag, one.queues) for one in facts.behind] == [(72, 8)]
    files = target.read_text().partition('id="files"')[2]
    assert files.index("broker-1") < files.index("broker-2")


def test_a_store_without_messages_has_a_report(run: Run, store: MakeStore, tmp_path: Path) -> None:
    done = run("report", store([]).root, "-o", tmp_path / "empty.html")

    assert (done.code, done.err) == (0, "")
    assert "No message is held." in (tmp_path / "empty.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("report",), "Missing argument"),
        (("report", "NOWHERE"), "MQLOG_STORE_NOT_FOUND"),
        (("report", "STORE", "-g", "nobody"), "MQLOG_UNKNOWN_GROUP"),
        (("report", "STORE", "--trace-topic", "GTopics"), "no topic GTopics; did you mean GTopic"),
        (("report", "STORE", "-o", "NO/such/report.html"), "NO/such/report.html: No such file"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    run: Run, golden_550: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = run(*(str(golden_550) if word == "STORE" else word for word in arguments))

    assert done.code == 2
    assert said in done.err
    assert done.out == ""


def sampled(folder: Path, lags: Sequence[int], every_ms: int) -> Path:
    """Samples of CG_SHOP, which stands where it is, and of a group that is gone since."""
    with closing(Recording(str(folder), 1 << 20)) as recording:
        for number, lag in enumerate(lags):
            at_ms = NOW_MS + number * every_ms
            row = {
                "asOf": datetime.fromtimestamp(at_ms / 1000, UTC), "brokerName": "b", "topic": "T",
                "queueId": 0, "minOffset": 0, "brokerOffset": 900, "consumerOffset": 900 - lag,
            }  # fmt: skip
            rows = [row | {"group": "CG_SHOP", "lag": lag}]
            rows += [row | {"group": "CG_<GONE>", "lag": 5}] if number < 3 else []
            recording.add(pa.Table.from_pylist(rows, SAMPLE_SCHEMA), at_ms)
    return folder


def test_samples_become_a_chart_of_the_last_one_of_each_step_and_a_line_for_each_group(
    store: MakeStore, tmp_path: Path, run: Run
) -> None:
    lags = [100, 250, 700, 600, 500, 40]
    folder = sampled(tmp_path / "s.parquet", lags, 40 * SECOND)
    root = store(messages(8, SECOND)).root
    query = HistoryQuery(str(folder))
    history = query.read(Named.of([str(root)]))
    assert (history.samples, history.taken_ms) == (6, (NOW_MS, NOW_MS + 200 * SECOND))
    steps = [lag for lag in history.lags["CG_SHOP"] if lag is not None]
    assert steps == lags  # A step is shorter than the time between two samples.
    assert list(history.lags) == ["CG_SHOP", "CG_<GONE>"]
    assert not isinstance(history.foreseen, Unread)

    target = tmp_path / "page.html"
    code, _, told = run("report", root, "--samples", folder, "-o", target)
    assert (code, told) == (0, "")
    text = target.read_text(encoding="utf-8")
    assert 'href="#history"' in text
    assert "from 6 samples of mqlog record" in text
    assert "from 100 to 40" in text
    assert "CG_&lt;GONE&gt;" in text


def test_samples_of_later_than_now_are_left_out_of_the_chart_and_told(
    store: MakeStore, tmp_path: Path, run: Run
) -> None:
    folder = sampled(tmp_path / "s.parquet", [100, 250, 700], 40 * SECOND)
    ahead = sampled(tmp_path / "ahead.parquet", [9_000, 9_000], 40 * 365 * 86_400 * SECOND)
    later = max(ahead.iterdir())
    later.rename(folder / later.name)
    root = store(messages(8, SECOND)).root
    history = HistoryQuery(str(folder)).read(Named.of([str(root)]))
    assert (history.samples, history.ahead) == (3, 1)
    assert history.taken_ms == (NOW_MS, NOW_MS + 80 * SECOND)
    assert [lag for lag in history.lags["CG_SHOP"] if lag is not None] == [100, 250, 700]
    target = tmp_path / "page.html"
    run("report", root, "--samples", folder, "-o", target)
    assert "1 sample is of later than now, and left out" in target.read_text(encoding="utf-8")


def test_the_rates_of_a_group_are_known_where_those_of_all_its_queues_are(
    store: MakeStore, tmp_path: Path, run: Run
) -> None:
    offsets = {("T", group): dict.fromkeys(range(4), 1) for group in ("CG_SHOP", "CG_HALF")}
    root = store(messages(8, SECOND), Layout(group_offsets=offsets)).root
    folder = tmp_path / "s.parquet"
    with closing(Recording(str(folder), 1 << 20)) as recording:
        at_ms = time.time_ns() // 1_000_000 - 3_600 * SECOND
        row = {
            "asOf": datetime.fromtimestamp(at_ms / 1000, UTC), "brokerName": "broker-1",
            "topic": "T", "minOffset": 0, "brokerOffset": 0, "consumerOffset": 0, "lag": 0,
        }  # fmt: skip
        seen = [("CG_HALF", 0), *(("CG_SHOP", queue_id) for queue_id in range(4))]
        rows = [row | {"group": group, "queueId": queue_id} for group, queue_id in seen]
        recording.add(pa.Table.from_pylist(rows, SAMPLE_SCHEMA), at_ms)
    rates_of = {
        (one["group"], one["queueId"]): one["consumedRate"]
        for one in run("forecast", root, "--samples", folder, "--json").rows
    }
    foreseen = HistoryQuery(str(folder)).read(Named.of([str(root)])).foreseen

    assert rates_of["CG_HALF", 0] is not None
    assert rates_of["CG_HALF", 1] is None
    assert not isinstance(foreseen, Unread)
    assert (foreseen["CG_HALF"].stored, foreseen["CG_HALF"].consumed) == (None, None)
    shop = foreseen["CG_SHOP"]
    assert shop.stored == pytest.approx(8 / 3_600, rel=0.1)
    assert shop.consumed == pytest.approx(4 / 3_600, rel=0.1)


def test_of_many_samples_in_a_step_the_last_one_is_shown(store: MakeStore, tmp_path: Path) -> None:
    folder = sampled(tmp_path / "s.parquet", range(1, 301), 10 * SECOND)
    history = HistoryQuery(str(folder)).read(Named.of([str(store(messages(4, 1)).root)]))
    lags = history.lags["CG_SHOP"]
    assert len(lags) <= 72
    assert lags == sorted(lags, key=lambda lag: lag or 0)
    assert lags[-1] == 300
    width = history.step_ms // (10 * SECOND)
    assert {b - a for a, b in pairwise(lags[:-1]) if a and b} == {width}


def test_samples_that_are_none_are_refused_before_any_work(
    store: MakeStore, tmp_path: Path, run: Run
) -> None:
    target = tmp_path / "page.html"
    root = store(messages(4, SECOND)).root
    code, _, told = run("report", root, "--samples", tmp_path / "no", "-o", target)
    assert code == 2
    assert "is not there: mqlog record" in told
    assert not target.exists()
