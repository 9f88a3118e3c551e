"""Writes to real brokers of both versions: what the official clients get is what was written."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from broker.harness import BROKER_NAME, FAST_DELAYS, Cluster
from broker.reading import as_dumped
from broker.reading import told as comparable
from broker.toolchain import VERSIONS
from deliver.failing_trial import is_whole
from live.real import READING, Live, full_rows
from mqstore.deliver.once.commit import publish
from mqstore.deliver.prepare import prepare
from mqstore.deliver.replay.rows import LEFT_OUT
from mqstore.deliver.settings import SendSettings
from mqstore.deliver.task import hand_on, send
from mqstore.errors import MessageTooLargeError, UnknownTopicError
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.write.stage.task import CHUNK_ROWS
from support import goldens, soak
from support.processes import until
from support.writing import rows

pytestmark = pytest.mark.broker
one_version = pytest.mark.parametrize(
    "cluster", soak.sample(VERSIONS, check=1, test=1), indirect=True, scope="session"
)
"""What takes long and is the same for us with each version; the other tests take both."""

MAP = pa.map_(pa.string(), pa.string())
COUNT = 60
CLI = "from mqlog_jobs import cli; cli.main()"


@pytest.fixture(scope="module")
def live(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    root = tmp_path_factory.mktemp(f"sent-{cluster.version}-") / "store"
    found = Live(cluster, root, FAST_DELAYS)
    yield found
    found.close()


def settings_for(live: Live, **more: Any) -> SendSettings:
    found = ClusterSettings(name_servers=live.name_servers, limits=READING, retry_timeout_ms=30_000)
    return SendSettings(**{"cluster": found, "create_topic": True, "queue_nums": 3, **more})


def sent(live: Live, part: pa.RecordBatch, **settings: Any) -> None:
    job = prepare(settings_for(live, **settings), part.schema)
    report = send(job, [part], partition=0, attempt=1)
    assert (report.counts.messages, report.counts.repeats) == (part.num_rows, 0)


def told(live: Live, topic: str) -> list[dict[str, Any]]:
    """What the official client pulls of a topic, by queue and offset."""
    return live.broker.dump(topic).rows


def columns(bodies: list[bytes]) -> dict[str, Any]:
    count = len(bodies)
    return {
        "body": bodies,
        "topic": None,
        "tags": [("TagA", None, "TagB")[n % 3] for n in range(count)],
        "keys": [f"k{n} every" for n in range(count)],
        "properties": pa.array([[("own", f"é{n}")] if n % 2 else [] for n in range(count)], MAP),
        "queueId": [n % 3 for n in range(count)],
        "flag": list(range(count)),
    }


@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_official_clients_get_what_was_sent_in_its_order(live: Live, compression: str) -> None:
    topic = f"Sent-{compression}"
    bodies = [b"%d " % n * (1 + 40 * (n % 5)) for n in range(COUNT)]
    compress = {"compress_over": 100} if compression != "none" else {}
    more = {"compression": compression, "batch_max_messages": 7, **compress}
    sent(live, rows(COUNT, **columns(bodies)), topic=topic, **more)
    live.broker.wait_for(topic, COUNT)
    expected = columns(bodies)
    found = told(live, topic)
    assert [(r["queueId"], r["queueOffset"]) for r in found] == [
        (queue_id, at) for queue_id in range(3) for at in range(COUNT // 3)
    ]
    for row in found:
        n = row["queueId"] + 3 * row["queueOffset"]
        wanted = {"KEYS": f"k{n} every", "WAIT": "true"}
        wanted |= {"TAGS": expected["tags"][n]} if expected["tags"][n] else {}
        wanted |= {"own": f"é{n}"} if n % 2 else {}
        kept = {k: v for k, v in row["properties"].items() if k not in {"UNIQ_KEY", "CLUSTER"}}
        assert kept == wanted
        assert row["msgId"] == row["properties"]["UNIQ_KEY"]
        assert (row["flag"], row["bodyLen"]) == (n, len(bodies[n]))
        assert row["bodySha1"] == hashlib.sha1(bodies[n], usedforsecurity=False).hexdigest()
    group = f"GROUP-{topic}"
    tagged = sum(tag == "TagA" for tag in expected["tags"])
    assert live.broker.push(topic, group, "TagA", tagged, 1_000_000) == 0


@pytest.mark.parametrize("delivery", ["atLeastOnce", "exactlyOnce"])
def test_every_kind_comes_out_of_a_push_consumer_and_our_reader_as_it_went_in(
    live: Live, delivery: str
) -> None:
    """But an empty body, on which the push consumer of 4.9 fails."""
    topic, is_once = f"Every-{delivery}", delivery == "exactlyOnce"
    bodies = [b"%d " % n * (1 + 40 * (n % 5)) for n in range(COUNT - 1)] + [b"large " * 20_000]
    delays = [int(n % 10 == 9) * (not is_once) for n in range(COUNT)]
    wanted = columns(bodies) | {"shardingKey": ["s" if n % 4 else None for n in range(COUNT)]}
    more = {"compression": "zlib", "compress_over": 100, "topic": topic, "batch_max_messages": 7}
    part = rows(COUNT, **wanted | ({} if is_once else {"delayTimeLevel": delays}))
    if is_once:
        once = {"delivery": delivery, "txn_app_id": topic, "txn_version": 1}
        job = prepare(settings_for(live, **once, **more), part.schema)
        assert publish(job, [hand_on(job, [part], partition=0, attempt=1)]).messages == COUNT
    else:
        sent(live, part, **more)
    pushed = live.broker.pushed(topic, f"GROUP-{topic}", COUNT)
    for row in pushed:
        del row["properties"]["CONSUME_START_TIME"]  # The consumer's own.
    assert sorted(number_of(row) for row in pushed) == list(range(COUNT))
    for row in pushed:
        n = number_of(row)
        digest = hashlib.sha1(bodies[n], usedforsecurity=False).hexdigest()
        assert (row["bodySha1"], row["flag"], row["queueId"]) == (digest, n, n % 3)
        properties = row["properties"]
        assert properties.get("TAGS") == wanted["tags"][n]
        assert properties.get("own") == (f"é{n}" if n % 2 else None)
        assert properties.get("__SHARDINGKEY") == wanted["shardingKey"][n]
        assert row["store"] - row["born"] >= 900 * delays[n]
    for queue_id in range(3):
        queue = [row for row in pushed if row["queueId"] == queue_id]
        assert [row["queueOffset"] for row in queue] == list(range(len(queue)))
        at_once = [number_of(row) for row in queue if not delays[number_of(row)]]
        assert at_once == sorted(at_once)
    held = [one for one in live.bounds() if one.topic == topic]
    ours = [as_dumped(row) for row in full_rows(live.pulled(held))]
    by_place = itemgetter("queueId", "queueOffset")
    assert sorted(ours, key=by_place) == sorted(comparable(pushed), key=by_place)


def number_of(row: dict[str, Any]) -> int:
    return int(row["properties"]["KEYS"].split()[0][1:])


def test_a_delayed_message_comes_later_and_an_empty_one_comes(live: Live) -> None:
    part = rows(3, body=[b"now", b"late", b""], topic=None, delayTimeLevel=[0, 1, 0])
    sent(live, part, topic="Late")
    live.broker.wait_for("Late", 3)
    found = told(live, "Late")
    assert sorted(row["bodyLen"] for row in found) == [0, 3, 4]
    late = next(row for row in found if row["bodyLen"] == 4)
    assert late["properties"]["REAL_TOPIC"] == "Late"
    assert late["store"] - late["born"] >= 900


def test_a_large_message_goes_alone_and_one_too_large_is_not_sent(live: Live) -> None:
    """The files of this broker's log have 262,144 bytes."""
    bodies = [b"a", b"b" * 200_000, b"c"]
    sent(live, rows(3, body=bodies, topic=None), topic="Large", batch_max_bytes=50_000)
    live.broker.wait_for("Large", 3)
    assert sorted(row["bodyLen"] for row in told(live, "Large")) == [1, 1, 200_000]
    with pytest.raises(MessageTooLargeError, match="a CommitLog file"):
        sent(live, rows(1, body=[b"b" * 262_000], topic=None), topic="Large")


@pytest.mark.soak
@one_version
def test_a_topic_whose_deletion_ended_half_way_breaks_no_read_and_is_made_again(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker has it no more (request 215), and the name server still shows it there."""
    topic, part = "Half-deleted", rows(3, topic=None)
    sent(live, part, topic=topic)
    # Code 1: 5.5 without a timer wheel fails behind the deletion.
    accepts = frozenset({0, 1})
    delete = Request("DELETE_TOPIC_IN_BROKER", 215, {"topic": topic}, accepts=accepts)
    live.cluster.ask(BROKER_NAME, delete)
    assert live.cluster.route(topic, fresh=True) is not None
    queues = live.bounds()
    assert queues
    assert topic not in {queue.topic for queue in queues}
    (warned,) = [r.getMessage() for r in caplog.records if topic in r.getMessage()]
    assert f"name servers show topic {topic} on {BROKER_NAME}, which does not have it" in warned
    with pytest.raises(UnknownTopicError, match="no broker has Half-deleted any more"):
        sent(live, part, topic=topic, create_topic=False, queue_nums=None)
    sent(live, part, topic=topic)
    live.broker.wait_for(topic, 3)
    assert {row["queueId"] for row in told(live, topic)} == {0, 1, 2}


def test_a_broker_that_is_killed_and_started_again_loses_nothing(live: Live) -> None:
    """Rows are there at least once, with one id each, in whatever batch it was killed."""
    job = prepare(settings_for(live, topic="Killed", batch_max_messages=500), rows(1).schema)
    wanted = list(range(3 * CHUNK_ROWS))
    restarted: list[Any] = []

    def killing() -> Iterator[pa.RecordBatch]:
        for first in range(0, len(wanted), CHUNK_ROWS):
            if first == CHUNK_ROWS:
                live.kill()
                restarted.append(pool.submit(live.start))
            yield rows(CHUNK_ROWS, body=[b"%d" % n for n in wanted[first:][:CHUNK_ROWS]])

    with ThreadPoolExecutor(1) as pool:
        report = send(job, killing(), partition=0, attempt=1)
        for one in restarted:
            one.result(120)
    every: list[dict[str, Any]] = []

    def whole() -> list[dict[str, Any]]:
        return [row for row in every if is_whole(row["properties"].get("UNIQ_KEY"))]

    def is_visible() -> bool:
        every[:] = told(live, "Killed")
        return len({row["msgId"] for row in whole()}) >= len(wanted)

    until(is_visible)
    found = whole()
    assert len(every) - len(found) <= 1  # The one that the killed broker was about to store.
    assert {row["bodySha1"] for row in found} == {
        hashlib.sha1(b"%d" % n, usedforsecurity=False).hexdigest() for n in wanted
    }
    assert len({row["msgId"] for row in found}) == len(wanted)
    assert report.counts.messages == len(wanted)
    assert len(found) - len(wanted) <= 500 * report.counts.repeats


def replay(source: Path | str, live: Live, *more: str) -> list[str]:
    words = [sys.executable, "-c", CLI, "replay", str(source), live.address, *more]
    return [*words, "--create-topic", "-o", "fenceWait=500ms", "--json"]


def replayed(source: Path | str, live: Live, *more: str) -> dict[str, Any]:
    done = subprocess.run(
        replay(source, live, *more), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def as_sent(row: dict[str, Any]) -> tuple[str, int, dict[str, str]]:
    """What a producer said of a message that the official client read: a golden one, or a copy."""
    left_out = LEFT_OUT | {"UNIQ_KEY"}
    kept = {name: value for name, value in row["properties"].items() if name not in left_out}
    return row["bodySha1"], row["flag"], kept


@pytest.mark.soak
@one_version
def test_a_golden_store_is_replayed_once_though_the_command_is_killed(
    live: Live, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    version = live.broker.version
    root: Path = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    topic = {"4.9.7": "HTopic", "5.5.0": "GTopic"}[version]
    chosen = ("--topic", topic, "-o", "queueNums=4", "--offset-map", f"parquet:{tmp_path}/map")
    slow = (*chosen, "--rate", "200")
    with subprocess.Popen(replay(root, live, *slow), stdout=subprocess.DEVNULL) as killed:
        until(lambda: sum(q.high for q in live.bounds() if q.topic == topic) > 100)
        killed.kill()
    wanted = [row for row in goldens.expected(version) if row["topic"] == topic]
    done = replayed(root, live, *chosen)
    assert (done["messages"], 100 < done["found"] < len(wanted)) == (len(wanted), True)
    again = replayed(root, live, *chosen)
    assert (again["messages"], again["before"]) == (0, len(wanted))
    live.broker.wait_for(topic, len(wanted))
    found = {(row["queueId"], row["queueOffset"]): row for row in told(live, topic)}
    assert len(found) == len(wanted)
    moved = ds.dataset(tmp_path / "map", format="parquet").to_table().to_pylist()
    to = {(r["queueId"], r["queueOffset"]): (r["newQueueId"], r["newQueueOffset"]) for r in moved}
    for row in wanted:
        place = row["queueId"], row["queueOffset"]
        assert to[place] == place  # The same queue, and the same order from its begin.
        assert as_sent(found[to[place]]) == as_sent(row)
    ids = {(row["newQueueId"], row["newQueueOffset"]): row["msgId"] for row in moved}
    assert ids == {place: row["msgId"] for place, row in found.items()}


def readable(live: Live, topic: str) -> bool:
    route = live.cluster.route(topic, fresh=True)
    return route is not None and bool(route.queues)


def test_a_dead_letter_goes_back_to_its_topic(live: Live) -> None:
    """The broker makes it one, as for a consumer that gives up; 4.9 lets nobody read it then."""
    sent(live, rows(3, topic=None, tags="t", keys="k", flag=7), topic="Failing")
    live.broker.wait_for("Failing", 3)
    live.broker.commit("Failing", "GIVES_UP", 0)
    first = told(live, "Failing")[0]
    back = {"offset": str(first["physicalOffset"]), "group": "GIVES_UP", "delayLevel": "-1"}
    back |= {"originMsgId": "", "originTopic": "Failing", "unitMode": "false"}
    live.cluster.ask("broker-a", Request("CONSUMER_SEND_MSG_BACK", 36, back))
    dead = "%DLQ%GIVES_UP"
    until(lambda: live.cluster.route(dead, fresh=True) is not None)  # It is registered later.
    until(lambda: live.broker.held(dead) == 1)
    where = ("-b", live.broker.address, "-n", live.name_servers[1])
    live.broker.mqadmin("updateTopicPerm", *where, "-t", dead, "-p", "6")
    until(lambda: readable(live, dead))
    done = replayed(live.address, live, "--topic", dead, "--to-origin")
    assert done["topics"] == {"Failing": 1}
    live.broker.wait_for("Failing", 4)
    copies = [as_sent(row) for row in told(live, "Failing") if row["bodySha1"] == first["bodySha1"]]
    # A broker sets WAIT=false in what failed, so a dead letter does not tell what it was.
    kept = {name: value for name, value in as_sent(first)[2].items() if name != "WAIT"}
    assert copies == [as_sent(first), (first["bodySha1"], first["flag"], kept)]
    assert replayed(live.address, live, "--topic", dead, "--to-origin")["messages"] == 0
