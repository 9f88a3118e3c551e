"""The settings of a cluster; its options are declared at the fields that hold them.

Reference: org.apache.rocketmq.client.ClientConfig, NettyClientConfig, for what the Java client
calls the same; org.apache.rocketmq.client.Validators#checkGroup.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from mqstore.live.remoting.address import broker_addresses, proxy_addresses
from mqstore.live.remoting.credentials import Credentials
from mqstore.live.remoting.requests import MAX_MESSAGES
from mqstore.live.remoting.tls import Tls
from mqstore.options.grammar import count, group_name, milliseconds, size
from mqstore.options.option import one_of, option

TOOLS_CONSUMER: Final = "TOOLS_CONSUMER"
"""The group that every broker has (MixAll.TOOLS_CONSUMER_GROUP): another name makes a group."""
READ_FROM: Final = ("master", "slave", "any")
AUTO: Final = "auto"
NAME_SERVER: Final = "nameServer"
PROXY: Final = "proxy"
_MAX_IN_FLIGHT: Final = 256
_frame_bytes = partial(size, low=64 << 10, high=256 << 20)


@dataclass(frozen=True, slots=True)
class Limits:
    """Milliseconds that things may take, and bytes that an answer may have."""

    connect_timeout_ms: int = option("connectTimeout", milliseconds, 3_000)
    request_timeout_ms: int = option("requestTimeout", milliseconds, 10_000)
    max_frame_bytes: int = option("maxFrameBytes", _frame_bytes, 17 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The address of a cluster, credentials and time-outs: plain values that travel into tasks.

    ``broker_addresses`` gives a broker's master another address than it registered.
    ``read_from`` chooses whose messages are pulled: the master's; a slave's, where it has them;
    or those of ``any``, the master's as long as there is one. What queues hold is asked of the
    master, too; without one, of a slave with ``any`` only. ``proxies`` are those of the cluster:
    which consumers groups have is asked of them, too.
    ``max_tasks_per_broker`` bounds the tasks of a read that pull from one broker; None: no bound.
    """

    name_servers: tuple[str, ...]
    credentials: Credentials | None = None
    tls: Tls | None = None
    limits: Limits = field(default_factory=Limits)
    retry_timeout_ms: int = option("retryTimeout", partial(milliseconds, low=0), 60_000)
    consumer_group: str = option("consumerGroup", group_name, TOOLS_CONSUMER)
    read_from: str = option("readFrom", one_of(*READ_FROM), READ_FROM[0])
    endpoint: str = option("endpoint", one_of(AUTO, NAME_SERVER, PROXY), AUTO)
    broker_addresses: Mapping[str, str] = option("brokerAddresses", broker_addresses, {})
    proxies: tuple[str, ...] | None = option("proxies", proxy_addresses)
    pulls_in_flight: int = option("pullsInFlight", partial(count, high=_MAX_IN_FLIGHT), 8)
    pull_batch_size: int = option("pullBatchSize", partial(count, high=MAX_MESSAGES), 1_000)
    max_tasks_per_broker: int | None = option("maxTasksPerBroker", count)
