"""A slave that is stopped with records that its group has not agreed on, and started again.

No epoch begins meanwhile, so nothing but its queues and its index tells of it. A broker that was
stopped cleanly enters what lies behind the end of its queues when it starts, but for the first
record. The group agrees on all of them later.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.harness import Cluster
from broker.replicas import REPLICAS, Replicas
from broker.test_fail_overs import PARTED, TOPIC, held, pulled
from broker.toolchain import Toolchain
from mqstore.errors import CorruptStoreError
from support import planned, soak
from support.processes import until

pytestmark = [pytest.mark.broker, pytest.mark.soak]
ALONE = "Alone"


@pytest.fixture(scope="module")
def today(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(toolchain, "5.5.1", tmp_path_factory.mktemp("restarts-")) as cluster:
        yield cluster


@soak.only
@pytest.mark.parametrize("queues", ["files", "RocksDB"])
def test_a_replica_that_restarts_within_an_epoch_has_each_message_and_finds_it_by_key(
    today: Cluster, tmp_path: Path, queues: str
) -> None:
    """The record left out is the only one of its queue, or others of its queue are behind it."""
    settings = {"allAckInSyncStateSet": "true"}
    if queues == "RocksDB":
        settings["storeType"] = "defaultRocksDB"
    with Replicas(today, tmp_path, settings) as group:
        master = group.master()
        group.in_sync(len(REPLICAS))
        broker = group.brokers[master]
        broker.send_keyed(TOPIC, "a", 60)
        broker.send_keyed(ALONE, "a", 4)
        hanging, other = (name for name in REPLICAS if name != master)
        for number, (topic, count) in enumerate(((ALONE, 1), (TOPIC, 40))):
            group.brokers[hanging].freeze()
            broker.send_keyed(topic, f"u{number}", count)
            broker.send_keyed(TOPIC, f"v{number}", 20)
            group.brokers[other].stop()
            group.start(other)
            group.brokers[hanging].thaw()
            group.in_sync(len(REPLICAS))
            broker.send_keyed(TOPIC, f"b{number}", 60)
            for name in (TOPIC, ALONE):
                judge(group, master, other, name, tmp_path / f"{number}-{name}")


def judge(group: Replicas, master: str, replica: str, topic: str, copy: Path) -> None:
    """Judge a replica's disk, when it has all, by what the client pulls from the master."""
    truth, cache = pulled(group, master, topic), copy.parent / "cache"
    said = ""

    def has_all() -> bool:
        nonlocal said
        shutil.rmtree(copy, ignore_errors=True)
        group.brokers[replica].copy_store(group.roots[replica], copy)
        try:
            said = ""
            return held(copy, topic=topic) == truth
        except CorruptStoreError as error:
            said = str(error)
            assert any(word in said for word in PARTED)
            return held(copy, cache, topic=topic) == truth

    until(has_all, pause_s=0.2)
    soak.tell(f"{copy.name}: {len(truth)} messages, by queues: {said or 'all'}")
    keys = sorted(truth.values())
    by_log = {"queues": "log", "cacheDir": str(cache)} if said else {}
    rows = planned.rows(str(copy), subscribe=topic, keys=json.dumps(keys), **by_log)
    assert sorted(row["keys"] for row in rows) == keys
