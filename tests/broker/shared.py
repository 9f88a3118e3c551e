"""The arguments of short-lived JVMs of RocketMQ: small, and with an archive of their classes."""

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

from broker.harness import Cluster
from broker.jvm import SMALL
from broker.recipe import Names, produce_few
from broker.toolchain import Toolchain
from support.shared_classes import Programs, shared_by

NAMES = Names("S")


@cache
def flags_of(toolchain: Toolchain, version: str) -> tuple[str, ...]:
    """Return the arguments of a name server, a broker or clients of a version.

    The archive is of RocketMQ's jars alone, which stay where they are when our programs change: of
    a class path that begins as the archive's does, a JVM takes the classes from there.
    """
    programs = Programs(
        f"rocketmq-{version}",
        toolchain.java,
        toolchain.jars(version),
        Path(__file__),
        partial(_run, toolchain, version),
    )
    return (*SMALL, *shared_by(programs))


def _run(toolchain: Toolchain, version: str, arguments: Sequence[str], folder: Path) -> None:
    """Send and take a few messages of every kind, and stop everything in order."""
    with Cluster(toolchain, version, folder, (*SMALL, *arguments)) as cluster:
        (folder / "store").mkdir()
        with cluster.broker(folder / "store") as broker:
            produce_few(broker, NAMES)
            broker.push(NAMES.topic, NAMES.push_group, "*", 40, fail_every=1000)
            broker.commit(NAMES.batch, NAMES.pull_group, 2)
            broker.topic_status(NAMES.topic)
            broker.consumer_progress(NAMES.pull_group)
            broker.dump()
            broker.stop()
        cluster.stop()
