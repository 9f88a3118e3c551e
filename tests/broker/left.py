"""A store that a broker left: by a clean stop, and by kill -9."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker import recipe
from broker.harness import FAST_DELAYS, Cluster, Dumped, Row

NAMES: Final = recipe.Names("L")
MOVING: Final = ("RMQ_SYS_TRANS_", "%RETRY%", NAMES.delay)
"""Topics that a broker itself appends to, also between a dump and its stop: it checks transactions,
and after kill -9 it delivers again what it delivered shortly before."""


@dataclass(frozen=True, slots=True)
class Left:
    """A store that a broker left, the client's dump of it, and what was acknowledged."""

    root: Path
    dump: Dumped
    acknowledged: list[Row]
    progress: dict[str, list[Row]]
    """consumerProgress by group."""


def leave(cluster: Cluster, folder: Path) -> dict[str, Left]:
    """Have a broker leave one store twice: ``killed``, then started again and ``stopped``."""
    root = folder / "broker" / "store"
    root.mkdir(parents=True)
    with cluster.broker(root, FAST_DELAYS) as broker:
        sent = recipe.produce(broker, NAMES)
        recipe.consume(broker, NAMES)
        dump = broker.dump()
        broker.kill()
    killed = Left(folder / "killed" / "store", dump, sent, {})
    shutil.copytree(root, killed.root)
    with cluster.broker(root, FAST_DELAYS) as broker:
        sent = sent + recipe.go_on(broker, NAMES)
        broker.push(NAMES.topic, "CG_ALL", "*", 60, fail_every=1000)
        groups = ("CG_ALL", NAMES.pull_group)
        progress = {group: broker.consumer_progress(group) for group in groups}
        dump = broker.dump()
        broker.stop()
    return {"killed": killed, "stopped": Left(root, dump, sent, progress)}
