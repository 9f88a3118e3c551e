"""The members of a consumer group, as each of them describes itself.

A broker knows one subscription of a group, that of the last heartbeat. What each member subscribes
to, it says itself: the broker passes the request on to it. One that does not answer, or a broker
that does not pass it on, is left out.

Reference: AdminBrokerProcessor#getConsumerRunningInfo, #callConsumer; ConsumerRunningInfo,
ProcessQueueInfo; MixAll.
"""

import logging
from typing import Any, Final

from mqstore.errors import StoreError
from mqstore.files.config.broker_config import FilterExpression
from mqstore.live.remoting import requests
from mqstore.live.remoting.answers import rows, table, text, value
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.each import ask_each
from mqstore.read.broker_state import GroupMember

_LOG: Final = logging.getLogger(__name__)
_MOST_MEMBERS: Final = 64
_ORDERLY: Final = "PROP_CONSUMEORDERLY"
_KEY_FIELDS: Final = ("brokerName", "queueId", "topic")


def members(cluster: Cluster, broker: str, group: str) -> list[GroupMember] | None:
    """Return the members of a group that are connected to a broker; each is asked once.

    None if not all of them told: there are more than 64, the request is refused, as by proxies,
    or one is silent.
    """
    if cluster.is_proxy:
        return None
    try:
        request = requests.GET_CONSUMER_CONNECTION_LIST(consumerGroup=group)
        answer, address = cluster.ask(broker, request)
        if answer.code != requests.SUCCESS:
            return []
        connected = rows(address, value(address, request, answer), "connectionSet")
        clients = sorted({text(address, entry, "clientId") for entry in connected})
        if len(clients) > _MOST_MEMBERS:
            return None
        asked = [
            requests.GET_CONSUMER_RUNNING_INFO(
                consumerGroup=group, clientId=client, jstackEnable=False
            )
            for client in clients
        ]
        found = []
        told = ask_each(cluster, [(broker, request) for request in asked])
        for client, its, answered in zip(clients, asked, told, strict=True):
            if isinstance(answered, StoreError):
                raise answered
            found.append(_member(answered[1], client, value(answered[1], its, answered[0])))
    except StoreError as error:
        _LOG.info("the members of group %s are not known: %s", group, error)
        return None
    return found


def _member(address: str, client: str, found: Any) -> GroupMember:
    subscriptions = {
        text(address, entry, "topic"): FilterExpression(
            str(entry.get("expressionType") or requests.TAG_EXPRESSION),
            text(address, entry, "subString"),
        )
        for entry in rows(address, found, "subscriptionSet")
    }
    properties = table(address, found, "properties")
    locked = {}
    for key, state in table(address, found, "mqTable").items():
        named = dict(key) if isinstance(key, tuple) else {}
        broker, queue_id, topic = (named.get(name) for name in _KEY_FIELDS)
        is_known = isinstance(broker, str) and isinstance(topic, str) and isinstance(queue_id, int)
        if is_known and isinstance(state, dict):
            locked[str(broker), str(topic), int(str(queue_id))] = state.get("locked") is True
    return GroupMember(client, subscriptions, properties.get(_ORDERLY) == "true", locked)
