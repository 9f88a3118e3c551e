"""The options of a write to a running cluster, each declared once."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.format.client_message import MAX_BATCH_MESSAGES
from mqstore.format.names import is_system_topic, is_writable_topic
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.options import grammar, store_paths
from mqstore.options.option import one_of, option, options_of
from mqstore.write.stage.settings import MessageSettings

AT_LEAST_ONCE: Final = "atLeastOnce"
EXACTLY_ONCE: Final = "exactlyOnce"
_DEFAULT_GROUP: Final = "mqlog"
FENCE_MS: Final = 5_000
PROXY_FENCE_MS: Final = 10_000
"""The least through a proxy, in which requests of a dead sender wait."""
CONTROL_TOPIC: Final = "MQLOG_CONTROL"


def _control_topic(name: str, text: str) -> str:
    if not is_writable_topic(text) or is_system_topic(text):
        raise InvalidOptionError(name, text, "must be a topic's name: letters, digits, %, |, _, -")
    return text


_inline_bytes = partial(grammar.size, high=1024 * 1024 * 1024)
_messages = partial(grammar.count, high=MAX_BATCH_MESSAGES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSettings(MessageSettings):
    """The options of a write to a cluster; durations are milliseconds."""

    cluster: ClusterSettings
    create_topic: bool = option("createTopic", grammar.boolean, False)
    batch_max_messages: int = option("batchMaxMessages", _messages, 1_000)
    producer_group: str = option("producerGroup", grammar.group_name, _DEFAULT_GROUP)
    delivery: str = option("delivery", one_of(AT_LEAST_ONCE, EXACTLY_ONCE), AT_LEAST_ONCE)
    control_topic: str = option("controlTopic", _control_topic, CONTROL_TOPIC)
    inline_bytes: int = option("inlineBytes", _inline_bytes, 64 * 1024 * 1024)
    staging_path: str | None = option("stagingPath", store_paths.absolute)
    fence_wait_ms: int = option("fenceWait", grammar.milliseconds, FENCE_MS)
    visibility_timeout_ms: int = option("visibilityTimeout", grammar.milliseconds, 30_000)
    allow_lost_history: bool = option("allowLostHistory", grammar.boolean, False)
    send_timeout_ms: int = option("sendTimeout", grammar.milliseconds, 60_000)
    latency_fault_tolerance: bool = option("latencyFaultTolerance", grammar.boolean, False)
    require_replica: bool = option("requireReplica", grammar.boolean, False)


SEND_OPTIONS: Final = options_of(SendSettings)
