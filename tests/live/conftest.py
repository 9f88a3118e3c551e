"""Fixtures of the live room: clusters on loopback, fake ones and (see test_brokers) real ones."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from broker.conftest import cluster, toolchain
from live.loopback import FakeCluster
from mqstore.live.cluster import Cluster, ClusterSettings
from mqstore.live.connection import Limits

__all__ = ["cluster", "toolchain"]

QUICK = Limits(connect_timeout_ms=1_000, request_timeout_ms=500, max_frame_bytes=1 << 20)
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
            defaults = {"name_servers": (fake.address,), "limits": QUICK, "retry_timeout_ms": 2_000}
            return stack.enter_context(Cluster(ClusterSettings(**(defaults | more))))

        yield make
