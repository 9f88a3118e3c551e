"""Fixtures of the live room: clusters on loopback, fake ones and real ones."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from broker.harness import Cluster as Servers
from broker.toolchain import Toolchain
from live.loopback import FakeCluster
from live.real import Live, recorded
from live.secure import Guarded, guarded
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.settings import ClusterSettings, Limits

PATIENT = Limits(connect_timeout_ms=30_000, request_timeout_ms=30_000, max_frame_bytes=1 << 20)
QUICK = Limits(connect_timeout_ms=30_000, request_timeout_ms=500, max_frame_bytes=1 << 20)
"""For servers that never answer; a busy machine may take longer than this for the others."""
Connect = Callable[..., Cluster]


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    """A cluster that is empty."""
    with FakeCluster().running() as found:
        yield found


@pytest.fixture
def connect(fake: FakeCluster) -> Iterator[Connect]:
    """Make clients of the fake cluster; keywords are ClusterSettings'. All are closed."""
    with ExitStack() as stack:

        def make(**more: Any) -> Cluster:
            defaults = {
                "name_servers": (fake.address,),
                "limits": PATIENT,
                "retry_timeout_ms": 2_000,
            }
            return stack.enter_context(Cluster(ClusterSettings(**(defaults | more))))

        yield make


@pytest.fixture(scope="session")
def live(cluster: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A real broker of each version in turn, with messages of every kind."""
    with recorded(cluster, tmp_path_factory.mktemp(f"live-{cluster.version}-")) as found:
        yield found


@pytest.fixture(scope="session")
def guard(
    cluster: Servers, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """A real broker of each version in turn that speaks TLS only, with ACL."""
    folder = tmp_path_factory.mktemp(f"guarded-{cluster.version}-")
    with guarded(toolchain, cluster.version, folder) as found:
        yield found
