"""A running cluster read through a RocketMQ 5 proxy, beside the same reads of its broker.

    python -m benchmarks proxy

A 5.5.0 broker serves a store that was laid out, in four queues, bodies of 1 KiB and 6 KiB; a proxy
of 5.5.0 in cluster mode stands before it. Name server, broker and proxy are JVMs with default
flags. Each side pulls all messages and decodes them to record batches, in one process. The
number of a side is ``pullsInFlight``: pulls under way on the one connection to the broker, and
connections to the proxy with one pull each. ``processes`` are the CPU microseconds of a message,
of one more read: who works for it.
"""

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.bench_live import ADVISED, QUEUES, read_all, served
from benchmarks.facts import cpu_by_kind
from benchmarks.laid_out import Shape
from benchmarks.peers import ROCKETMQ, PeerMissingError, proxy_of, rocketmq_servers, skip
from benchmarks.rounds import Side, compare
from mqstore.live.remoting.settings import ClusterSettings

CONNECTIONS = (1, 4, 8)
BODIES = {1_024: 1, 6_144: 4}
"""Sizes of bodies, and by what the number of messages is divided."""


def main(count: int) -> None:
    """Measure each size of bodies, with the broker's settings as they are and as advised."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            servers = stack.enter_context(rocketmq_servers(home))
        except PeerMissingError as missing:
            skip("rocketmq", str(missing))
            return
        for size, share in BODIES.items():
            rows = count // share // QUEUES * QUEUES
            with (
                served(servers, home / f"bodies-{size}", Shape(rows, size, QUEUES)) as broker,
                proxy_of(servers, home) as proxy,
            ):
                addresses = {"direct": servers.name_server, "proxy": proxy.address}
                measure(addresses, rows, size, "as installed")
                for key, value in ADVISED.items():
                    where = ("-b", broker.address, "-n", servers.name_server)
                    broker.mqadmin("updateBrokerConfig", *where, "-k", key, "-v", value)
                measure(addresses, rows, size, "as advised")


def measure(addresses: dict[str, str], rows: int, body_bytes: int, case: str) -> None:
    """Compare reads of both addresses by as many connections."""
    reads: dict[str, Callable[[], int]] = {
        f"{name}{connections}": partial(
            read_all, ClusterSettings(name_servers=(address,), pulls_in_flight=connections), rows
        )
        for connections in CONNECTIONS
        for name, address in addresses.items()
    }
    compare(
        "proxy",
        f"{body_bytes} B, broker {case}",
        [Side(name, work, rows) for name, work in reads.items()],
        found=lambda: {"processes": {name: _shares(work) for name, work in reads.items()}},
        bodyBytes=body_bytes,
        queues=QUEUES,
        broker=ROCKETMQ,
    )


def _shares(work: Callable[[], int]) -> dict[str, float]:
    """Return the CPU microseconds that each kind of process takes for a message of one read."""
    before = cpu_by_kind()
    count = work()
    return {
        kind: round((now - before[kind]) / count * 1e6, 2) for kind, now in cpu_by_kind().items()
    }


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
