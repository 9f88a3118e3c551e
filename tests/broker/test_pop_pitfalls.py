"""POP groups whose topic is made again, or whose offset is set back: what a fresh consumer gets."""

from pathlib import Path

import pytest

from broker.harness import Broker, Cluster
from broker.pop.remote import Remote
from broker.test_pop_groups import WITH_TIMERS, held, ids, pops, table, wait

pytestmark = pytest.mark.broker

LONG_MS = 600_000


@pytest.fixture(autouse=True)
def _of_this_version(cluster: Cluster) -> None:
    if cluster.version != "5.5.0":
        pytest.skip("POP is new in 5.x")


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


def delete(broker: Broker, topic: str) -> None:
    where = ("-n", broker._cluster.name_server, "-c", broker.settings["brokerClusterName"])
    said = broker.mqadmin("deleteTopic", *where, "-t", topic)
    assert "delete topic" in said


def test_pops_of_a_topic_that_was_deleted_say_nothing_of_the_one_made_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Acknowledged all, or half and the rest open: of the new one nothing was popped."""
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    live = f"rocketmq://{cluster.name_server}"
    groups = {"GroupDone": ("Done", 20), "GroupHalf": ("Half", 10)}
    with cluster.broker(root, WITH_TIMERS) as broker, Remote(broker.address) as client:
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
                wait(lambda group=group, new=new: ids(live, group) == new)
                assert ids(live, group, "READY") == new
            broker.copy_store(root, copy)
            for group, (topic, _) in groups.items():
                assert ids(str(copy), group) == ids(str(copy), group, "READY") == news[group]
                assert delivered(client, topic, group) == news[group]
        wait(lambda: not ids(live, "GroupDone") | ids(live, "GroupHalf"))
        broker.stop()
    assert not ids(str(root), "GroupDone") | ids(str(root), "GroupHalf")


def test_what_lies_behind_an_offset_that_was_set_back_is_ready(
    cluster: Cluster, tmp_path: Path
) -> None:
    """By the request of clients and by the tool, with all acknowledged and with some in flight."""
    root = tmp_path / "broker" / "store"
    root.mkdir(parents=True)
    live = f"rocketmq://{cluster.name_server}"
    with cluster.broker(root, WITH_TIMERS) as broker, Remote(broker.address) as client:
        expected = {}
        for topic, group, done in (("Back", "GBack", 15), ("BackOpen", "GBackOpen", 9)):
            every = sorted(send(client, topic, "m", 30))
            popped(client, topic, group, 15, done)
            assert len(ids(live, group)) == 30 - done
            client.ask(15, consumerGroup=group, topic=topic, queueId=0, commitOffset=5)
            expected[group] = set(every[5:])
            assert ids(live, group, "READY") == expected[group]
            assert delivered(client, topic, group) == expected[group]
        assert ids(live, "GBack") == set()
        broker.stop()


KV_ON = WITH_TIMERS | {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}


def test_a_group_of_the_kv_service_is_told_as_far_as_it_shows(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Live KV_UNKNOWN, of a store by its entries: 10 are ready, and 5 in flight."""
    root, running = tmp_path / "broker" / "store", tmp_path / "running"
    root.mkdir(parents=True)
    live, retry = f"rocketmq://{cluster.name_server}", "%RETRY%g_kv_x_y_kv"
    with cluster.broker(root, KV_ON) as broker, Remote(broker.address) as client:
        every = send(client, "x_y_kv", "m", 30)
        popped(client, "x_y_kv", "g_kv", 20, 15)
        (row,) = table(live, "backlog", groups="g_kv")
        told = row["mode"], row["status"], row["lag"], row["ready"], row["inflight"]
        assert told == ("POP_KV", "KV_UNKNOWN", 10, 10, None)
        assert "NO_MEMBERS" not in {one["verdict"] for one in table(live, "verdicts")}
        broker.copy_store(root, running)
        assert len(ids(str(running), "g_kv")) == 15
        short = pops(client, 10, "x_y_kv", "g_kv", most=10, invisible=2_000)
        wait(lambda: held(live, retry) == 10)
        assert len({handle.uniq_key for handle in short} & every) == 10
        broker.stop()
