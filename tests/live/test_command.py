"""The command on a cluster on loopback: every view that takes a store takes an address."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from jobs.command import Done, Run
from jobs.conftest import run
from live.loopback import FakeCluster
from mqlog_jobs.places import Named
from mqlog_jobs.top.meter import Meter
from mqlog_jobs.work.following import follow
from mqstore.backlog import BacklogRequest
from mqstore.read.message_query import MessageQuery
from support import oracle
from support.processes import until

__all__ = ["run"]


@pytest.fixture
def broker() -> Iterator[FakeCluster]:
    """A broker that listens apart from the others."""
    with FakeCluster().running() as found:
        yield found


@pytest.fixture
def look(run: Run, fake: FakeCluster) -> Any:
    """Run a view of the fake cluster."""

    def looked(view: str, *arguments: str) -> Done:
        return run(view, f"rocketmq://{fake.address}", *arguments, "--option", "retryTimeout=1s")

    return looked


def test_cat_merges_the_messages_of_all_brokers_by_time(fake: FakeCluster, look: Any) -> None:
    fake.fill("T", 3, body=lambda i: b"a%d" % i)
    fake.fill("T", 3, queue_id=1, body=lambda i: b"c%d" % i)
    fake.fill("T", 3, broker="broker-b", body=lambda i: b"b%d" % i)
    done = look("cat", "T", "-f", "{brokerName} {body}")
    assert [line[-1] for line in done.out.splitlines()] == list("000111222")
    assert {line.split()[0] for line in done.out.splitlines()} == {"broker-a", "broker-b"}
    head = look("cat", "T").out.splitlines()[0]
    assert "BROKER NAME" in head
    assert look("cat", "T/1@2", "-f", "{body}").out == "c2\n"


def test_find_looks_on_all_brokers(fake: FakeCluster, look: Any) -> None:
    for broker in ("broker-a", "broker-b"):
        queue = fake.fill("T", 2, broker=broker)
        assert queue.messages[1] is not None
        keyed = oracle.join_properties({"KEYS": "k-7"})
        queue.messages[1] = replace(queue.messages[1], properties=keyed)
    rows = look("find", "--key", "k-7", "--json").rows
    assert [(row["brokerName"], row["queueOffset"]) for row in rows] == [
        ("broker-a", 1),
        ("broker-b", 1),
    ]
    assert look("find", "--key", "nobody").code == 1


def test_a_topic_that_a_broker_lacks_though_name_servers_show_it_breaks_no_view(
    fake: FakeCluster, look: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeCluster().running() as other:
        fake.fill("T", 3)
        fake.fill("T", 5, broker="broker-b")
        for cluster in (fake, other):
            cluster.fill("U", 2, broker="broker-b")
        fake.addresses["broker-b"] = {0: other.address}
        fake.committed["T", "g", 0] = other.committed["T", "g", 0] = 1
        replay = f"replay rocketmq://{fake.address} --to U --same-topic --dry-run"
        for view in ("cat T -f {body}", "tags", "backlog", "find --key k", replay):
            done = look(*view.split())
            assert "MQLOG_" not in done.err, view
            if view == "backlog":  # Of the topics that each broker has.
                continue
            (told,) = {record.getMessage() for record in caplog.records}
            assert "show topic T on broker-b, which does not have it" in told
            caplog.clear()
        assert look("cat", "T", "-f", "{body}").out.split() == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("cat", "Tee"), "no topic Tee; the topics are T"),
        (("cat", "T/9"), "topic T has no queue 9; its queues are 0"),
        (("cat", "T/0@9"), "T/0: queue offsets [9, 3) were requested, the store holds [0, 3)"),
        (("cat", "T", "-o", "requestTimeot=1s"), "did you mean requestTimeout?"),
        (("cat", "T", "-o", "requestTimeout=soon"), "option requestTimeout='soon'"),
        (("cat", "T", "-o", "secretKey=hush-hush"), "credentialsFile=FILE"),
        (("cat", "T", "--commit-log", "/data/log"), "is for the directory of a store"),
    ],
)
def test_what_cannot_be_is_one_line(
    fake: FakeCluster, look: Any, words: tuple[str, ...], expected: str
) -> None:
    fake.fill("T", 3)
    done = look(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("mqlog: [MQLOG_")
    assert expected in done.err
    assert "hush" not in done.err


def test_an_address_names_no_topic_and_options_are_for_addresses(
    fake: FakeCluster, run: Run, golden_550: Path
) -> None:
    done = run("cat", f"rocketmq://{fake.address}/T", "T")
    assert "give its topic as an argument" in done.err
    done = run("cat", golden_550, "GTopic", "-o", "readFrom=any")
    assert "is for clusters" in done.err


def test_credentials_come_from_a_file_or_the_environment(
    fake: FakeCluster, look: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.fill("T", 1)
    file = tmp_path / "tools.yml"
    file.write_text("accessKey: reader-1\nsecretKey: hush-hush\n")
    assert look("cat", "T", "-o", f"credentialsFile={file}").code == 0
    monkeypatch.setenv("MQLOG_ACCESS_KEY", "reader-2")
    monkeypatch.setenv("MQLOG_SECRET_KEY", "hush-hush")
    assert look("cat", "T").code == 0
    keys = {request["extFields"]["AccessKey"] for request in fake.requests}
    assert keys == {"reader-1", "reader-2"}
    assert "hush" not in json.dumps([request["extFields"] for request in fake.requests])


def test_a_report_of_a_cluster(fake: FakeCluster, look: Any, tmp_path: Path) -> None:
    fake.fill("T", 30, tags=lambda i: "AB"[i % 2])
    fake.fill("U", 10, broker="broker-b")
    fake.committed["T", "g", 0] = 20
    done = look("report", "--output", str(tmp_path / "report.html"))
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("; 10 messages waiting for 1 group\n")
    text = (tmp_path / "report.html").read_text()
    assert "2 brokers" in text
    assert "could not be read" not in text
    assert "Shares of tags: A 50%, B 50%" in text


def test_a_report_of_a_cluster_says_only_what_is_known_of_it(
    fake: FakeCluster, look: Any, tmp_path: Path
) -> None:
    """Users' queues, brokers that run, and no sections about files."""
    fake.fill("T", 30)
    for queue_id in range(5):
        fake.fill("RMQ_SYS_TRACE_TOPIC", 3, queue_id=queue_id)
    assert look("report", "--output", str(tmp_path / "report.html")).code == 0
    text = (tmp_path / "report.html").read_text()
    told = re.sub("<[^>]*>", "|", text.partition("<body")[2])

    assert "|RocketMQ cluster|" in told
    assert "|Messages held||30||in 1 queue|" in told
    assert re.search(r"\|running, [\d.]+\|", told)
    assert f"{fake.address}" in told.replace("|", "")
    assert "own topics have 5 queues with 15 messages" in told
    for false in ("closed", "store", "Files", "Verify"):
        assert false not in told.replace("stored", "")
    links = set(re.findall(r'href="#([^"]+)"', text))
    assert links == set(re.findall(r'section id="([^"]+)"', text)) | {"report"}


def test_top_looks_at_a_cluster(fake: FakeCluster, look: Any) -> None:
    fake.fill("T", 30)
    fake.fill("T", 5, broker="broker-b")
    fake.committed["T", "g", 0] = 20
    rows = look("top", "--json", "--interval", "0.1").rows
    assert [(row["group"], row["topic"], row["lag"]) for row in rows] == [("g", "T", 10)]
    assert rows[0]["storedPerSecond"] == rows[0]["consumedPerSecond"] == 0


def test_the_views_of_a_cluster(fake: FakeCluster, look: Any) -> None:
    fake.fill("T", 30, tags=lambda i: "AB"[i % 2])
    fake.fill("U", 10, broker="broker-b")
    fake.fill("RMQ_SYS_TRACE_TOPIC", 3)
    fake.committed["T", "g", 0] = 20
    fake.committed["T", "CID_RMQ_SYS_TRANS", 0] = 0
    fake.groups["g"] = 1
    fake.subscriptions["g"] = {"T": ("A", "TAG")}
    topics = {
        (row["brokerName"], row["topic"], row["messageCount"])
        for row in look("topics", "--json").rows
        if row["messageCount"]
    }
    assert topics == {("broker-a", "T", 30), ("broker-b", "U", 10)}
    queues = [
        (row["queueId"], row["maxOffset"]) for row in look("queues", "-t", "U", "--json").rows
    ]
    assert queues == [(0, 10)]
    tags = {(row["tag"], row["messageCount"]) for row in look("tags", "--json").rows}
    assert tags == {("A", 15), ("B", 15), (None, 10)}
    backlog = look("backlog", "-g", "g", "--json").rows
    lag = {(row["brokerName"], row["lag"], row["lagMatching"]) for row in backlog}
    assert ("broker-a", 10, 5) in lag
    assert "5 match A" in look("backlog").out
    assert "CID_RMQ_SYS" not in look("backlog").out


def test_lag_of_a_group_without_consumers_has_that_reason_in_every_view(
    fake: FakeCluster, look: Any, run: Run, golden_550: Path, tmp_path: Path
) -> None:
    fake.fill("T", 30)
    fake.committed["T", "alone", 0] = fake.committed["T", "served", 0] = 10
    fake.groups["served"] = 3
    told = look("backlog").out
    assert re.search(r"alone +20 messages waiting, .*; no consumers", told)
    assert re.search(r"served +20 messages waiting, .*; 3 consumers", told)
    lines = {
        line.split()[0]: line.split() for line in look("backlog", "--summary").out.splitlines()
    }
    at = lines["GROUP"].index("CONSUMERS")
    assert (lines["alone"][at], lines["alone"][-1]) == ("0", "NO_CONSUMERS")
    assert (lines["served"][at], lines["served"][-1]) == ("3", "LATE")
    rows = {row["group"]: row for row in look("backlog", "--summary", "--json").rows}
    assert (rows["alone"]["consumers"], rows["served"]["consumers"]) == (0, 3)
    rows = {row["group"]: row for row in look("top", "--json", "--interval", "0.1").rows}
    assert (rows["alone"]["consumers"], rows["alone"]["status"]) == (0, "NO_CONSUMERS")
    assert (rows["served"]["consumers"], rows["served"]["status"]) == (3, "LATE")
    assert look("report", "--output", str(tmp_path / "r.html")).code == 0
    page = (tmp_path / "r.html").read_text()
    assert "; no consumers" in page
    assert "; 3 consumers" in page
    assert "NO_CONSUMERS" in page.partition('id="backlog"')[2]
    assert "alone" in page.partition('class="look"')[2].partition("</section>")[0]
    assert "CONSUMERS" not in run("backlog", golden_550, "--summary").out
    assert "CONSUMERS" not in run("top", golden_550, "--interval", "0.1").out


def test_groups_subscriptions_and_brokers_of_a_cluster(fake: FakeCluster, look: Any) -> None:
    fake.fill("T", 30)
    fake.committed["T", "g", 0] = fake.committed["T", "alone", 0] = 10
    fake.groups["g"] = 2
    fake.subscriptions["g"] = {"T": ("A || B", "TAG")}
    groups = look("groups").out
    assert re.search(r"^GROUP +CONSUMERS +MODEL", groups)
    assert re.search(r"\ng +2 +CLUSTERING", groups)
    assert re.search(r"\nalone +0 +–", groups)
    assert re.search(r"\ng +T +TAG +A \|\| B", look("subscriptions").out)
    assert re.search(rf"\nbroker-a +{fake.address} +[\d.]+", look("brokers").out)


def test_bytes_that_a_cluster_estimates_say_so(
    fake: FakeCluster, look: Any, run: Run, golden_550: Path, tmp_path: Path
) -> None:
    fake.fill("T", 3000)
    fake.fill("EMPTY", 0)
    fake.committed["T", "g", 0] = 1000
    for view, names in (
        ("topics", ["bytes"]),
        ("queues", ["bytes"]),
        ("backlog", ["bytesBehind", "bytesMatching"]),
    ):
        plain = look(view).out
        assert "≈ " in plain
        assert "≈ 0 B" not in plain
        for row in look(view, "--json").rows:
            assert not row.keys() & set(names)
            assert row.keys() >= {f"{name}Estimate" for name in names}
        head = look(view, "--csv").out.partition("\n")[0].split(",")
        assert set(head) >= {f"{name}Estimate" for name in names}
        assert "≈" not in run(view, golden_550).out
        assert run(view, golden_550, "--json").rows[0].keys() >= set(names)
    assert "waiting, ≈ " in look("backlog").out
    assert "≈ " in look("backlog", "--summary").out
    assert look("backlog", "--summary", "--json").rows[0]["bytesBehindEstimate"]
    assert "≈ " in run("table", "backlog", f"rocketmq://{fake.address}").out
    assert look("report", "--output", str(tmp_path / "r.html")).code == 0
    assert re.search(r"2,000 waiting, ≈ [\d.]+ KiB", (tmp_path / "r.html").read_text())


def test_bytes_of_a_cluster_are_exact_where_messages_are_pulled(
    fake: FakeCluster, run: Run
) -> None:
    fake.fill("T", 30, tags=lambda i: "AB"[i % 2])
    fake.committed["T", "g", 0] = 20
    address = f"rocketmq://{fake.address}"
    by_tag = ("backlog", address, "--by-tag"), ("table", "backlog", address, "-o", "byTag=true")
    for words in by_tag:
        assert run(*words, "--json").rows[0].keys() >= {"bytesBehind", "bytesMatching"}
        assert "≈" not in run(*words).out


def test_a_broker_and_a_queue_that_join_are_followed(
    fake: FakeCluster, broker: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.read.follow._FIND_S", 0.0)
    monkeypatch.setattr("mqstore.live.origin.tail.ROUTES_S", 0.0)
    monkeypatch.setattr("mqstore.live.origin.tail.ROUTES_SHARE", 0)
    fake.fill("T", 3, body=lambda i: b"a%d" % i)

    def join() -> None:
        if len(fake.queues) == 1:
            queue = broker.fill("T", 5, broker="broker-b", body=lambda i: b"b%d" % i)
            fake.addresses["broker-b"] = {0: broker.address}
            fake.queues["broker-b", "T", 0] = queue
            fake.fill("Other", 5, broker="broker-b")
            fake.fill("T", 2, queue_id=1, body=lambda i: b"c%d" % i)

    with Named.of([f"rocketmq://{fake.address}"]).opened("T") as stores:
        rows = follow(stores, MessageQuery("T"), ("body",), 0, join)
        bodies = {row["body"] for row in islice(rows, 7)}
    assert bodies == {*(b"b%d" % n for n in range(5)), b"c0", b"c1"}


def test_top_shows_what_a_broker_stores_that_joined(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.read.joining.JOIN_S", 0.0)
    fake.fill("T", 3)
    with (
        Named.of([f"rocketmq://{fake.address}"]).opened(damaged=True) as stores,
        closing(Meter(stores, BacklogRequest())) as meter,
    ):
        assert meter.measure().brokers == ("broker-a",)
        fake.fill("U", 5, broker="broker-b")
        until(lambda: len(meter.measure().brokers) == 2)
        assert "U" in {flow.topic for flow in meter.measure().flows}


def test_top_goes_on_with_the_others_while_a_broker_is_away(
    fake: FakeCluster, broker: FakeCluster
) -> None:
    fake.fill("T", 3)
    fake.committed["T", "g", 0] = 1
    queue = broker.fill("U", 5, broker="broker-b")
    fake.queues["broker-b", "U", 0] = queue
    fake.addresses["broker-b"] = {0: broker.address}
    with (
        Named.of([f"rocketmq://{fake.address}"]).opened(damaged=True) as stores,
        closing(Meter(stores, BacklogRequest())) as meter,
    ):
        assert meter.measure().away == ()
        broker.fault = lambda _: b""
        measured = meter.measure()
        assert [told.partition(":")[0] for told in measured.away] == ["broker-b"]
        assert [(flow.group, flow.lag) for flow in measured.flows][:1] == [("g", 2)]
        broker.fault = lambda _: None
        until(lambda: meter.measure().away == ())


def test_a_watched_backlog_shows_a_broker_that_joins(fake: FakeCluster, run: Run) -> None:
    fake.fill("T", 3)
    fake.committed["T", "g", 0] = 1

    def join(request: dict[str, Any]) -> None:
        looks = sum(one["code"] == 43 for one in fake.requests)
        if request["code"] == 43 and looks == 2:
            fake.fill("T", 5, broker="broker-b")

    fake.fault = join
    words = ("--watch", "--interval", "1", "--count", "3", "--json")
    rows = run("backlog", f"rocketmq://{fake.address}", *words).rows
    assert {row["brokerName"] for row in rows} == {"broker-a", "broker-b"}


def test_a_watched_backlog_goes_on_when_all_servers_were_away(fake: FakeCluster, run: Run) -> None:
    fake.fill("T", 3)
    fake.committed["T", "g", 0] = 1

    def end_the_second(request: dict[str, Any]) -> bytes | None:
        opened = sum(one["opaque"] == 1 for one in fake.requests)  # Twice for each look.
        return b"" if request["opaque"] == 1 and opened == 3 else None

    fake.fault = end_the_second
    words = ("--watch", "--interval", "1", "--count", "3", "--json")
    done = run("backlog", f"rocketmq://{fake.address}", *words)
    assert done.code == 0
    assert len(done.rows) == 2
    assert "MQLOG_BROKER_UNAVAILABLE" in done.err


def test_a_cluster_is_followed_and_its_offsets_are_compared(fake: FakeCluster, look: Any) -> None:
    fake.fill("T", 3, body=lambda i: b"a%d" % i)
    fake.committed["T", "g", 0] = 1
    fake.groups["g"] = 1
    told = look("cat", "T", "--follow", "--since", "1", "-n", "3", "-f", "{body}")
    assert told.out == "a0\na1\na2\n"
    of_a = [row for row in look("offsets", "--json").rows if row["brokerName"] == "broker-a"]
    assert [(row["group"], row["topic"], row["consumerOffset"]) for row in of_a] == [("g", "T", 1)]
    compared = look("lagcompare", "--json").rows
    assert {row["progressDiff"] for row in compared if row["brokerName"] == "broker-a"} == {2}
    for view in ("scheduled", "retries", "halfmessages"):
        assert look(view, "--json") == (0, "", "")
