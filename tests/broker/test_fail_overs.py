"""Fail-overs of a controller's group: each disk judged by what producers and clients were told.

A group of three goes through one fail-over after the other. Its master ends in one of four ways, as
often in each, most often while a slave hangs: what is sent then, no producer is told to be stored.
Then another replica leads on, takes more messages, and the old one comes back and cuts its log.

A disk holds no record that the group never had, and that of the living master all that was
acknowledged: by its queues and by its log, before and after it was stopped. With
``allAckInSyncStateSet=false`` the old master itself told producers that it has a message, and the
group may lose it: there a disk may have what it acknowledged.

A broker that was stopped with records that its group had not agreed on enters them into its queues
when it starts, but for the first one. Where some of them became messages a queue goes on without
one, and consumers of that broker never get it: there a read is an error with a name, and a read by
the log has all. Such a replica begins with an empty disk before it can be elected.
"""

import json
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from broker.harness import Cluster, Row
from broker.replicas import REPLICAS, Replicas
from broker.toolchain import Toolchain
from mqstore.check import check
from mqstore.errors import CorruptStoreError
from support import planned, soak
from support.processes import until

pytestmark = [pytest.mark.broker, pytest.mark.soak]

FAIL_OVERS: Final = soak.size("fail_overs", check=1, test=1, whole=13)
"""Of each of the four groups."""
TOPIC: Final = "FailOvers"
ENDS: Final = ("kill", "freeze", "stop", "pause")
"""Of a master: one that is frozen is killed later, one that is paused goes on while others lead."""
PARTED: Final = ("index and queueOffset part", "the queue has no unit of queue offset")
Place = tuple[int, int, str]


@dataclass
class Told:
    """What producers were told of all messages: key → status."""

    status: dict[str, str] = field(default_factory=dict)

    def take(self, rows: Sequence[Row]) -> None:
        self.status |= {str(row["key"]): str(row["status"]) for row in rows}

    @property
    def acknowledged(self) -> set[str]:
        return {key for key, status in self.status.items() if status == "SEND_OK"}


def held(root: Path, cache: Path | None = None, topic: str = TOPIC) -> dict[Place, str]:
    """Return the key of each message of a disk, by its queues or by its log."""
    by_log = {} if cache is None else {"queues": "log", "cacheDir": str(cache)}
    rows = planned.rows(str(root), subscribe=topic, columns="full", **by_log)
    return {(r["queueId"], r["queueOffset"], r["msgId"]): r["keys"] for r in rows}


def pulled(group: Replicas, master: str, topic: str = TOPIC) -> dict[Place, str]:
    """Return what the client pulls from the master."""
    dumped = group.brokers[master].dump(topic)
    assert dumped.problems == []
    return {
        (r["queueId"], r["queueOffset"], r["msgId"]): r["properties"]["KEYS"] for r in dumped.rows
    }


def fates(count: int, seed: int) -> list[tuple[str, bool]]:
    """Return what ends each master, and whether a slave hangs by then, in an order of the seed.

    Each end comes as often as the others, and with a slave that hangs twice as often as without.
    """
    every = [(end, hangs) for hangs in (True, False, True) for end in ENDS]
    drawn = [every[number % len(every)] for number in range(count)]
    random.Random(seed).shuffle(drawn)
    return drawn


class FailOver:
    """One fail-over of a group: how many messages are sent, and which slave hangs, are drawn."""

    def __init__(
        self, group: Replicas, told: Told, folder: Path, number: int, fate: tuple[str, bool]
    ) -> None:
        rng = random.Random(f"{soak.SEED} {number}")
        self._group, self._told, self._folder = group, told, folder
        self._name = f"f{number}"
        self._end, self._hangs = fate
        self._counts = [rng.randrange(20, 90) for _ in range(3)]
        self._slaves = rng.sample((0, 1), 2)
        self._judged = 0
        self._since = time.monotonic()
        self.says = f"{self._name}: {self._end}, a slave {'hangs' if self._hangs else 'is well'}"

    def run(self, *, is_all_acknowledged: bool) -> None:
        """Let it happen, and judge the disks."""
        group, told = self._group, self._told
        first = group.master()
        group.in_sync(len(REPLICAS))
        self._send(first, "a", self._counts[0])
        slaves = [name for name in REPLICAS if name != first]
        hanging, other = (slaves[number] for number in self._slaves)
        if self._hangs:
            group.brokers[hanging].freeze()
            self._send(first, "u", self._counts[1])
            group.brokers[other].kill()
        self._end_master(first)
        if self._hangs:
            group.brokers[hanging].thaw()
        second = group.master(other_than=first)
        self._after(f"{second} leads")
        if self._end == "freeze":
            group.brokers[first].kill()
        acknowledged = self._send(second, "b", self._counts[2])
        truth = pulled(group, second)
        assert acknowledged <= set(truth.values()), self.says
        if is_all_acknowledged:
            assert told.acknowledged <= set(truth.values()), self.says
        allowed = set(truth)
        ended = (first, other) if self._hangs else (first,)
        for name in ended:
            self._judge(f"{name}-ended", group.roots[name], allowed, is_all_acknowledged)
        copy = self._folder / f"{self._name}-{second}-live"
        group.brokers[second].copy_store(group.roots[second], copy)
        self._judge_living(copy, truth)
        self._after("judged")
        for name in ended:
            if name == first and self._end == "pause":
                group.brokers[name].thaw()
            else:
                group.start(name)
        self._after("started")
        group.in_sync(len(REPLICAS))
        self._after("in sync")
        parted = [name for name in REPLICAS if not self._followed(name, truth)]
        assert pulled(group, second) == truth, self.says
        for name in parted:
            soak.tell(f"{self.says}: {name} left a record out of a queue")
            group.anew(name)
        self._after(f"{self._judged} disks judged")

    def _after(self, what: str) -> None:
        soak.tell(f"{self.says}: {what} after {time.monotonic() - self._since:.0f} s")

    def _send(self, master: str, word: str, count: int) -> set[str]:
        """Send so many messages; return the keys of those that were acknowledged."""
        rows = self._group.brokers[master].send_keyed(TOPIC, f"{self._name}{word}", count)
        self._told.take(rows)
        return {str(row["key"]) for row in rows if row["status"] == "SEND_OK"}

    def _end_master(self, name: str) -> None:
        broker = self._group.brokers[name]
        if self._end == "stop":
            broker.stop()
        elif self._end == "kill":
            broker.kill()
        else:
            broker.freeze()

    def _judge(self, name: str, root: Path, truth: set[Place], is_all: bool) -> None:
        """Judge a disk of a replica that ended: it has nothing that the group never had."""
        copy = self._folder / f"{self._name}-{name}"
        shutil.copytree(root, copy)
        acknowledged = self._told.acknowledged
        for found in (held(copy), held(copy, self._folder / "cache")):
            extra = {key for place, key in found.items() if place not in truth}
            assert not (extra if is_all else extra - acknowledged), (self.says, name)
        self._verify(copy)

    def _judge_living(self, root: Path, truth: dict[Place, str]) -> None:
        """Judge the disk of the master: it has all that the client gets, and no more."""
        assert held(root) == truth, self.says
        assert held(root, self._folder / "cache") == truth, self.says
        keys = sorted(truth.values())
        found = planned.rows(str(root), subscribe=TOPIC, keys=json.dumps(keys))
        assert sorted(row["keys"] for row in found) == keys, self.says
        self._verify(root)

    def _followed(self, name: str, truth: dict[Place, str]) -> bool:
        """Wait until a replica has all, and judge a copy; tell whether its queues have all."""
        copy, cache = self._folder / f"{self._name}-{name}-followed", self._folder / "cache"
        is_parted = False

        def has_all() -> bool:
            nonlocal is_parted
            shutil.rmtree(copy, ignore_errors=True)
            self._group.brokers[name].copy_store(self._group.roots[name], copy)
            try:
                return held(copy) == truth
            except CorruptStoreError as error:
                is_parted = any(word in str(error) for word in PARTED)
                return is_parted and held(copy, cache) == truth

        until(has_all, pause_s=0.2)
        if is_parted:
            shutil.rmtree(copy)
            self._judged += 1
        else:
            self._judge_living(copy, truth)
        return not is_parted

    def _verify(self, root: Path) -> None:
        assert [f for f in check(root) if f.severity == "error"] == [], self.says
        shutil.rmtree(root)
        self._judged += 1


@pytest.fixture(scope="module")
def today(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(toolchain, "5.5.1", tmp_path_factory.mktemp("fail-overs-")) as cluster:
        yield cluster


@soak.only
@pytest.mark.parametrize("queues", ["files", "RocksDB"])
@pytest.mark.parametrize("is_all_acknowledged", [True, False])
def test_each_disk_has_what_its_group_agreed_on(
    today: Cluster, tmp_path: Path, is_all_acknowledged: bool, queues: str
) -> None:
    settings = {"allAckInSyncStateSet": str(is_all_acknowledged).lower()}
    if queues == "RocksDB":
        settings["storeType"] = "defaultRocksDB"
    told = Told()
    with Replicas(today, tmp_path, settings) as group:
        group.master()
        for number, fate in enumerate(fates(FAIL_OVERS, soak.SEED)):
            fail_over = FailOver(group, told, tmp_path, number, fate)
            fail_over.run(is_all_acknowledged=is_all_acknowledged)
