"""Writes to real brokers of both versions: what the official clients get is what was written."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from broker.harness import FAST_DELAYS, Cluster
from broker.reading import as_dumped
from broker.reading import told as comparable
from live.real import READING, Live, full_rows
from mqstore.deliver.once.commit import publish
from mqstore.deliver.prepare import prepare
from mqstore.deliver.settings import SendSettings
from mqstore.deliver.task import hand_on, send
from mqstore.errors import MessageTooLargeError
from mqstore.live.cluster import ClusterSettings
from mqstore.stage.task import CHUNK_ROWS
from support.writing import rows

pytestmark = pytest.mark.broker

MAP = pa.map_(pa.string(), pa.string())
COUNT = 60


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
    return [row for row in live.broker.dump().rows if row["topic"] == topic]


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
    live.broker.wait_for("Killed", len(wanted))
    found = told(live, "Killed")
    assert {row["bodySha1"] for row in found} == {
        hashlib.sha1(b"%d" % n, usedforsecurity=False).hexdigest() for n in wanted
    }
    assert len({row["msgId"] for row in found}) == len(wanted)
    assert report.counts.messages == len(wanted)
    assert len(found) - len(wanted) <= 500 * report.counts.repeats
