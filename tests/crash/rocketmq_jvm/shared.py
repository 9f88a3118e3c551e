"""The arguments of a StoreJvm: those of a small JVM, and an archive of its classes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from broker.jvm import SMALL
from broker.toolchain import Toolchain
from crash.rocketmq_jvm.store_jvm import HERE, StoreJvm
from support.shared_classes import Programs, shared_by

COUNT = 10


@cache
def flags_of(toolchain: Toolchain, version: str) -> tuple[str, ...]:
    """Return the arguments of a JVM with the store classes of a version."""
    programs = Programs(
        f"store-{version}",
        toolchain.java,
        replace(toolchain, room=HERE).classpath(version),
        Path(__file__),
        partial(_run, toolchain, version),
    )
    return (*SMALL, *shared_by(programs))


def _run(toolchain: Toolchain, version: str, arguments: Sequence[str], folder: Path) -> None:
    """Put some messages into a store, get them, and shut it down."""
    with StoreJvm(toolchain, version, folder, (*SMALL, *arguments)) as jvm:
        served = jvm.open(folder / "store")
        served.load()
        served.start()
        for number in range(COUNT):
            served.put("A", 0, f"hello {number}", f"a{number}")
        served.queues()
        served.find("A", "a0")
        served.close()
