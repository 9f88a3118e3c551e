"""The stores that a DLedger group left: its leader was killed, and another led on."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker import recipe
from broker.group import Group
from broker.harness import Broker, Cluster, Dumped, Row

NAMES: Final = recipe.Names("D")
ALL_GROUP: Final = "CG_ALL"
MOVING: Final = ("RMQ_SYS_TRANS_", "%RETRY%", NAMES.delay)
"""Topics that a leader itself appends to, also between a dump and its stop."""
GROUPS: Final = (ALL_GROUP, NAMES.pull_group)


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """Three stores, by peer: of the leader that was killed, of the one after it, of a follower."""

    roots: dict[str, Path]
    killed: str
    leader: str
    dump: Dumped
    """What the client pulled from the last leader."""
    acknowledged: list[Row]
    progress: dict[str, list[Row]]
    """consumerProgress of the last leader, by group."""
    reports: list[str]
    """What ``mqadmin consumerProgress`` prints for the same groups."""


def leave_group(cluster: Cluster, folder: Path) -> GroupLeft:
    """Have a group leave its stores: the first leader is killed -9, the others are stopped."""
    with Group(cluster, folder, {}) as group:
        first = group.leader()
        sent = recipe.produce_few(group.brokers[first], NAMES)
        group.brokers[first].kill()
        second = group.leader(other_than=first)
        leader = group.brokers[second]
        # Followers take over topics every ten seconds: these messages make them known again.
        sent += recipe.produce_few(leader, NAMES, seed=2)
        leader.push(NAMES.topic, ALL_GROUP, "*", 40, fail_every=1000)
        leader.commit(NAMES.batch, NAMES.pull_group, 2)
        progress = {name: leader.consumer_progress(name) for name in GROUPS}
        reports = [
            f"## consumerProgress -g {name}\n{leader.mqadmin('consumerProgress', '-g', name)}"
            for name in GROUPS
        ]
        dump = leader.dump()
        with ThreadPoolExecutor() as pool:
            left = [broker for peer, broker in group.brokers.items() if peer != first]
            list(pool.map(Broker.stop, left))
    return GroupLeft(group.roots, first, second, dump, sent, progress, reports)
