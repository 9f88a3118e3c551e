"""The JSON files of config/, as brokers write and read them.

    file                    the part we use
    ----------------------  ----------------------------------------------------------
    topics.json             topicConfigTable: {topic: {readQueueNums, perm, …}}
    consumerOffset.json     offsetTable: {"topic@group": {queueId: next queue offset}}
    subscriptionGroup.json  subscriptionGroupTable: {group: {…}}
    delayOffset.json        offsetTable: {delay level 1..18: next queue offset}
    consumerFilter.json     filterDataByTopic: {topic: {groupFilterData: {group: {expression, …}}}}
    consumerOrderInfo.json  table: {"topic@group": {queueId: open batch of a group in order}} (5.x)
    messageRequestMode.json messageRequestModeMap: {topic: {group: {mode: PULL or POP}}} (5.x)
    lmqConsumerOffset.json  consumerOffset.json of a broker with enableLmq; beside its offsetTable
                            lmqOffsetTable: {"%LMQ%topic@%LMQ%group": next queue offset}

The broker's JSON has integer keys without quotes; it reads them with quotes as well, so what
we write is strict JSON. Missing topic fields mean 16 queues and perm 6.

Reference: org.apache.rocketmq.common.ConfigManager, TopicConfig, ConsumerOffsetManager
(TOPIC_GROUP_SEPARATOR), SubscriptionGroupManager, ScheduleMessageService#encode.
"""

from typing import Final

TOPICS: Final = "topics.json"
CONSUMER_OFFSET: Final = "consumerOffset.json"
SUBSCRIPTION_GROUP: Final = "subscriptionGroup.json"
DELAY_OFFSET: Final = "delayOffset.json"
CONSUMER_FILTER: Final = "consumerFilter.json"
LMQ_CONSUMER_OFFSET: Final = "lmqConsumerOffset.json"
CONSUMER_ORDER_INFO: Final = "consumerOrderInfo.json"
MESSAGE_REQUEST_MODE: Final = "messageRequestMode.json"
TIMER_CHECK: Final = "timercheck"  # binary: format/timer_check.py
BACKUP_SUFFIX: Final = ".bak"

TOPIC_GROUP_SEPARATOR: Final = "@"
BROADCAST_SUFFIX: Final = "@broadcast"
"""Behind a group's name where the offsets are the least of all its broadcasting clients, which a
broker of 5.x keeps for those of proxies: BroadcastOffsetManager#broadcastGroupId."""
DEFAULT_QUEUE_NUMS: Final = 16  # TopicConfig.defaultReadQueueNums
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
MULTI_TAG: Final = "MULTI_TAG"  # TopicFilterType
QUEUE_TYPE: Final = "queue.type"  # TopicAttributes
BATCH_QUEUE_TYPE: Final = "BatchCQ"  # CQType
CLEANUP_POLICY: Final = "cleanup.policy"  # TopicAttributes
COMPACTION_POLICY: Final = "COMPACTION"  # CleanupPolicy
TIERED_STORE: Final = "TieredMessageStore"  # The class in MessageStoreConfig#messageStorePlugIn
MAX_CONFIG_BYTES: Final = 64 * 1024 * 1024
MAX_CONFIG_DEPTH: Final = 32
# MessageStoreConfig#messageDelayLevel: level 1..18, in milliseconds.
DELAY_LEVELS_MS: Final = tuple(
    1000 * s
    for s in (1, 5, 10, 30, *(60 * m for m in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)), 3600, 7200)
)

assert len(DELAY_LEVELS_MS) == 18


def split_topic_group(key: str) -> tuple[str, str]:
    """Return the topic and the group of ``topic@group``; both are empty where it is no such key.

    A topic may have an ``@`` in its name, as brokers before 4.6 take any; a group has none but that
    of ``group@broadcast``.
    """
    suffix = BROADCAST_SUFFIX if key.count(TOPIC_GROUP_SEPARATOR) > 1 else ""
    plain = key.removesuffix(suffix)
    topic, _, group = plain.rpartition(TOPIC_GROUP_SEPARATOR)
    return (topic, group + key[len(plain) :]) if topic and group else ("", "")
