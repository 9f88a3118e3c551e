"""Topics and brokers as a cluster describes them: names, configurations, versions, settings.

Reference: RouteInfoManager#getAllTopicList, TopicConfigManager (TopicConfig, TopicAttributes),
AdminBrokerProcessor#getBrokerRuntimeInfo, #getBrokerConfig; MessageStoreConfig.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mqstore.format.names import is_system_topic
from mqstore.live.remoting import requests
from mqstore.live.remoting.answers import number, table, text, value
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.routes import Route, is_compacted, refuse_attributes

READING_SETTINGS: Final = (
    "maxTransferCountOnMessageInMemory",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInDisk",
    "maxTransferBytesOnMessageInDisk",
    "accessMessageInMemoryMaxRatio",
    "slaveReadEnable",
    "autoCreateSubscriptionGroup",
    "enablePropertyFilter",
    "mappedFileSizeConsumeQueue",
    "aclEnable",
    "authenticationEnabled",
    "enablePopBufferMerge",
    "popConsumerKVServiceEnable",
    "messageStorePlugIn",
)
"""Settings of a broker that say how it may be read. Others can hold passwords and stay there."""

_COUNT_OF_BYTES: Final = re.compile(r"[0-9]{1,19}")
_VERSION: Final = re.compile(r"V([0-9]+)_([0-9]+)_([0-9]+).*")


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """A topic's configuration on one broker; ``attributes`` are of 5.x."""

    topic: str
    read_queues: int
    write_queues: int
    perm: int
    attributes: Mapping[str, str]
    order: bool = False


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A master: its version such as 5.5.0, and the bytes [low, high) of its CommitLog."""

    broker: str
    address: str
    version: str
    low: int
    high: int
    runtime: Mapping[str, str]

    @property
    def dispatched(self) -> int:
        """Physical offset up to which its ConsumeQueues have the messages; 0 if it does not tell.

        Reference: MessageStore#dispatchBehindBytes.
        """
        behind = _COUNT_OF_BYTES.fullmatch(self.runtime.get("dispatchBehindBytes", ""))
        return max(0, self.high - int(behind[0])) if behind else 0


def topic_names(cluster: Cluster, *, include_system_topics: bool = False) -> list[str]:
    """Return the names of topics, without those that brokers and clusters have of themselves."""
    own = {*cluster.brokers(), *cluster.cluster_names()}
    names = set(cluster.topic_names()) - own
    return sorted(name for name in names if include_system_topics or not is_system_topic(name))


def topics(cluster: Cluster, brokers: Sequence[str]) -> dict[str, dict[str, LiveTopic]]:
    """Return the topics of each broker by name: by broker, by topic. Raises as Cluster#ask_all."""
    request = requests.GET_ALL_TOPIC_CONFIG()
    answers = cluster.ask_all([(broker, request) for broker in brokers])
    return {
        broker: cluster.ahead.read(
            broker, "topics", answer, partial(_read_topics, address, request, answer)
        )
        for broker, (answer, address) in zip(brokers, answers, strict=True)
    }


def check_readable(
    cluster: Cluster, routes: Iterable[Route], compacted: set[str] | None = None
) -> set[tuple[str, str]]:
    """Raise UnsupportedTopicError for a topic that has batch queues.

    And for one that is compacted, unless the caller takes those: they are put into ``compacted``.
    Static topics have no route that could be here: Cluster#route refuses them. Return (broker,
    topic) of each broker that lacks a topic which its route shows there. Through a proxy, which
    tells no configuration, nothing is found.
    """
    if cluster.is_proxy:
        return set()
    routes = list(routes)
    brokers = sorted({name for route in routes for name in (*route.queues, *route.write_queues)})
    configured = topics(cluster, brokers)
    lacking = set()
    for route in routes:
        for broker in {*route.queues, *route.write_queues}:
            found = configured[broker].get(route.topic)
            if found is None:
                lacking.add((broker, route.topic))
            elif compacted is not None and is_compacted(found.attributes):
                compacted.add(route.topic)
            else:
                refuse_attributes(route.topic, found.attributes)
    return lacking


def broker_infos(cluster: Cluster, brokers: Sequence[str]) -> list[BrokerInfo]:
    """Return what the masters of those brokers tell of themselves. Raises as Cluster#ask_all."""
    request = requests.GET_BROKER_RUNTIME_INFO()
    infos = []
    answers = cluster.ask_all([(broker, request) for broker in brokers])
    for broker, (answer, address) in zip(brokers, answers, strict=True):
        found = table(address, value(address, request, answer), "table")
        runtime = {str(key): str(inner) for key, inner in found.items()}
        match = _VERSION.fullmatch(runtime.get("brokerVersionDesc", ""))
        version = ".".join(match.groups()) if match else ""
        low, high = (_bytes(runtime, name) for name in ("commitLogMinOffset", "commitLogMaxOffset"))
        infos.append(BrokerInfo(broker, address, version, low, high, runtime))
    return infos


def reading_settings(cluster: Cluster, broker: str) -> dict[str, str]:
    """Return those READING_SETTINGS that a broker has. Raises as Cluster#ask_all."""
    found, _ = cluster.value(broker, requests.GET_BROKER_CONFIG())
    return {name: found[name] for name in READING_SETTINGS if name in found}


def _bytes(runtime: Mapping[str, str], name: str) -> int:
    digits = runtime.get(name, "")
    return int(digits) if _COUNT_OF_BYTES.fullmatch(digits) else 0


def _read_topics(address: str, request: requests.Request, answer: Frame) -> dict[str, LiveTopic]:
    return _topics(address, value(address, request, answer))


def _topics(address: str, found: Any) -> dict[str, LiveTopic]:
    read = {}
    for entry in table(address, found, "topicConfigTable").values():
        name = text(address, entry, "topicName")
        attributes = table(address, entry, "attributes")
        read[name] = LiveTopic(
            name,
            number(address, entry, "readQueueNums"),
            number(address, entry, "writeQueueNums"),
            number(address, entry, "perm"),
            {str(key): str(inner) for key, inner in attributes.items()},
            entry.get("order") is True,
        )
    return read
