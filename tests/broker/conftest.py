"""Stores that brokers left."""

import pytest

from broker.harness import Cluster
from broker.left import Left, leave


@pytest.fixture(scope="session")
def left(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Left]:
    """A store as its broker left it, ``killed`` with -9 and ``stopped``; for reading only."""
    return leave(cluster, tmp_path_factory.mktemp(f"left-{cluster.version}-"))
