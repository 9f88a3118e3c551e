"""A topic that was deleted and made again, by a real broker: the client gets the new messages.

So does the client of a broker on a store whose queues were made again from the log, or that was
salvaged; and neither is called damaged.
"""

import shutil
from pathlib import Path

import pytest

from broker.harness import Broker, Cluster, Row
from broker.reading import by_queue, read, told
from mqstore.check import check
from mqstore.copy.salvage import salvage
from mqstore.write.recover import RecoverSettings, recover

pytestmark = pytest.mark.broker

AGAIN, KEPT, GONE = "Again", "Kept", "Gone"
DELETABLE = {"timerWheelEnable": "true"}
"""Without it, a 5.5 broker removes the queues of a topic, and then fails to delete the rest."""


def delete(cluster: Cluster, broker: Broker, topic: str) -> None:
    where = "-n", cluster.name_server, "-c", broker.settings["brokerClusterName"]
    said = broker.mqadmin("deleteTopic", *where, "-t", topic)
    assert "success" in said, said


def served(broker: Broker) -> dict[tuple[str, int], list[Row]]:
    """What the client pulls of the two topics that are left."""
    rows = [row for topic in (AGAIN, KEPT) for row in told(broker.dump(topic).rows)]
    return by_queue(rows)


def test_only_the_new_messages_of_a_topic_that_was_made_again_are_there(
    cluster: Cluster, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    root.mkdir()
    with cluster.broker(root, DELETABLE) as broker:
        for topic, count in ((AGAIN, 100), (KEPT, 30), (GONE, 20)):
            broker.produce(topic, "Single", count)
        for topic in (AGAIN, GONE):
            delete(cluster, broker, topic)
        for topic, count in ((AGAIN, 50), (KEPT, 30)):
            broker.produce(topic, "Single", count)
        expected = served(broker)
        broker.copy_store(root, tmp_path / "killed")
        broker.stop()
    assert sum(map(len, expected.values())) == 110
    assert_verified(root, tmp_path / "killed", expected)
    shutil.copytree(root, tmp_path / "rebuilt")
    shutil.rmtree(tmp_path / "rebuilt" / "consumequeue" / AGAIN)
    recover(tmp_path / "rebuilt", RecoverSettings(rebuild=True))
    recover(tmp_path / "killed", RecoverSettings(rebuild=True, recover_unclean=True))
    assert salvage(root, tmp_path / "salvaged").is_complete
    for name in ("rebuilt", "killed", "salvaged"):
        place = tmp_path / name
        assert [f for f in check(place) if f.severity == "error"] == []
        assert kept(read(place)) == expected
        if name == "killed":
            continue  # As the broker left it, but for the topic that was not made again.
        with cluster.broker(place) as broker:
            assert served(broker) == expected
            broker.produce(AGAIN, "Single", 10)
            broker.wait_for(AGAIN, 60)
            broker.stop()


def kept(rows: list[Row]) -> dict[tuple[str, int], list[Row]]:
    return {queue: of for queue, of in by_queue(rows).items() if queue[0] in {AGAIN, KEPT}}


def assert_verified(root: Path, killed: Path, expected: dict[tuple[str, int], list[Row]]) -> None:
    for place in (root, killed):
        found = [f for f in check(place) if "abort" not in f.file]
        assert [f.topic for f in found] == [AGAIN, GONE]
        assert found[0].problem.startswith("100 messages of the log lie before the first")
        assert found[1].problem.startswith("20 messages of a topic")
        assert {f.severity for f in found} == {"warning"}
        assert kept(read(place)) == expected
