"""Faults of consumer groups on real brokers of both versions: each has its verdict and no other."""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.harness import BROKER_NAME, Broker, Cluster
from mqstore.request.plan import plan_read, read_schema
from mqstore.verdicts import bounds
from pyspark_mqlog.options import parse_read
from support import soak
from support.expectations import rows

pytestmark = pytest.mark.broker
TOPIC = "Why"
LOCK_BATCH_MQ = 41
SECONDS = 60
HOURS = ";".join(f"{hour:02}" for hour in range(24))


def table(place: str, name: str, **options: str) -> list[dict[str, Any]]:
    """The rows of a table, as Spark would plan and read them."""
    parsed = parse_read({"path": f"{place}#{name}", **options})
    work = plan_read(parsed, read_schema(parsed).names).work()
    return [row for part in work for batch in part.batches() for row in rows(batch)]


def lock_all(broker: Broker, group: str, queues: int) -> None:
    """Lock all queues of the topic for a client that is not a member, as one that was killed."""
    named = [
        {"brokerName": BROKER_NAME, "queueId": number, "topic": TOPIC} for number in range(queues)
    ]
    body = json.dumps({"consumerGroup": group, "clientId": "gone", "mqSet": named}).encode()
    header = {"code": LOCK_BATCH_MQ, "language": "JAVA", "opaque": 1, "version": 355}
    head = json.dumps(header | {"flag": 0, "serializeTypeCurrentRPC": "JSON"}).encode()
    host, _, port = broker.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as peer:
        peer.sendall(struct.pack(">ii", 4 + len(head) + len(body), len(head)) + head + body)
        length, mark = struct.unpack(">ii", peer.recv(8, socket.MSG_WAITALL))
        answer = peer.recv(length - 4, socket.MSG_WAITALL)
    found = json.loads(answer[mark & 0xFFFFFF :])
    assert len(found["lockOKMQSet"]) == queues


def wait_for_words(place: str, group: str, words: list[str]) -> list[dict[str, Any]]:
    """The verdicts about a group when they are those words; members join by and by."""
    end, pause = time.monotonic() + SECONDS, threading.Event()
    while True:
        found = table(place, "verdicts", groups=group)
        if [row["verdict"] for row in found] == words:
            return found
        told = [f"{row['verdict']}: {row['evidence']}" for row in found]
        assert time.monotonic() < end, told
        pause.wait(0.5)


def wait_until_consumed(place: str, group: str) -> None:
    end, pause = time.monotonic() + SECONDS, threading.Event()
    while True:
        found = table(place, "backlog", groups=group, subscribe=TOPIC)
        if found and all(row["lag"] == 0 and row["consumerOffset"] for row in found):
            return
        assert time.monotonic() < end, found
        pause.wait(0.5)


def test_faults_of_real_groups_have_their_verdicts_and_a_group_that_works_has_none(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "WAITING_MS", 0)  # A minute of waiting is not what is tried here.
    monkeypatch.setattr(bounds, "TURN_MS", 0)  # Nor are three commits: it waits for them itself.
    root = tmp_path / "store"
    with cluster.broker(root, {"mappedFileSizeCommitLog": "65536"}) as broker:
        place = f"rocketmq://{cluster.name_server}"
        broker.produce(TOPIC, "Single", 120)
        queues = len(broker.topic_status(TOPIC))
        broker.commit(TOPIC, "CG_AWAY", 1)
        broker.commit(TOPIC, "CG_AHEAD", 10_000)
        broker.commit(TOPIC, "CG_ORDER", 1)
        lock_all(broker, "CG_ORDER", queues)
        broker.join("CG_ORDER", TOPIC, how="orders")
        broker.join("CG_MIX", TOPIC, "TagA || TagB")
        broker.join("CG_MIX", TOPIC, "TagA")
        broker.join("CG_WORKS", TOPIC)
        try:
            (away,) = wait_for_words(place, "CG_AWAY", ["NO_MEMBERS"])
            ahead = wait_for_words(place, "CG_AHEAD", ["AHEAD"] * queues)
            order = wait_for_words(place, "CG_ORDER", ["PAUSED_BY_ORDER"] * queues)
            (mix,) = wait_for_words(place, "CG_MIX", ["INCONSISTENT_SUBSCRIPTION"])
            wait_until_consumed(place, "CG_WORKS")
            assert table(place, "verdicts", groups="CG_WORKS") == []
            assert table(place, "verdicts", groups="CG_WORKS", lookAgain="1s") == []
            broker.produce("Filler", "Single", 300)
            for name, value in (("deleteWhen", HOURS), ("fileReservedTime", "1")):
                broker.mqadmin(
                    "updateBrokerConfig", "-n", cluster.name_server, "-b", broker.address,
                    "-k", name, "-v", value,
                )  # fmt: skip
            lost = wait_for_words(place, "CG_AWAY", ["NO_MEMBERS", *["EXPIRING"] * queues])
        finally:
            broker.leave()
        broker.stop()
    assert json.loads(away["numbers"]) == {"consumers": 0, "lagMatching": 120 - queues}
    left_ms = json.loads(lost[1]["numbers"])["leftMs"]
    assert 3_600_000 - SECONDS * 10_000 < left_ms < 3_600_000
    assert json.loads(mix["numbers"]) == {"members": 2, "expressions": 2}
    assert " to TagA by " in mix["evidence"]
    assert " to TagA || TagB by " in mix["evidence"]
    assert (
        "no member was given the queue, and no member, of 1, holds the queue's lock"
        in order[0]["evidence"]
    )
    # Of the store that the broker left, what needs its consumers is not known.
    kept = [(row["group"], row["verdict"], row["numbers"]) for row in table(str(root), "verdicts")]
    assert kept == [(row["group"], row["verdict"], row["numbers"]) for row in ahead]


def mqlog(*words: str, lines: Sequence[str] = ()) -> None:
    """Run the command, with lines as its input."""
    text = "".join(f"{line}\n" for line in lines)
    subprocess.run([sys.executable, "-m", "mqlog", *words], input=text, text=True, check=True)


def send(place: str, topic: str, queue_ids: Sequence[int]) -> None:
    """Send a message to each of these queues, in this order."""
    lines = [json.dumps({"body": "b", "queueId": number}) for number in queue_ids]
    mqlog("send", place, topic, "--json-lines", lines=lines)


def moved(place: str, group: str, queue_ids: set[int], since: dict[int, int]) -> bool:
    """Whether the offsets of just those queues moved."""
    rows = table(place, "backlog", groups=group, subscribe=TOPIC)
    now = {row["queueId"]: row["consumerOffset"] or 0 for row in rows}
    return {number for number, at in now.items() if at > since.get(number, 0)} == queue_ids


def offsets(place: str, group: str) -> dict[int, int]:
    rows = table(place, "backlog", groups=group, subscribe=TOPIC)
    return {row["queueId"]: row["consumerOffset"] or 0 for row in rows}


def wait_until(is_so: Callable[[], bool]) -> None:
    end, pause = time.monotonic() + SECONDS, threading.Event()
    while not is_so():
        assert time.monotonic() < end
        pause.wait(0.2)


def test_faults_of_consumers_have_their_verdicts_and_no_other(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "WAITING_MS", 0)  # A minute of waiting is not what is tried here.
    monkeypatch.setattr(bounds, "TURN_MS", 0)  # Nor are three commits: it waits for them itself.
    root, file = tmp_path / "store", str(tmp_path / "samples.parquet")
    with cluster.broker(root, {"messageDelayLevel": "1s " * 17 + "1s"}) as broker:
        place = f"rocketmq://{cluster.name_server}"
        broker.produce(TOPIC, "Single", 40)
        broker.produce("One", "Single", 1)
        queues = range(len(broker.topic_status(TOPIC)))
        others = set(queues) - {1}
        broker.commit(TOPIC, "CG_FILTER", 1)
        broker.commit(TOPIC, "CG_HOT", 10)
        broker.join("CG_HANGS", TOPIC, how="hangs", number=1)
        broker.join("CG_SLOW", TOPIC, how="dawdles", number=1_000)
        broker.join("CG_NEW", TOPIC, how="hangs", number=-1)
        broker.join("CG_POISON", "One", how="fails", number=16)
        broker.join("CG_DEAD", "One", how="fails", number=2)
        broker.join("CG_HOT", "One")
        try:
            only = {"CG_FILTER": {TOPIC: "NoSuchTag"}}
            (none,) = of_group(place, "CG_FILTER", subscriptions=json.dumps(only))
            assert none["verdict"] == "FILTER_ONLY"
            takes = json.dumps({"CG_NEW": {TOPIC: "*"}})
            wait_until(lambda: words_of(place, "CG_NEW", takes) == ["NEVER_COMMITTED"])
            (poison,) = wait_for_words(place, "CG_POISON", ["POISON"])
            wait_for_words(place, "CG_DEAD", ["DEAD_LETTERS"])
            wait_until(lambda: moved(place, "CG_HANGS", others, {}))
            wait_until(lambda: moved(place, "CG_SLOW", set(queues), {}))
            mqlog("record", place, file, "--count", "1")
            before = offsets(place, "CG_SLOW")
            send(place, TOPIC, [*queues] * 100)
            wait_until(lambda: moved(place, "CG_SLOW", set(queues), before))
            wait_until(lambda: moved(place, "CG_HANGS", others, dict.fromkeys(others, 50)))
            wait_until(lambda: words_since(place, "CG_HANGS", file) == ["STUCK_QUEUE"])
            (stuck,) = of_group(place, "CG_HANGS", samples=file)
            (slow,) = of_group(place, "CG_SLOW", samples=file)
            assert (stuck["verdict"], stuck["queueId"]) == ("STUCK_QUEUE", 1)
            assert slow["verdict"] == "SLOW_CONSUMER"
            send(place, TOPIC, [2] * 1_000)
            broker.commit(TOPIC, "CG_HOT", 100)
            hot = of_group(place, "CG_HOT")
        finally:
            broker.leave()
        broker.stop()
    assert json.loads(poison["numbers"])["reconsumeTimes"] >= bounds.MIN_TRIES
    assert [(row["verdict"], row["queueId"]) for row in hot] == [("HOT_QUEUE", 2)]


def of_group(place: str, group: str, **options: str) -> list[dict[str, Any]]:
    return table(place, "verdicts", groups=group, **options)


def words_since(place: str, group: str, samples: str) -> list[str]:
    return [row["verdict"] for row in of_group(place, group, samples=samples)]


def words_of(place: str, group: str, subscriptions: str) -> list[str]:
    found = of_group(place, group, subscriptions=subscriptions)
    return [row["verdict"] for row in found]


def test_twenty_groups_that_work_have_no_verdict_under_load(
    cluster: Cluster, tmp_path: Path
) -> None:
    with cluster.broker(tmp_path / "store") as broker:
        place = f"rocketmq://{cluster.name_server}"
        broker.produce(TOPIC, "Single", 40)
        for number in range(20):
            broker.join(f"CG_H{number}", TOPIC)
        try:
            for number in range(20):
                wait_until_consumed(place, f"CG_H{number}")
            file = str(tmp_path / "samples.parquet")
            mqlog("record", place, file, "--count", "1")
            load = threading.Thread(target=broker.produce, args=(TOPIC, "Single", 3_000))
            load.start()
            looks = 0
            while load.is_alive() or not looks:
                assert table(place, "verdicts", groups="/CG_H.*/") == []
                assert table(place, "verdicts", groups="/CG_H.*/", lookAgain="500ms") == []
                assert table(place, "verdicts", groups="/CG_H.*/", samples=file) == []
                looks += 1
            load.join()
        finally:
            broker.leave()
        broker.stop()


REPEATS = soak.size("verdict_repeats", check=1, test=1, whole=3)
LOADS = soak.size("verdict_loads", check=1, test=1, whole=2)
LOOKS_APART = "15s"
SPIN = "import os\nwhile os.getppid() == {}: pass"


@contextmanager
def loaded(processes: int) -> Iterator[None]:
    """So many processes that compute all the while, beside the test and its broker."""
    words = [sys.executable, "-c", SPIN.format(os.getpid())]
    busy = [subprocess.Popen(words) for _ in range(processes - 1)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait(SECONDS)


@pytest.mark.soak
@pytest.mark.parametrize("load", [1, 8][:LOADS])
@pytest.mark.parametrize("time", range(REPEATS))
def test_what_stands_and_what_only_takes_its_turn_at_the_bounds_of_the_rules(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: int, load: int
) -> None:
    """Two looks that are three commits apart: the bounds are those that users have."""
    del time
    monkeypatch.setattr(bounds, "WAITING_MS", 5_000)  # Else each group would wait for a minute.
    root = tmp_path / "store"
    healthy = [f"CG_H{number}" for number in range(4)]
    with loaded(load), cluster.broker(root) as broker:
        place = f"rocketmq://{cluster.name_server}"
        broker.produce(TOPIC, "Single", 600)
        queues = len(broker.topic_status(TOPIC))
        broker.commit(TOPIC, "CG_AWAY", 1)
        broker.commit(TOPIC, "CG_DEAF", 1)
        broker.join("CG_DEAF", TOPIC, how="hangs", number=-1)
        broker.join("CG_TURNS", TOPIC, how="rotates", number=150)
        broker.join("CG_ONE", TOPIC, how="hangs", number=1)
        for group in healthy:
            broker.join(group, TOPIC)
        try:
            for group in healthy:
                wait_until_consumed(place, group)
            wait_until(
                lambda: (
                    moved(place, "CG_ONE", set(range(queues)) - {1}, {})
                    or any(offsets(place, "CG_ONE").values())
                )
            )
            wait_until(lambda: any(at > 0 for at in offsets(place, "CG_TURNS").values()))
            wait_until(lambda: oldest_ms(place, "CG_DEAF") >= bounds.WAITING_MS)
            send(place, TOPIC, [number for number in range(queues) if number != 1] * 5)
            feed = threading.Timer(5, send, (place, TOPIC, [*range(queues)] * 3))
            feed.start()
            rows = table(place, "verdicts", lookAgain=LOOKS_APART)
            feed.join(SECONDS)
        finally:
            broker.leave()
        words: dict[str, set[str]] = {}
        for row in rows:
            words.setdefault(row["group"], set()).add(row["verdict"])
        assert words.pop("CG_AWAY") == {"NO_MEMBERS"}
        assert words.pop("CG_DEAF") == {"STANDS_STILL"}
        assert words.pop("CG_ONE") == {"STUCK_QUEUE"}
        # It works off 6 or 7 messages a second, and less than comes in at times.
        assert words.pop("CG_TURNS", set()) <= {"SLOW_CONSUMER"}
        assert words == {}, rows
        broker.stop()
    # Of the store that is left nothing moves any more, and nobody says who is connected.
    left = table(str(root), "verdicts", lookAgain=LOOKS_APART)
    standing = {row["group"] for row in left if row["verdict"] == "STANDS_STILL"}
    assert {"CG_AWAY", "CG_DEAF", "CG_ONE"} <= standing
    assert {row["verdict"] for row in left} == {"STANDS_STILL"}, left
    # One look cannot know it, and says nothing.
    assert table(str(root), "verdicts") == []


def oldest_ms(place: str, group: str) -> int:
    rows = table(place, "backlog", groups=group, subscribe=TOPIC)
    return max((row["lagMs"] or 0 for row in rows), default=0)
