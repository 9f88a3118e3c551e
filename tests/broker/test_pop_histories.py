"""POP groups by histories that a seed draws: what no consumer acknowledged, id by id.

Each life of a broker has several groups, whose consumers pop, acknowledge every second message or
so, change invisible times, and die. It runs, is stopped, runs, is killed with -9, and runs on. The
ids never acknowledged are those that the client knows of; mqlog sees files, or the cluster.
"""

import json
import random
import re
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from broker.harness import Broker, Cluster
from broker.pop.player import LONG_MS, SHORT_MS, Player, now_ms
from broker.pop.remote import Remote, retry_topic
from mqstore.pop import look
from support import goldens, oracle, planned, soak
from support.processes import until

pytestmark = [pytest.mark.broker, pytest.mark.soak]

VERSIONS: Final = ("5.5.0", "5.5.1", "5.3.3", "5.1.4")
CLASSIC, MERGE, KV, RETRY_V2 = "classic", "merge", "kv", "retry-v2"
KV_ON: Final = {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
SETTINGS: Final = {
    CLASSIC: {},
    MERGE: {"enablePopBufferMerge": "true"},
    KV: KV_ON,
    RETRY_V2: {"enableRetryTopicV2": "true"},
}
GROUPS: Final = 5
"""Of one life; each is a scenario of its own."""
LIVES: Final = soak.size("pop_lives", check=0, test=3, whole=20)
FIRST: Final = (
    ("5.5.0", CLASSIC),
    ("5.1.4", CLASSIC),
    ("5.5.0", KV),
    ("5.3.3", CLASSIC),
    ("5.5.0", MERGE),
    ("5.5.0", RETRY_V2),
    ("5.3.3", KV),
    ("5.3.3", MERGE),
    ("5.1.4", MERGE),
    ("5.5.1", KV),
    ("5.5.1", RETRY_V2),
)
MARKER: Final = "Marker"
Place = tuple[str, int, int]


def lives() -> list[tuple[str, str, int]]:
    """The lives of this run: version, service, seed."""
    drawn = [(*FIRST[number % len(FIRST)], number + soak.SEED) for number in range(LIVES)]
    return sorted(drawn, key=lambda life: VERSIONS.index(life[0]))


@dataclass
class Life:
    """One broker, from its start on an empty store; ``players`` are its groups."""

    cluster: Cluster
    root: Path
    service: str
    players: list[Player]
    was_killed: bool = False
    marks: int = 0
    copies: int = field(default=0)

    def settings(self) -> dict[str, str]:
        return {"timerWheelEnable": "true"} | SETTINGS[self.service]

    def play(self, remote: Remote, steps: int) -> None:
        for player in self.players:
            player.play(remote, steps)
        self.dispatched(remote)

    def dispatched(self, remote: Remote) -> None:
        """Return when all that was stored so far is in ConsumeQueues: they follow the log."""
        self.marks += 1
        remote.send(MARKER, 0, f"mark-{self.marks}", 1)
        until(lambda: len(remote.held(MARKER)) == self.marks)

    def settled(self, remote: Remote) -> None:
        """Return when short times are over, copies are made, buffers and offsets are written."""
        latest = max(
            (h.visible_ms for h in self.handles() if h.invisible_ms == SHORT_MS), default=0
        )
        until(lambda: now_ms() > latest)
        revived = {
            self.retry_topic(p): len([h for h in p.ledger.handles() if h.visible_ms <= latest])
            for p in self.players
            if not p.ledger.is_fifo
        }
        before = {topic: self.popped_of(topic) for topic in revived}
        until(lambda: all(
            len(remote.held(topic)) >= before[topic] + count for topic, count in revived.items()
        ))  # fmt: skip
        since = time.time() + (14 if self.service == MERGE else 0)
        offsets = self.root / "config" / "consumerOffset.json"
        until(lambda: offsets.exists() and offsets.stat().st_mtime > since)
        orders = self.root / "config" / "consumerOrderInfo.json"
        has_fifo = any(p.ledger.is_fifo and p.ledger.deliveries for p in self.players)
        until(lambda: not has_fifo or (orders.exists() and orders.stat().st_mtime > since - 5))
        self.dispatched(remote)

    def handles(self) -> list[Any]:
        return [handle for player in self.players for handle in player.ledger.handles()]

    def popped_of(self, topic: str) -> int:
        """How many messages of a retry topic were popped, so that its copies are older."""
        return len({h.place for p in self.players for h in p.ledger.deliveries if h.topic == topic})

    def look(
        self, path: str | Path, state: str, *, is_quiet: bool, remote: Remote | None = None
    ) -> None:
        """Compare what mqlog says of a store, or of the cluster of ``remote``, with the ledgers."""
        is_live = remote is not None
        for player in self.players:
            ledger = player.ledger
            if is_live and (self.service == KV or ledger.is_fifo or self.hides_timers):
                continue  # A broker does not tell: ROCKETMQ5.md.
            if ledger.is_fifo and not is_quiet:
                continue  # Pops in order leave nothing but a file, written every five seconds.
            if not ledger.deliveries:
                continue  # No broker knows the group.
            found = ids_of(path, ledger.group, is_still=is_quiet or not is_live)
            expected = ledger.expected(self.copies_of(path, player, remote))
            if self.service == MERGE and not is_live:
                # Pops are in memory alone before the file of offsets has their queue.
                queues = queues_with_offsets(Path(path), ledger.topic, ledger.group)
                expected = {key for key in expected if ledger.sent[key][1] in queues} | (
                    expected & found
                )
            counts = f"{len(ledger.deliveries)} deliveries"
            where = f"{self.cluster.version} {self.service} {ledger.group} {state}, {counts}"
            assert expected - found == set(), f"{where}: too few"
            if self.is_exact(is_quiet=is_quiet):
                assert found - expected == set(), f"{where}: too many"
            else:
                assert found - expected <= ledger.acked_ms.keys(), f"{where}: never acknowledged"

    def retry_topic(self, player: Player) -> str:
        ledger = player.ledger
        return retry_topic(ledger.group, ledger.topic, is_v2=self.service == RETRY_V2)

    def copies_of(
        self, path: str | Path, player: Player, remote: Remote | None
    ) -> dict[Place, str]:
        """What the retry topic of a group holds, by the log of a store or by the broker."""
        topic = self.retry_topic(player)
        if remote is not None:
            found = remote.held(topic)
        else:
            log = (file.read_bytes() for file in sorted((Path(path) / "commitlog").iterdir()))
            found = [m for data in log for _, m in oracle.walk(data) if m.topic == topic]
        return {(topic, m.queue_id, m.queue_offset): m.properties_map["UNIQ_KEY"] for m in found}

    @property
    def hides_timers(self) -> bool:
        """Whether its broker refuses requests for the timer topic."""
        return self.cluster.version == "5.1.4"

    def is_exact(self, *, is_quiet: bool) -> bool:
        """Whether nothing is in memory alone; by ROCKETMQ5.md, What nobody can know."""
        if self.service == KV and self.cluster.version in ("5.3.3", "5.5.1"):
            return False  # They write no offsets of pops: the last batch of a queue is not known.
        return self.service not in (KV, MERGE) or (is_quiet and not self.was_killed)

    def copied(self, broker: Broker) -> Path:
        self.copies += 1
        into = self.root.parent / f"copy-{self.copies}"
        broker.copy_store(self.root, into)
        return into


def queues_with_offsets(root: Path, topic: str, group: str) -> set[int]:
    """The queues of a topic that the file of offsets has for a group."""
    file = root / "config" / "consumerOffset.json"
    text = re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', file.read_text()) if file.exists() else "{}"
    table = json.loads(text).get("offsetTable", {})
    return {int(queue_id) for queue_id in table.get(f"{topic}@{group}", {})}


def ids_of(path: str | Path, group: str, *, is_still: bool) -> set[str]:
    """The keys of what a group has not acknowledged; the table and the backlog agree.

    Those are two looks: at a broker that writes what it had buffered, they are of two moments.
    """
    rows = planned.rows(str(path), table="unacknowledged", groups=group)
    counted = planned.rows(str(path), table="backlog", groups=group)
    # A queue that the group never popped may have no row of the table for want of its offset.
    assert not is_still or sum(row["lag"] for row in counted) == len(rows)
    return {row["keys"] for row in rows}


@pytest.mark.parametrize(
    ("pop_cluster", "service", "seed"),
    lives(),
    ids=str,
    indirect=["pop_cluster"],
)
def test_unacknowledged_are_the_ids_that_no_consumer_acknowledged(
    pop_cluster: Cluster,
    service: str,
    seed: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Running, stopped, killed, live; after a kill the broker gives `redelivered` once more."""
    soak.tell(f"{pop_cluster.version} {service} seeds {seed * GROUPS} to {seed * GROUPS + 4}")
    look._warn_of_hidden.cache_clear()  # It warns once in a process.
    rng = random.Random(seed)
    root = tmp_path / "store"
    root.mkdir()
    fifo = rng.randrange(GROUPS)
    players = [Player.of("pop", seed * GROUPS + n, is_fifo=n == fifo) for n in range(GROUPS)]
    life = Life(pop_cluster, root, service, players)
    address = f"rocketmq://{pop_cluster.name_server}"
    with pop_cluster.broker(root, life.settings()) as broker, Remote(broker.address) as remote:
        life.play(remote, rng.randrange(3, 8))
        life.look(life.copied(broker), "running", is_quiet=False)
        life.look(address, "live", is_quiet=False, remote=remote)
        life.settled(remote)
        life.look(root, "revived", is_quiet=True)
        life.look(address, "live and revived", is_quiet=True, remote=remote)
        if life.hides_timers:
            planned.rows(address, table="backlog")
            assert "has no topic rmq_sys_wheel_timer for clients" in caplog.text
        life.play(remote, rng.randrange(1, 5))
        broker.stop()
    before = goldens.digest(root)
    life.look(root, "stopped", is_quiet=True)
    assert goldens.digest(root) == before, "reading changed the store"
    with pop_cluster.booted(root, life.settings()) as broker, Remote(broker.address) as remote:
        life.play(remote, rng.randrange(1, 5))
        broker.kill()
    life.was_killed = True
    life.look(root, "killed", is_quiet=False)
    shutil.copytree(root, tmp_path / "killed")
    with pop_cluster.booted(root, life.settings()) as broker, Remote(broker.address) as remote:
        check_redelivered(life, tmp_path / "killed", remote)
        for player in players:
            player.finish(remote)
        broker.stop()
    life.look(root, "drained", is_quiet=True)
    assert all(not player.ledger.unacknowledged for player in players)


def check_redelivered(life: Life, killed: Path, remote: Remote) -> None:
    """What a broker gives after a kill is what was ready, and what was popped and not written."""
    for player in life.players:
        ledger = player.ledger
        if ledger.is_fifo:
            continue
        rows = planned.rows(str(killed), table="backlog", groups=ledger.group)
        expected = {
            row["queueId"]: row["ready"] + row["redelivered"]
            for row in rows
            if row["topic"] == ledger.topic
        }
        assert expected
        given = popped_of(player, remote, sum(expected.values()))
        assert {queue_id: given[queue_id] for queue_id in expected} == expected, ledger.group


def popped_of(player: Player, remote: Remote, count: int) -> Counter[int]:
    """How many places of each queue of the topic are popped, when ``count`` are or more."""
    places: set[Place] = set()

    def are_there() -> bool:
        found = player.drain(remote, LONG_MS)
        places.update(h.place for h in found if h.topic == player.ledger.topic)
        return len(places) >= count

    until(are_there)
    return Counter(queue_id for _, queue_id, _ in places)
