"""The store that a broker left whose topic has batch ConsumeQueues (queue.type=BatchCQ)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.harness import Broker, Cluster, Dumped, Row

TOPIC: Final = "BCQ"
PLAIN: Final = "Plain"
PUSH_GROUP: Final = "CGALL"
PULL_GROUP: Final = "CGX"
GROUPS: Final = (PUSH_GROUP, PULL_GROUP)
SETTINGS: Final = {"mapperFileSizeBatchConsumeQueue": str(46 * 10)}
"""Files of ten units, so that every queue has several."""


@dataclass(frozen=True, slots=True)
class BatchesLeft:
    """A store as it was beside its broker, and as that left it."""

    beside: Path
    root: Path
    dump: Dumped
    progress: dict[str, list[Row]]
    """consumerProgress by group."""


def leave_batches(cluster: Cluster, folder: Path) -> BatchesLeft:
    """Have a broker keep batches, single messages, and compressed ones in such a topic."""
    root = folder / "store"
    root.mkdir(parents=True)
    with cluster.broker(root, SETTINGS) as broker:
        create_topic(broker)
        broker.produce(TOPIC, "Batch", 40)
        broker.produce(TOPIC, "Single", 6, seed=2)
        broker.produce(TOPIC, "ZipLZ4", 2, seed=3)
        broker.produce(TOPIC, "Batch", 20, seed=4)
        broker.produce(PLAIN, "Single", 10, seed=5)
        broker.commit(TOPIC, PULL_GROUP, 7)
        broker.push(TOPIC, PUSH_GROUP, "*", 60, fail_every=1000)
        progress = {group: broker.consumer_progress(group) for group in GROUPS}
        dump = broker.dump()
        beside = folder / "beside" / "store"
        broker.copy_store(root, beside)
        broker.stop()
    return BatchesLeft(beside, root, dump, progress)


def create_topic(broker: Broker) -> None:
    """Create the topic: 4.9 brokers do not know the attribute."""
    queues = ("-r", "2", "-w", "2", "-a", "+queue.type=BatchCQ")
    told = broker.mqadmin("updateTopic", "-b", broker.address, "-t", TOPIC, *queues)
    assert "success" in told, told
