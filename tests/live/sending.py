"""Messages sent to one broker of a cluster: batches of the Remoting protocol, by struct.

Reference: SendMessageRequestHeaderV2, MessageDecoder#encodeMessage.
"""

import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from mqstore.errors import StoreError
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.settings import ClusterSettings, Limits

_BATCH = 200


def create_topic(cluster: Cluster, broker: str, topic: str, queues: int = 1) -> None:
    """Create a topic of readable and writable queues on one broker."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    cluster.ask(broker, Request("UPDATE_AND_CREATE_TOPIC", 17, fields))


def send(
    cluster: Cluster, broker: str, queue: tuple[str, int], bodies: Sequence[bytes], tags: str = ""
) -> None:
    """Send the bodies to a (topic, queueId), in their order; all are acknowledged."""
    for start in range(0, len(bodies), _BATCH):
        batch = b"".join(
            _message(body, start + number, tags)
            for number, body in enumerate(bodies[start : start + _BATCH])
        )
        cluster.ask(broker, Request("SEND_BATCH_MESSAGE", 320, _header(*queue), body=batch))


@contextmanager
def producing(
    name_servers: Sequence[str],
    queues: Sequence[tuple[str, str, int]],
    bodies: Callable[[], Sequence[bytes]],
    sent: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Send to queues (broker, topic, queueId) in turn while the block runs; call ``sent`` for each.

    What a broker that is killed or frozen does not take within a second is not sent.
    """
    stop = threading.Event()
    limits = Limits(connect_timeout_ms=1_000, request_timeout_ms=1_000)
    settings = ClusterSettings(name_servers=tuple(name_servers), limits=limits, retry_timeout_ms=0)

    def run() -> None:
        with Cluster(settings) as client:
            while not stop.wait(0.1):
                for broker, topic, queue_id in queues:
                    with suppress(StoreError):
                        send(client, broker, (topic, queue_id), bodies())
                        sent()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def _message(body: bytes, number: int, tags: str) -> bytes:
    unique = f"{time.time_ns() & (2**96 - 1):024X}{number:08X}"
    properties = f"UNIQ_KEY\x01{unique}\x02"
    if tags:
        properties += f"TAGS\x01{tags}\x02"
    raw = properties.encode()
    size = 22 + len(body) + len(raw)
    head = struct.pack(">iiiii", size, 0, 0, 0, len(body))
    return head + body + struct.pack(">h", len(raw)) + raw


def _header(topic: str, queue_id: int) -> dict[str, str]:
    """Group, topic, default topic, its queues, queueId, sysFlag, bornTimestamp, flag, …"""
    values: dict[str, str | int] = {"a": "P", "b": topic, "c": "TBW102", "d": 1, "e": queue_id}
    values |= {"f": 0, "g": int(time.time() * 1000), "h": 0, "i": "", "j": 0, "k": "false"}
    return {name: str(value) for name, value in (values | {"m": "true"}).items()}
