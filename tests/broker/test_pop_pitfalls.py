"""POP groups whose topic is made again, or whose offset is set back: what a fresh consumer gets.

A broker of 5.1.4 has no timer topic for clients: live, a group that pops is one that pulls until
something of it was delivered again, and it is known how many are ready, not which.
"""

import re
from pathlib import Path

import pytest

from broker.harness import Broker, Cluster
from broker.pop.remote import Remote
from broker.test_pop_groups import WITH_TIMERS, held, ids, pops, table, wait
from support import soak

pytestmark = [pytest.mark.broker, pytest.mark.soak]

LONG_MS = 600_000
GET_CONSUME_STATS = 208
HIDES_TIMERS = "5.1.4"


def of_versions(*others: str) -> pytest.MarkDecorator:
    """Run with 5.5.0, and in `make soak` with the others."""
    more = (pytest.param(version, marks=soak.only_whole) for version in others)
    return pytest.mark.parametrize("pop_cluster", ["5.5.0", *more], indirect=True)


def send(client: Remote, topic: str, name: str, count: int) -> set[str]:
    """Send messages to the one queue of a topic."""
    keys = [f"{topic}-{name}-{number:02}" for number in range(count)]
    for key in keys:
        client.send(topic, 0, key, 1)
    return set(keys)


def popped(client: Remote, topic: str, group: str, count: int, done: int) -> None:
    """Pop the first messages of a topic, and acknowledge some of them."""
    handles = pops(client, count, topic, group, most=count, invisible=LONG_MS)
    for handle in handles[:done]:
        client.ack(group, handle)


def delivered(client: Remote, topic: str, group: str) -> set[str]:
    """What a fresh consumer gets, and acknowledges."""
    handles = []
    while found := client.pop(topic, group, 32, LONG_MS, queue_id=0):
        handles += found
    for handle in handles:
        client.ack(group, handle)
    return {handle.uniq_key for handle in handles}


def are_ready(
    pop_cluster: Cluster, topic: str, group: str, new: set[str], *, is_new: bool = False
) -> bool:
    """Whether just these are not acknowledged, live, and none of them was popped.

    ``is_new``: the group has no offset of the topic yet.
    """
    live = f"rocketmq://{pop_cluster.name_server}"
    rows = [row for row in table(live, "backlog", groups=group) if row["topic"] == topic]
    if pop_cluster.version == HIDES_TIMERS:
        if is_new:
            return not rows
        return [(row["lag"], row["inflight"]) for row in rows] == [(len(new), None)]
    if [row["ready"] for row in rows] != [len(new)]:
        return False
    return ids(live, group) == ids(live, group, "READY") == new


def printed_inflight(client: Remote, topic: str, group: str) -> int:
    """What consumerProgress prints of a topic's one queue (ConsumeStats), which is never 0 here."""
    _, _, _, body = client.ask(GET_CONSUME_STATS, consumerGroup=group, topic=topic)
    numbers = dict(re.findall(rb'"(pullOffset|consumerOffset)":(-?\d+)', body))
    found = int(numbers[b"pullOffset"]) - int(numbers[b"consumerOffset"])
    assert found > 0
    return found


def delete(broker: Broker, topic: str) -> None:
    where = ("-n", broker._cluster.name_server, "-c", broker.settings["brokerClusterName"])
    said = broker.mqadmin("deleteTopic", *where, "-t", topic)
    assert "delete topic" in said


@of_versions("5.5.1", "5.3.3", "5.1.4")
def test_pops_of_a_topic_that_was_deleted_say_nothing_of_the_one_made_again(
    pop_cluster: Cluster, tmp_path: Path
) -> None:
    """Acknowledged all, or half and the rest open: of the new one nothing was popped."""
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    groups = {"GroupDone": ("Done", 20), "GroupHalf": ("Half", 10)}
    with pop_cluster.broker(root, WITH_TIMERS) as broker, Remote(broker.address) as client:
        for group, (topic, done) in groups.items():
            send(client, topic, "old", 20)
            popped(client, topic, group, 20, done)
            delete(broker, topic)
        copies = [tmp_path / name for name in ("unpopped", "popped", "longer")]
        for step, copy in enumerate(copies):
            news = {
                group: send(client, topic, f"new{step}", 12 if step == 0 else 5)
                for group, (topic, _) in groups.items()
            }
            for group, new in news.items():
                wait(
                    lambda topic=groups[group][0], group=group, new=new, is_new=not step: are_ready(
                        pop_cluster, topic, group, new, is_new=is_new
                    )
                )
            broker.copy_store(root, copy)
            for group, (topic, _) in groups.items():
                assert ids(str(copy), group) == ids(str(copy), group, "READY") == news[group]
                assert delivered(client, topic, group) == news[group]
        for group, (topic, _) in groups.items():
            wait(lambda topic=topic, group=group: are_ready(pop_cluster, topic, group, set()))
        broker.stop()
    assert not ids(str(root), "GroupDone") | ids(str(root), "GroupHalf")


@of_versions("5.5.1", "5.3.3", "5.1.4")
def test_what_lies_behind_an_offset_that_was_set_back_is_ready(
    pop_cluster: Cluster, tmp_path: Path
) -> None:
    """By the request of clients and by the tool, with all acknowledged and with some in flight."""
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    live = f"rocketmq://{pop_cluster.name_server}"
    with pop_cluster.broker(root, WITH_TIMERS) as broker, Remote(broker.address) as client:
        expected = {}
        for topic, group, done in (("Back", "GBack", 15), ("BackOpen", "GBackOpen", 9)):
            every = sorted(send(client, topic, "m", 30))
            popped(client, topic, group, 15, done)
            if pop_cluster.version != HIDES_TIMERS:
                assert len(ids(live, group)) == 30 - done
            client.ask(15, consumerGroup=group, topic=topic, queueId=0, commitOffset=5)
            expected[group] = set(every[5:])
            if pop_cluster.version == HIDES_TIMERS:
                assert are_ready(pop_cluster, topic, group, expected[group])
            else:
                assert ids(live, group, "READY") == expected[group]
            assert delivered(client, topic, group) == expected[group]
        assert are_ready(pop_cluster, "Back", "GBack", set())
        broker.stop()


KV_ON = WITH_TIMERS | {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}


@of_versions("5.5.1", "5.3.3")
def test_a_group_of_the_kv_service_is_told_as_far_as_it_shows(
    pop_cluster: Cluster, tmp_path: Path
) -> None:
    """Live KV_UNKNOWN, of a store by its entries: 10 are ready, and 5 in flight."""
    root, running = tmp_path / "broker" / "store", tmp_path / "running"
    root.mkdir(parents=True)
    live, retry = f"rocketmq://{pop_cluster.name_server}", "%RETRY%g_kv_x_y_kv"
    with pop_cluster.broker(root, KV_ON) as broker, Remote(broker.address) as client:
        every = send(client, "x_y_kv", "m", 30)
        popped(client, "x_y_kv", "g_kv", 20, 15)
        rows = {row["topic"]: row for row in table(live, "backlog", groups="g_kv")}
        row = rows.pop("x_y_kv")
        assert [(name, more["lag"]) for name, more in rows.items()] in ([], [(retry, 0)])
        told = row["mode"], row["status"], row["lag"], row["ready"], row["inflight"]
        assert told == ("POP_KV", "KV_UNKNOWN", 10, 10, None)
        (compared,) = [
            one for one in table(live, "lagcompare", groups="g_kv") if one["topic"] == "x_y_kv"
        ]
        assert compared["progressInflight"] == printed_inflight(client, "x_y_kv", "g_kv")
        assert "NO_MEMBERS" not in {one["verdict"] for one in table(live, "verdicts")}
        broker.copy_store(root, running)
        assert len(ids(str(running), "g_kv")) == 15
        short = pops(client, 10, "x_y_kv", "g_kv", most=10, invisible=2_000)
        wait(lambda: held(live, retry) == 10)
        assert len({handle.uniq_key for handle in short} & every) == 10
        broker.stop()
