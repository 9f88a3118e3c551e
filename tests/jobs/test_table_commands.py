"""The commands that show what a store knows beside its messages, without a JVM."""

import csv
import io
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from jobs.command import Run
from mqlog_jobs.output.group_lines import group_lines
from mqlog_jobs.output.number_ranges import shape_of, with_ranges
from mqstore.tables.catalog import CATALOG
from support import goldens, parts
from support.oracle import Message, join_properties
from support.stores import Layout, MakeStore
from support.writing import SMALL, append, rows


def test_scheduled_messages_come_by_the_time_they_are_due(
    run: Run, golden: tuple[str, Path]
) -> None:
    version, root = golden
    every = run("scheduled", root, "--all", "--json").rows
    due = [str(row["deliverTimestamp"]) for row in every]
    stored = [m for m in goldens.expected(version) if m["topic"] == "SCHEDULE_TOPIC_XXXX"]

    assert sorted(str(row["msgId"]) for row in every) == sorted(str(m["msgId"]) for m in stored)
    assert due == sorted(due)
    waiting = run("scheduled", root, "--json").rows
    assert waiting == [row for row in every if row["state"] == "PENDING"] != every
    assert run("scheduled", root, "-n", "2", "--json").rows == waiting[:2]
    assert (
        f"2 of {len(waiting)} scheduled messages  2 PENDING"
        in run("scheduled", root, "-n", "2").out
    )


def test_scheduled_messages_are_chosen_by_real_topic_and_time(run: Run, golden_550: Path) -> None:
    every = run("scheduled", golden_550, "--all", "--json").rows
    chosen = run("scheduled", golden_550, "--all", "--json", "-t", "GDelay").rows
    assert chosen == [row for row in every if row["realTopic"] == "GDelay"]
    middle = sorted(str(row["storeTimestamp"]) for row in every)[len(every) // 2]
    since = run("scheduled", golden_550, "--all", "--json", "--since", middle).rows
    until = run("scheduled", golden_550, "--all", "--json", "--until", middle).rows
    assert {str(row["storeTimestamp"]) >= middle for row in since} == {True}
    assert len(since) + len(until) == len(every)
    assert since
    assert until


def failed(topic: str, key: str) -> Message:
    properties = {"UNIQ_KEY": key, "RETRY_TOPIC": "T"}
    return Message(topic=topic, properties=join_properties(properties), reconsume_times=3)


@pytest.fixture
def retried(store: MakeStore) -> Path:
    """A message that group g fails on, and one that it gave up; h gave up one."""
    first = [Message(topic="T", properties=join_properties({"UNIQ_KEY": k})) for k in "ABC"]
    again = [failed("%RETRY%g", "A"), failed("%DLQ%g", "B"), failed("%DLQ%h", "C")]
    offsets = {("T", "g"): {0: 3}, ("%RETRY%g", "g"): {0: 1}, ("T", "h"): {0: 3}}
    return store([*first, *again], Layout(group_offsets=offsets)).root


def test_retries_show_dead_letters_and_where_they_come_from(run: Run, retried: Path) -> None:
    def seen(*options: str) -> list[tuple[object, ...]]:
        names = ("group", "kind", "consumed", "originTopic", "originQueueOffset")
        found = run("retries", retried, "--json", *options).rows
        return [tuple(row[name] for name in names) for row in found]

    of_g = [("g", "DLQ", None, "T", 1), ("g", "RETRY", True, "T", 0)]
    of_h = [("h", "DLQ", None, "T", 2)]
    assert seen() == [*of_g, *of_h]
    assert seen("-g", "h") == of_h
    assert seen("--dead") == [of_g[0], *of_h]
    assert seen("-n", "1") == of_g[:1]
    shown = run("retries", retried).out
    assert "g  1 DLQ, 1 RETRY\n" in shown
    assert "h  1 DLQ\n" in shown
    told = run("retries", retried, "-g", "nobody")
    assert (told.code, told.out) == (2, "")
    assert "[MQLOG_UNKNOWN_GROUP]" in told.err


def test_half_messages_are_those_without_an_outcome(run: Run, golden: tuple[str, Path]) -> None:
    version, root = golden
    letter = {"4.9.7": "H", "5.5.0": "G"}[version]
    found = run("halfmessages", root, "--json").rows
    born = [str(row["bornTimestamp"]) for row in found]

    assert {row["producerGroup"] for row in found} == {f"TPG_{letter}"}
    assert born == sorted(born)
    assert f"{len(found)} half messages  {len(found)} PENDING" in run("halfmessages", root).out
    assert run("halfmessages", root, "--json", "-t", f"{letter}Topic").rows == []


def test_offsets_are_those_of_the_offset_file(run: Run, golden: tuple[str, Path]) -> None:
    version, root = golden
    committed = {
        (group, topic, queue_id): line.consumer_offset
        for (group, topic, queue_id), line in goldens.progress(version).items()
    }
    found = {
        (row["group"], row["topic"], row["queueId"]): row["consumerOffset"]
        for row in run("offsets", root, "--json", "--system").rows
    }
    assert committed
    assert {key: found.get(key, 0) for key in committed} == committed
    mine = run("offsets", root, "--json").rows
    assert not any(str(row["group"]).startswith("CID_RMQ_SYS_") for row in mine)
    assert len(mine) < len(found)
    group = str(mine[0]["group"])
    assert {row["group"] for row in run("offsets", root, "--json", "-g", group).rows} == {group}
    topic = str(mine[0]["topic"])
    assert {row["topic"] for row in run("offsets", root, "--json", "-t", topic).rows} == {topic}


def test_the_comparison_has_the_numbers_of_the_tools(run: Run, golden: tuple[str, Path]) -> None:
    version, root = golden
    theirs = goldens.progress(version)
    groups = ",".join({group for group, _, _ in theirs})
    ours = {
        (row["group"], row["topic"], row["queueId"]): row["progressDiff"]
        for row in run("lagcompare", root, "-g", groups, "--json").rows
    }
    assert {key: ours[key] for key in theirs} == {k: line.diff for k, line in theirs.items()}
    shown = run("lagcompare", root, "-g", groups).out
    assert "SAME" in shown
    assert "PROGRESS" in shown


def test_commits_are_listed_with_their_key(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "broker-a" / "store"
    append(root, [rows(3)], **SMALL, txn_app_id="orders", txn_version=7)
    (row,) = run("commits", root, "--json").rows

    assert (row["appId"], row["version"], row["rows"], row["state"]) == ("orders", 7, 3, "done")
    assert "orders" in run("commits", root).out
    done = run("commits", "rocketmq://127.0.0.1:1")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "a cluster has no table commits" in done.err


EMPTY = {
    "scheduled": "no message waits",
    "retries": "no message is in",
    "halfmessages": "every transaction",
    "offsets": "no consumer group",
    "lagcompare": "no consumer group",
    "commits": "no commits of mqlog",
    "backlog": "no consumer group",
}


@pytest.mark.parametrize(("view", "told"), EMPTY.items())
def test_a_table_without_rows_says_so(run: Run, store: MakeStore, view: str, told: str) -> None:
    root = store([Message(topic="T")]).root

    assert told in run(view, root).out
    assert run(view, root, "--json").out == ""


@pytest.mark.parametrize("view", ["scheduled", "retries", "halfmessages", "offsets", "commits"])
def test_csv_has_all_columns_of_the_table(run: Run, golden_550: Path, view: str) -> None:
    out = run(view, golden_550, "--csv").out

    assert next(csv.reader(io.StringIO(out))) == CATALOG[view].schema.names


@pytest.mark.parametrize("view", ["scheduled", "retries", "halfmessages", "offsets", "lagcompare"])
def test_a_topic_that_nobody_knows_is_one_line(run: Run, golden_550: Path, view: str) -> None:
    done = run(view, golden_550, "-t", "GTopik")

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "did you mean GTopic" in done.err


def lag(rows: list[dict[str, object]], name: str = "lag") -> list[Any]:
    return [row[name] for row in rows]


def test_the_largest_lag_comes_first(run: Run, golden_497: Path) -> None:
    found = run("backlog", golden_497, "--sort", "lag", "--json").rows
    by_group: dict[object, list[Any]] = {}
    for row in found:
        by_group.setdefault(row["group"], []).append(row["lag"])

    assert all(lags == sorted(lags, reverse=True) for lags in by_group.values())
    assert [sum(lags) for lags in by_group.values()] == [260, 97]
    assert list(by_group) == ["LP_H", "CG_H"]
    assert "must be name or lag" in run("backlog", golden_497, "--sort", "size").err


def test_a_summary_is_a_line_for_each_group(run: Run, golden_497: Path) -> None:
    every = run("backlog", golden_497, "--json").rows
    lines = run("backlog", golden_497, "--summary", "--json").rows

    assert [(line["group"], line["topics"], line["queues"]) for line in lines] == [
        ("CG_H", 2, 5),
        ("LP_H", 1, 4),
    ]
    for line in lines:
        of_group = [row for row in every if row["group"] == line["group"]]
        for name in ("lag", "lagMatching", "expired", "bytesBehind"):
            assert line[name] == sum(lag(of_group, name))
    out = run("backlog", golden_497, "--summary", "--sort", "lag").out
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["LP_H", "CG_H"]


def test_a_summary_by_tag_is_a_line_for_each_tag_of_a_group(run: Run, golden_497: Path) -> None:
    every = run("backlog", golden_497, "--by-tag", "--json").rows
    lines = run("backlog", golden_497, "--summary", "--by-tag", "--json").rows

    of_tags = {(row["group"], row["tag"]) for row in every if row["lag"]}
    assert {(line["group"], line["tag"]) for line in lines} == of_tags
    for line in lines:
        of_tag = [
            row for row in every if (row["group"], row["tag"]) == (line["group"], line["tag"])
        ]
        assert (line["lag"], line["queues"]) == (sum(lag(of_tag, "lag")), len(of_tag))
    sizes = [(line["group"], -int(str(line["lag"]))) for line in lines]
    assert sizes == sorted(sizes, key=lambda size: (str(size[0]), size[1]))
    out = run("backlog", golden_497, "--summary", "--by-tag", "-g", "CG_H").out.splitlines()
    assert out[0].split()[:4] == ["GROUP", "TAG", "TOPICS", "QUEUES"]
    assert out[2].split()[:2] == ["CG_H", "HB"]
    assert "TAG" not in run("backlog", golden_497, "--summary").out.splitlines()[0]


def test_a_group_that_has_caught_up_has_one_line_without_a_tag() -> None:
    row = {
        "group": "G", "brokerName": "b", "topic": "T", "tag": None, "lag": 0, "lagMatching": 0,
        "expired": 0, "bytesBehind": 0, "lagMs": None, "status": "OK", "asOf": None,
        "consumers": None, "inflight": None, "due": None,
    }  # fmt: skip
    found = group_lines([{**row, "queueId": 0}, {**row, "queueId": 1}], by_tag=True)
    assert [(line["tag"], line["queues"], line["lag"]) for line in found] == [(None, 2, 0)]


def test_no_committed_offset_is_said_for_groups_that_are_not_there(
    run: Run, golden_497: Path
) -> None:
    for args in (
        ("backlog", "-g", "/none.*/"),
        ("backlog", "-t", "HOrder"),
        ("offsets", "-t", "HOrder"),
    ):
        command, *rest = args
        assert "no committed offsets: " in run(command, golden_497, *rest).out


def test_an_expression_of_sql92_is_refused_by_the_name_of_its_option(
    run: Run, golden_497: Path
) -> None:
    assert "option --sql='a >'" in run("backlog", golden_497, "-g", "CG_H", "--sql", "a >").err


@pytest.mark.parametrize("command", ["topics", "queues", "tags"])
def test_rocketmqs_own_topics_are_left_out_also_where_topics_json_lacks_them(
    run: Run, golden: tuple[str, Path], command: str
) -> None:
    _, root = golden
    shown = {str(row["topic"]) for row in run(command, root, "--json").rows}
    assert shown
    assert not [topic for topic in shown if topic.startswith(("RMQ_SYS_", "%RETRY%", "SCHEDULE_"))]


def test_a_backlog_may_be_of_one_topic(run: Run, golden_497: Path) -> None:
    found = run("backlog", golden_497, "-t", "HTopic", "--json").rows

    assert {(row["group"], row["topic"]) for row in found} == {("CG_H", "HTopic")}
    assert "did you mean HTopic" in run("backlog", golden_497, "-t", "HTopik").err


def test_each_group_may_have_a_subscription_of_its_own(run: Run, golden_497: Path) -> None:
    found = run(
        "backlog", golden_497, "--json",
        "--subscription", "CG_H/HTopic=HA || HB", "--subscription", "LP_H=none",
    ).rows  # fmt: skip
    told = {(row["group"], row["topic"]): row["subscription"] for row in found}

    assert told == {
        ("CG_H", "HTopic"): "HA || HB",
        ("CG_H", "%RETRY%CG_H"): "*",
        ("LP_H", "HBatch"): "none",
    }
    assert sum(lag([row for row in found if row["group"] == "LP_H"], "lagMatching")) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-g", "nobody"), "option --group: no group nobody; the groups are CG_H"),
        (("-g", "/[/"), "option --group='/[/': no regular expression"),
        (("--subscription", "CG_H=||"), "option --subscription='||'"),
        (("--subscription", "a"), "write GROUP=EXPRESSION"),
        (("--subscription", "nobody=a"), "[MQLOG_UNKNOWN_GROUP]"),
        (("--subscription", "CG_H=a", "--subscription", "CG_H=b"), "has one already"),
        (("--fail-above", "1", "--watch"), "is for one measurement"),
        (("--quiet",), "--quiet='true': belongs to --fail-above or --prometheus"),
        (("--quiet", "--fail-above", "1", "--json"), "not together with --json or --csv"),
        (("--by-tag", "--prometheus", "x"), "--prometheus='x': has no label for a tag"),
    ],
)
def test_a_mistake_of_a_backlog_is_one_line(
    run: Run, golden_497: Path, words: tuple[str, ...], told: str
) -> None:
    done = run("backlog", golden_497, *words)

    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert told in done.err


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("260",), 0, []),
        (("259",), 3, ["LP_H"]),
        (("0",), 3, ["CG_H", "LP_H"]),
        (("0", "-g", "CG_H"), 3, ["CG_H"]),
        (("0", "--subscription", "LP_H=none", "-g", "LP_H"), 0, []),
        (("96", "--summary", "-g", "CG_H"), 3, ["CG_H"]),
    ],
)
def test_a_backlog_above_the_limit_has_an_exit_code_of_its_own(
    run: Run, golden_497: Path, words: tuple[str, ...], code: int, named: list[str]
) -> None:
    done = run("backlog", golden_497, "--json", "--fail-above", *words)

    assert done.code == code
    assert [line.split()[1].rstrip(":") for line in done.err.splitlines()] == named
    assert all(json.loads(line) for line in done.out.splitlines())
    assert done.out


def test_a_quiet_backlog_prints_what_is_above_and_no_row(run: Run, golden_497: Path) -> None:
    late = run("backlog", golden_497, "--fail-above", "259", "--quiet")

    assert run("backlog", golden_497, "--fail-above", "260", "-q") == (0, "", "")
    assert (late.code, late.out, late.err.count("\n")) == (3, "", 1)
    assert late.err.startswith("mqlog: LP_H: 260 messages waiting")


def test_find_leaves_out_what_was_stored_before(run: Run, golden_550: Path) -> None:
    (row,) = run("find", golden_550, "--key", "late78", "--json").rows
    stored = datetime.fromisoformat(str(row["storeTimestamp"]))
    ms = round(stored.timestamp() * 1000)

    assert run("find", golden_550, "--key", "late78", "--since", str(ms), "--json").rows == [row]
    assert run("find", golden_550, "--key", "late78", "--since", str(ms + 1)).code == 1


@pytest.mark.parametrize("name", CATALOG)
def test_any_table_is_shown_with_the_columns_that_spark_reads(
    run: Run, golden_550: Path, name: str
) -> None:
    words = ("table", name, golden_550)
    words += ("-o", f"{CATALOG[name].needs}={golden_550}") if CATALOG[name].needs else ()
    header = next(csv.reader(io.StringIO(run(*words, "--csv").out)))
    assert header == CATALOG[name].schema.names
    shown = run(*words, "--json", "--system").rows
    options = {"includeSystemTopics": "true"} if CATALOG[name].owner else {}
    work = parts.planned(golden_550, name, **options)
    if not CATALOG[name].of_users:
        assert len(shown) == sum(batch.num_rows for one in work for batch in one.batches())
    assert run(*words).out


def test_a_table_takes_the_options_of_the_read(run: Run, golden_550: Path) -> None:
    every = run("table", "index", golden_550, "--json").rows
    some = run("table", "index", golden_550, "--json", "-n", "3").rows
    assert some == every[:3]
    keyed = run("table", "index", golden_550, "-o", "keys=key28", "--json").rows
    assert 0 < len(keyed) < len(every)
    for words, told in (
        (("index", "-g", "CG_G"), "option --group='CG_G': is for table=backlog|"),
        (("indx",), "did you mean index? the tables are backlog, "),
        (("index", "-o", "kyes=g7"), "no such option; there are "),
    ):
        done = run("table", words[0], golden_550, *words[1:])
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert told in done.err


def test_groups_subscriptions_and_brokers_are_commands(run: Run, golden_550: Path) -> None:
    groups = [row["group"] for row in run("groups", golden_550, "--json").rows]
    assert "CG_G" in groups
    assert not any(str(group).startswith("CID_RMQ_SYS_") for group in groups)
    assert set(groups) < {r["group"] for r in run("groups", golden_550, "--json", "--system").rows}
    (broker,) = run("brokers", golden_550, "--json").rows
    assert broker["maxPhysicalOffset"]
    assert re.search(r"COMMITLOG .*\n.*\nbroker-a .* 768 KiB ", run("brokers", golden_550).out)
    assert "a store SQL92 only" in run("subscriptions", golden_550).out
    assert "CONSUMERS" not in run("groups", golden_550).out


def test_groups_that_every_broker_makes_are_shown_by_system_only(
    run: Run, golden_550: Path
) -> None:
    """SubscriptionGroupManager#init."""
    made = {"TOOLS_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONSAPI_PULL", "CID_ONS-HTTP-PROXY"}
    own, every = (
        {row["group"] for row in run("groups", golden_550, "--json", *words).rows}
        for words in ((), ("--system",))
    )
    assert not made & own
    assert made < every
    assert run("groups", golden_550, "-g", "TOOLS_CONSUMER", "--json").rows


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("groups=CG_G",), "option --option groups='CG_G': use --group"),
        (("subscribe=GTopic",), "use --topic"),
        (("startingTimestamp=0",), "use --since"),
        (("queues=log",), "use --from-log"),
        (("storePathCommitLog=/x",), "use --commit-log"),
        (("includeSystemTopics=true",), "use --system"),
        (("columns=topic",), "--json and --csv write all columns"),
        (("table=topics",), "a command names its table"),
        (("keys=a", "KEYS=b"), "option --option='keys': is given twice"),
    ],
)
def test_an_option_that_a_table_would_ignore_is_refused(
    run: Run, golden_550: Path, given: tuple[str, ...], told: str
) -> None:
    words = [word for one in given for word in ("-o", one)]
    done = run("table", "index", golden_550, *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert told in done.err


def test_traces_are_a_table_that_keys_narrow(run: Run, tmp_path: Path) -> None:
    root = goldens.unpack("5.5.0-traces", tmp_path)
    found = run("table", "traces", root, "--json", "-o", "keys=t5").rows
    assert [row["event"] for row in found].count("SubAfter") == 4
    assert "SubBefore" in run("table", "traces", root).out


def test_latency_shows_the_stages_of_each_group(run: Run, tmp_path: Path) -> None:
    root = goldens.unpack("4.9.7-traces", tmp_path)
    shown = run("latency", root, "-t", "Traced", "-g", "CG_T").out
    assert "Traced  14 messages, 1 untraced" in shown
    assert "Traced → CG_T  14 messages, 3 failed" in shown
    assert re.search(r"RETRIES +3 +1,032 ms +1,034 ms +1,034 ms +1,034 ms", shown)
    assert "QUEUE" not in shown
    assert "QUEUE" in run("latency", root, "--by-queue", "--interval", "1s").out
    rows = run("latency", root, "-t", "Traced", "--json").rows
    assert {row["group"] for row in rows} == {None, "CG_T", "CG_T_B", "CG_T_O"}


def test_latency_says_that_no_delivery_is_traced(run: Run, golden_550: Path) -> None:
    assert "no delivery of these messages is traced" in run("latency", golden_550).out


def test_why_names_the_fault_what_shows_it_and_what_to_run(run: Run, store: MakeStore) -> None:
    messages = [
        Message(topic="T", queue_id=queue, store_timestamp_ms=1_700_000_000_000 + minute * 60_000)
        for minute in range(5)
        for queue in range(2)
    ]
    offsets = {("T", "g"): {0: 5, 1: 9}, ("T", "even"): {0: 5, 1: 5}}
    root = store(messages, Layout(commit_log_bytes=1 << 16, group_offsets=offsets)).root
    done = run("why", root)
    shown = done.out
    assert done.code == 1
    assert "AHEAD  T/1 of broker-1" in shown
    assert f"mqlog queues {root} -t T" in shown
    (row,) = run("why", root, "-g", "g", "-t", "T", "--json").rows
    assert (row["verdict"], row["queueId"]) == ("AHEAD", 1)
    assert json.loads(str(row["numbers"]))["beyond"] == 4
    assert run("why", root, "-g", "g", "--json").code == 1
    done = run("why", root, "-g", "even")
    assert (done.code, done.out.startswith("no verdict")) == (0, True)


def test_why_folds_queues_that_differ_by_numbers(run: Run, store: MakeStore) -> None:
    messages = [
        Message(topic="T", queue_id=queue, store_timestamp_ms=1_700_000_000_000)
        for queue in range(4)
        for _ in range(queue + 1)
    ]
    offsets = {("T", "g"): {0: 2_001, 1: 9, 2: 3, 3: 9}}
    root = store(messages, Layout(commit_log_bytes=1 << 16, group_offsets=offsets)).root
    head, evidence, command = run("why", root).out.splitlines()[1:4]
    assert head.strip() == "AHEAD  T/0, 1, 3 of broker-1"
    assert evidence.strip() == (
        "the group's offset 9 to 2,001 is 5 to 2,000 beyond the queue's end 1 to 4: the group will "
        "skip the next 5 to 2,000 messages that arrive"
    )
    assert command.strip() == f"mqlog queues {root} -t T"
    assert len(run("why", root, "--json").rows) == 3


def test_ranges_are_those_of_spans_and_times_too_and_names_keep_their_digits() -> None:
    sentences = [
        "at about 2026-11-28 09:59:00Z, in 119 s, 1,200 of c1@7#8 wait",
        "at about 2026-11-28 10:01:00Z, in 2 min, 30 of c1@7#8 wait",
    ]
    assert shape_of(sentences[0]) != shape_of(sentences[0].replace("c1@7", "c1@9"))
    assert with_ranges(sentences) == (
        "at about 2026-11-28 09:59:00Z to 2026-11-28 10:01:00Z, in 119 s to 2 min, "
        "30 to 1,200 of c1@7#8 wait"
    )
    assert with_ranges(sentences[:1]) == sentences[0]
    assert shape_of("3 d 4 wait") != shape_of("3 4 wait")
