"""Stores that brokers left, and brokers of the versions that have POP."""

from collections.abc import Iterator
from typing import Final

import pytest

from broker.harness import Cluster
from broker.jvm import SMALL
from broker.left import Left, leave
from broker.toolchain import Toolchain

MEMORY: Final = "-XX:MaxDirectMemorySize=1g"
"""A pop that finds no room in the broker's direct memory is never answered."""


@pytest.fixture(scope="session")
def left(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Left]:
    """A store as its broker left it, ``killed`` with -9 and ``stopped``; for reading only."""
    return leave(cluster, tmp_path_factory.mktemp(f"left-{cluster.version}-"))


@pytest.fixture(scope="session")
def pop_cluster(
    request: pytest.FixtureRequest, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A name server and official clients of the version that the test asks for."""
    version = request.param
    folder = tmp_path_factory.mktemp(f"pop-{version}-")
    with Cluster(toolchain, version, folder, [*SMALL, MEMORY]) as cluster:
        yield cluster
