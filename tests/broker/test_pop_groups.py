"""What POP groups have not acknowledged: of a real broker, running, killed, stopped and live."""

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.harness import Cluster
from broker.pop.remote import Handle, Remote
from broker.reading import rows_of
from mqstore.request.plan import plan_read, read_schema
from pyspark_mqlog.options import parse_read

pytestmark = pytest.mark.broker

WITH_TIMERS = {"timerWheelEnable": "true"}
QUEUES = 4
SHORT_MS = 15_000


@pytest.fixture(autouse=True)
def _of_this_version(cluster: Cluster) -> None:
    if cluster.version != "5.5.0":
        pytest.skip("POP is new in 5.x")


def table(place: str, name: str, **options: str) -> list[dict[str, Any]]:
    """Rows of a table, as Spark would plan and read them."""
    parsed = parse_read({"path": f"{place}#{name}", **options})
    work = plan_read(parsed, read_schema(parsed).names).work()
    return [row for part in work for batch in part.batches() for row in rows_of(batch)]


def ids(place: str, group: str, *states: str, **options: str) -> set[str]:
    """The ids of what a group has not acknowledged, in these states or any; none twice."""
    found = table(place, "unacknowledged", groups=group, **options)
    chosen = [row["msgId"] for row in found if not states or row["state"] in states]
    assert len(set(chosen)) == len(chosen)
    return set(chosen)


def totals(place: str, group: str, **options: str) -> Counter[str]:
    """The backlog of a group, its retry topics with it."""
    found: Counter[str] = Counter()
    for row in table(place, "backlog", groups=group, includeSystemTopics="true", **options):
        assert row["mode"].startswith("POP")
        assert row["lag"] == row["unacknowledged"] == row["ready"] + row["inflight"] + row["due"]
        names = ("lag", "ready", "inflight", "due", "redelivered")
        found += Counter({name: row[name] or 0 for name in names})
    return found


def send(client: Remote, topic: str, count: int) -> set[str]:
    keys = [f"{topic}-{number:03}" for number in range(count)]
    for number, key in enumerate(keys):
        client.send(topic, number % QUEUES, key, QUEUES)
    return set(keys)


def wait(is_so: Callable[[], object], seconds: float = 60) -> None:
    """Look all the time until something is so."""
    pause, end = threading.Event(), time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it never came to be so"
        pause.wait(0.2)


def pops(
    client: Remote, count: int, topic: str, group: str, *, invisible: int, most: int = 32
) -> list[Handle]:
    """Pop until the broker gave ``count`` messages: it answers nothing before it entered them."""
    found: list[Handle] = []

    def are_there() -> bool:
        found.extend(client.pop(topic, group, most, invisible))
        return len(found) >= count

    wait(are_there)
    return found


def acknowledge(client: Remote, root: Path, group: str, messages: Sequence[Handle]) -> None:
    """Acknowledge, and wait for the store: a broker answers before it has stored that."""
    left = ids(str(root), group) - {message.uniq_key for message in messages}
    for message in messages:
        client.ack(group, message)
    wait(lambda: ids(str(root), group) == left)


def test_unacknowledged_is_every_message_that_no_consumer_acknowledged(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Id by id: beside the broker, live, as kill -9 leaves it, stopped, and by the log alone."""
    root, killed = tmp_path / "broker" / "store", tmp_path / "killed"
    root.mkdir(parents=True)
    live = f"rocketmq://{cluster.name_server}"
    with cluster.broker(root, WITH_TIMERS) as broker, Remote(broker.address) as client:
        every = send(client, "PopA", 80)
        popped = pops(client, 40, "PopA", "GroupA", most=10, invisible=300_000)
        acknowledge(client, root, "GroupA", popped[::4])
        for message in popped[1::4]:
            client.change("GroupA", message, 600_000)
        acknowledged = {message.uniq_key for message in popped[::4]}
        inflight = {message.uniq_key for message in popped} - acknowledged
        running, of_live = ids(str(root), "GroupA"), ids(live, "GroupA")
        live_inflight = ids(live, "GroupA", "INFLIGHT")
        live_totals = totals(live, "GroupA")
        broker.copy_store(root, killed)
        broker.stop()
    expected = every - acknowledged
    assert running == of_live == expected
    assert ids(str(killed), "GroupA") == ids(str(root), "GroupA") == expected
    assert ids(str(killed), "GroupA", queues="log", cacheDir=str(tmp_path / "cache")) == expected
    assert live_inflight == ids(str(root), "GroupA", "INFLIGHT") == inflight
    for found in (live_totals, totals(str(killed), "GroupA"), totals(str(root), "GroupA")):
        amounts = (found["lag"], found["ready"], found["inflight"], found["due"])
        assert amounts == (70, 40, 30, 0)
    assert totals(str(root), "GroupA")["redelivered"] == 0


def test_a_push_consumer_that_a_broker_has_pop_leaves_what_it_did_not_finish(
    cluster: Cluster, tmp_path: Path
) -> None:
    """An administrator switched its group to POP: it is a POP group before and after."""
    root, topic, group = tmp_path / "broker" / "store", "PopPushed", "PushedGroup"
    root.mkdir(parents=True)
    live = f"rocketmq://{cluster.name_server}"
    with cluster.broker(root, WITH_TIMERS) as broker:
        with Remote(broker.address) as client:
            every = send(client, topic, 30)
        where = ("-b", broker.address, "-t", topic, "-g", group)
        broker.mqadmin("setConsumeMode", *where, "-m", "POP", "-q", "0")
        assert totals(live, group)["ready"] == len(every)
        broker.join(group, topic, how="pops", number=3)
        left = {key for key in every if int(key[-3:]) % 3 == 0}
        wait(lambda: ids(live, group) == left)
        wait(lambda: ids(str(root), group) == left)
        assert ids(live, group, "INFLIGHT") == ids(str(root), group, "INFLIGHT") == left
        broker.leave()
        broker.stop()
    assert ids(str(root), group) == left


def test_revived_messages_are_in_the_retry_topic_and_nowhere_else(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Times run out, copies are made, popped and acknowledged; then the group is drained."""
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    live = f"rocketmq://{cluster.name_server}"
    with cluster.broker(root, WITH_TIMERS) as broker, Remote(broker.address) as client:
        every = send(client, "PopB", 24)
        popped = pops(client, 24, "PopB", "Group_B", most=8, invisible=15_000)
        acknowledge(client, root, "Group_B", popped[::3])
        expected = every - {message.uniq_key for message in popped[::3]}
        left = len(popped) - len(popped[::3])
        looks: list[Path] = []

        def is_revived() -> bool:
            looks.append(tmp_path / f"copy-{len(looks)}")
            broker.copy_store(root, looks[-1])
            assert ids(live, "Group_B") == expected
            return held(live, "%RETRY%Group_B_PopB") == left

        wait(is_revived)
        retried = ids(live, "Group_B", subscribe="%RETRY%Group_B_PopB")
        of_topic = ids(live, "Group_B", subscribe="PopB")
        again = pops(client, len(expected), "PopB", "Group_B", invisible=300_000)
        acknowledge(client, root, "Group_B", again)
        drained = ids(live, "Group_B")
        broker.stop()
    for place in looks:
        assert ids(str(place), "Group_B") == expected
    assert len(retried) == left
    assert of_topic == expected
    assert {message.uniq_key for message in again} == expected
    assert drained == ids(str(root), "Group_B") == set()
    assert totals(str(root), "Group_B")["lag"] == 0


def test_retries_say_what_of_two_groups_with_one_retry_topic_is_popped_and_done(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Pop_R_a and Pop_R share %RETRY%Pop_R_a_b: a split of the name would find one of them."""
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    live, retry = f"rocketmq://{cluster.name_server}", "%RETRY%Pop_R_a_b"
    pairs = {"Pop_R_a": "b", "Pop_R": "a_b"}
    with cluster.broker(root, WITH_TIMERS) as broker, Remote(broker.address) as client:
        sent = {group: send(client, topic, 8) for group, topic in pairs.items()}
        for group, topic in pairs.items():
            assert len(pops(client, 8, topic, group, invisible=15_000)) == 8
        wait(lambda: held(live, retry) == 16)
        popped = {
            group: [m for m in client.pop(topic, group, 5, 300_000) if m.topic == retry]
            for group, topic in pairs.items()
        }
        done = {group: found[0] for group, found in popped.items()}
        for group, handle in done.items():
            client.ack(group, handle)
        # The broker tells name servers of a retry topic with its next heartbeat, up to 30 s later.
        wait(lambda: len(table(live, "retries")) == 16)
        of_live = table(live, "retries")
        broker.stop()
    of_store = table(str(root), "retries")
    for rows in (of_live, of_store):
        for group, topic in pairs.items():
            its = [row for row in rows if row["group"] == group]
            assert {row["msgId"] for row in its} == sent[group]
            assert {row["originTopic"] for row in its} == {topic}
            assert None not in {row["originQueueOffset"] for row in its}
            states = {row["queueOffset"]: row["state"] for row in its}
            given = {handle.queue_offset for handle in popped[group]}
            expected = {n: "INFLIGHT" if n in given else "READY" for n in states}
            if done[group].queue_offset in states:
                expected[done[group].queue_offset] = "DONE"
            assert states == expected
            assert [r["consumed"] for r in its] == [r["state"] == "DONE" for r in its]


def held(place: str, topic: str) -> int:
    """How many messages a topic has; 0 before it is made."""
    found = table(place, "queues", includeSystemTopics="true")
    return sum(row["messageCount"] for row in found if row["topic"] == topic)


def test_a_group_in_order_has_the_holes_of_its_batches(cluster: Cluster, tmp_path: Path) -> None:
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    with cluster.broker(root, WITH_TIMERS) as broker, Remote(broker.address) as client:
        every = send(client, "PopC", 80)
        batch = client.pop("PopC", "GroupC", 8, 90_000, queue_id=1, fifo=True, attempt="a")
        for number in (0, 1, 3, 5):
            client.ack("GroupC", batch[number])
        broker.stop()
    expected = every - {batch[number].uniq_key for number in (0, 1, 3, 5)}
    assert len(batch) == 8
    assert ids(str(root), "GroupC") == expected
    assert ids(str(root), "GroupC", "INFLIGHT") == {batch[n].uniq_key for n in (2, 4, 6, 7)}
    (row,) = (row for row in table(str(root), "backlog", groups="GroupC") if row["queueId"] == 1)
    assert (row["mode"], row["lag"], row["inflight"], row["ready"]) == ("POP_FIFO", 16, 4, 12)


def test_a_restart_after_a_kill_delivers_what_is_redelivered_and_due(
    cluster: Cluster, tmp_path: Path
) -> None:
    """From its queues what was ready and is `redelivered`, from the retry topic what was due."""
    root, killed, retry = tmp_path / "broker" / "store", tmp_path / "killed", "%RETRY%GroupD_PopD"
    root.mkdir(parents=True)
    with cluster.broker(root, WITH_TIMERS) as broker, Remote(broker.address) as client:
        every = send(client, "PopD", 40)
        popped = pops(client, 15, "PopD", "GroupD", most=5, invisible=600_000)
        acknowledge(client, root, "GroupD", popped[::2])
        short = pops(client, 4, "PopD", "GroupD", most=4, invisible=SHORT_MS)
        late = {message.uniq_key for message in short}
        # Else the kill might leave the checkpoint in the log alone, without its unit.
        wait(lambda: late <= ids(str(root), "GroupD", "INFLIGHT", "DUE") or held(str(root), retry))
        broker.kill()
    over = max(message.visible_ms for message in short)
    wait(lambda: time.time() * 1000 > over)
    shutil.copytree(root, killed)
    rows = table(str(killed), "backlog", groups="GroupD", includeSystemTopics="true")
    inflight, due = (sum(row[name] for row in rows) for name in ("inflight", "due"))
    of_topic, of_retry = (
        sum(row["ready"] + row["redelivered"] for row in rows if row["topic"] == topic)
        for topic in ("PopD", retry)
    )
    # Where this machine took longer than SHORT_MS, the broker had copied some of them already.
    assert (inflight, due + of_retry) == (len(popped) - len(popped[::2]), len(late))
    with cluster.broker(root, WITH_TIMERS) as broker, Remote(broker.address) as client:
        expected = of_topic + of_retry + due
        again = pops(client, expected, "PopD", "GroupD", invisible=600_000)
        again += client.pop("PopD", "GroupD", 32, 600_000)
        broker.stop()
    given = Counter(message.topic for message in again)
    assert given["PopD"] == of_topic
    assert given[retry] in {of_retry + due, 2 * of_retry + due}  # The last copies are made again.
    fresh = {message.uniq_key for message in again if message.topic == "PopD"}
    assert fresh >= every - {message.uniq_key for message in [*popped, *short]}
    assert {message.uniq_key for message in again if message.topic == retry} == late
    acknowledged = {message.uniq_key for message in popped[::2]}
    assert ids(str(killed), "GroupD") == every - acknowledged


def test_acknowledgements_of_many_at_once_and_timers_that_roll_are_read(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A timer that waits longer than the wheel turns is stored again: twice the same checkpoint."""
    root, killed = tmp_path / "broker" / "store", tmp_path / "killed"
    root.mkdir(parents=True)
    live = f"rocketmq://{cluster.name_server}"
    settings = WITH_TIMERS | {"timerRollWindowSlot": "4", "enableRetryTopicV2": "true"}
    with cluster.broker(root, settings) as broker, Remote(broker.address) as client:
        every = send(client, "PopE", 40)
        popped = pops(client, 40, "PopE", "GroupE", most=20, invisible=600_000)
        done = popped[::3]
        client.ack_all("GroupE", done, "broker-a")
        left = every - {message.uniq_key for message in done}
        wait(lambda: ids(str(root), "GroupE") == left)

        def has_rolled() -> bool:
            timers = client.held("rmq_sys_wheel_timer")
            assert "bAck" in {timer.tags for timer in timers}
            rolls = [timer.properties_map.get("TIMER_ROLL_TIMES") for timer in timers]
            return any(rolls) and len(timers) > len({t.properties_map["UNIQ_KEY"] for t in timers})

        wait(has_rolled)
        of_live = ids(live, "GroupE", "INFLIGHT")
        broker.copy_store(root, killed)
        broker.stop()
    assert of_live == left
    for place in (killed, root):
        assert ids(str(place), "GroupE", "INFLIGHT") == left
        assert totals(str(place), "GroupE")["inflight"] == len(left)
