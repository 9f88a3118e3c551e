"""Writes to real brokers of both versions: what the official clients get is what was written."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from broker.harness import FAST_DELAYS, Cluster
from live.real import READING, Live, full_rows
from mqstore.codec.client_ids import IdSet
from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.once.commit import publish
from mqstore.deliver.once.errors import PublicationError
from mqstore.deliver.once.handed import HandedRows
from mqstore.deliver.once.publish import Publication, Write
from mqstore.deliver.once.wire import LiveWire
from mqstore.deliver.prepare import prepare
from mqstore.deliver.settings import SendSettings
from mqstore.deliver.task import hand_on, send
from mqstore.errors import MessageTooLargeError
from mqstore.live.cluster import ClusterSettings
from mqstore.stage.task import CHUNK_ROWS
from support import soak
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


@pytest.mark.soak
def test_exactly_once_though_the_broker_and_publishers_are_killed(live: Live) -> None:
    """Each write is killed at another place; then its broker too; then it runs to its end."""
    more = {"delivery": "exactlyOnce", "txn_app_id": "app", "fence_wait_ms": 500}
    more |= {"batch_max_messages": 50, "topic": "Once"}
    parts = [rows(300, body=[b"%d" % (n // 2) for n in range(600)][first : first + 300])
             for first in (0, 300)]  # fmt: skip
    kills = [None, "rows", "broker", "before COMMIT"]
    writes = soak.size("LIVE_WRITES", check=4, test=4, full=1_000)
    for version in range(writes):
        kill = kills[version % len(kills)]
        job = prepare(settings_for(live, txn_version=version, **more), parts[0].schema)
        reports = [hand_on(job, [part], partition=n, attempt=1) for n, part in enumerate(parts)]
        if kill is not None:
            with pytest.raises((StoppedError, PublicationError)):
                stopped(live, job, reports, kill)
        done = publish(job, reports[::-1])
        assert not done.is_repeated
        assert publish(job, reports).is_repeated
    live.broker.wait_for("Once", 600 * writes)
    found = Counter(row["bodySha1"] for row in told(live, "Once"))
    assert found == {
        hashlib.sha1(b"%d" % n, usedforsecurity=False).hexdigest(): 2 * writes for n in range(300)
    }


def test_exactly_once_on_two_brokers_of_which_one_is_killed(
    live: Live, cluster: Cluster, tmp_path: Path
) -> None:
    second = Live(cluster, tmp_path / "store", FAST_DELAYS | {"brokerName": "broker-b"})
    try:
        more = {"delivery": "exactlyOnce", "txn_app_id": "two", "txn_version": 0}
        more |= {"topic": "Both", "batch_max_messages": 50, "fence_wait_ms": 500}
        parts = [rows(300, body=[b"%d" % (n + first) for n in range(300)]) for first in (0, 300)]
        job = prepare(settings_for(live, **more), parts[0].schema)
        reports = [hand_on(job, [part], partition=n, attempt=1) for n, part in enumerate(parts)]
        with pytest.raises((StoppedError, PublicationError)):
            stopped(second, job, reports, "broker")
        assert publish(job, reports[::-1]).messages == 600
        held = [one for one in live.bounds() if one.topic == "Both"]
        assert {one.broker for one in held} == {"broker-a", "broker-b"}
        assert all(one.high > 0 for one in held)
        bodies = Counter(row["body"] for row in full_rows(live.pulled(held)))
        assert bodies == Counter(b"%d" % n for n in range(600))
    finally:
        second.close()


class StoppedError(Exception):
    """The publisher's process ended here."""


class StoppingWire(LiveWire):
    """The wire of a publisher that is killed: while its rows are under way, or before COMMIT."""

    def __init__(self, job: SendJob, found: HandedRows, live: Live, kill: str) -> None:
        super().__init__(job, found)
        self._live = live
        self._kill = kill

    def send(self, landed: Set[str], check: Callable[[], None]) -> None:
        if self._kill == "before COMMIT":
            super().send(landed, check)
            raise StoppedError
        assert self._sender is not None
        for number, parcel in enumerate(self._rows.parcels(landed)):
            self._sender.send(parcel)
            if number == 5:
                break
        if self._kill == "broker":
            self._live.kill()
            self._live.start()
        raise StoppedError


def stopped(live: Live, job: SendJob, reports: list[SendReport], kill: str) -> None:
    assert job.key is not None
    found = HandedRows.of(job, [report.handed for report in reports])
    write = Write(job.key.app_id, job.key.version, IdSet(found.ids))
    with StoppingWire(job, found, live, kill) as wire:
        Publication(write, wire, f"killed {kill}").run()
