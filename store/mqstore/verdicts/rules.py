"""The rules: each a pure function from the facts about a group to its verdicts.

A rule speaks only with numbers that show the fault, and never because something is not known. A
group that works has messages waiting all the time, for moments: so rules about lag ask for a
message that waits for bounds.WAITING_MS or longer.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from mqstore.backlog.schema import SQL92
from mqstore.errors import shown
from mqstore.files.config.broker_config import FilterExpression
from mqstore.format.names import RETRY_PREFIX, is_broadcast_group, is_system_group
from mqstore.pop.state import UNKNOWN_POPS
from mqstore.verdicts import bounds
from mqstore.verdicts.facts import GroupFacts, QueueFacts, TopicFacts, Verdict
from mqstore.verdicts.loss import LOST_BY_DISK
from mqstore.verdicts.standing import paused_by_order, stands_still, stuck_queue
from mqstore.verdicts.wording import moment, names_of, queue_names, span, word

_SLOW_SHARE: Final = 0.9
_HOT_TIMES: Final = 2

VerdictRule: TypeAlias = Callable[[GroupFacts], Iterator[Verdict]]


def ahead(group: GroupFacts) -> Iterator[Verdict]:
    """AHEAD: the group's offset is beyond the queue's end."""
    for topic, queue in group.queues():
        if queue.is_ahead and queue.consumer_offset is not None:
            beyond = queue.consumer_offset - queue.broker_offset
            evidence = (
                f"the group's offset {queue.consumer_offset:,} is {beyond:,} beyond the queue's "
                f"end {queue.broker_offset:,}: the group will skip the next {beyond:,} messages "
                "that arrive"
            )
            numbers = {
                "consumerOffset": queue.consumer_offset,
                "brokerOffset": queue.broker_offset,
                "beyond": beyond,
            }
            command = f"mqlog queues PLACE -t {word(topic.topic)}"
            yield Verdict.of_queue("AHEAD", topic, queue, (evidence, numbers, command))


def never_committed(group: GroupFacts) -> Iterator[Verdict]:
    """NEVER_COMMITTED: queues hold messages, and no offset is committed in them."""
    for topic in group.topics:
        never = [queue for queue in topic.queues if queue.consumer_offset is None and queue.lag]
        queues = [queue for queue in never if not queue.is_unattended]
        waits_ms = max(map(topic.waits_ms, queues), default=0)
        if not queues or waits_ms < bounds.WAITING_MS:
            continue
        messages = sum(queue.lag for queue in queues)
        evidence = (
            f"no offset is committed in {queue_names(queues)}: {messages:,} messages wait there, "
            f"the oldest for {span(waits_ms)}"
        )
        numbers = {"queues": len(queues), "lag": messages, "waitsMs": waits_ms}
        yield Verdict(
            "NEVER_COMMITTED", group.group, evidence, numbers,
            f"mqlog offsets PLACE -g {word(group.group)} -t {word(topic.topic)}", topic.topic,
        )  # fmt: skip


def no_members(group: GroupFacts) -> Iterator[Verdict]:
    """NO_MEMBERS: messages wait at a broker to which no consumer is connected."""
    for topic in group.topics:
        # Those that pop may do so by gRPC or by themselves: no broker knows of them as connected.
        of_members = [queue for queue in topic.queues if queue.status not in UNKNOWN_POPS]
        queues = [queue for queue in of_members if queue.consumers == 0 and queue.matching]
        # Who moves an offset is there, whatever the broker knows of it.
        if queues and not any((queue.consumed_since or 0) > 0 for queue in topic.queues):
            messages = sum(queue.matching for queue in queues)
            brokers = sorted({queue.broker_name for queue in queues})
            evidence = (
                f"{messages:,} messages wait, and no consumer of the group is connected to "
                f"{'broker' if len(brokers) == 1 else 'brokers'} {names_of(brokers)}"
            )
            numbers = {"consumers": 0, "lagMatching": messages}
            yield Verdict(
                "NO_MEMBERS", group.group, evidence, numbers,
                f"mqlog groups PLACE -g {word(group.group)}", topic.topic,
            )  # fmt: skip


def inconsistent_subscription(group: GroupFacts) -> Iterator[Verdict]:
    """INCONSISTENT_SUBSCRIPTION: members subscribe differently, and each may get any queue."""
    members = group.members or ()
    for topic in sorted({topic for member in members for topic in member.expressions}):
        if topic.startswith(RETRY_PREFIX):
            continue
        clients: dict[str, list[str]] = {}
        for member in members:
            found = member.expressions.get(topic)
            clients.setdefault(_normal(found), []).append(member.client_id)
        if len(clients) < 2:
            continue
        told = "; ".join(
            f"{expression} by {shown(ids[0])}{f' and {len(ids) - 1} more' if len(ids) > 1 else ''}"
            for expression, ids in sorted(clients.items())[:3]
        )
        evidence = (
            f"the {len(members)} members subscribe differently, {told}: which messages of a queue "
            "are consumed depends on the member that has the queue"
        )
        numbers = {"members": len(members), "expressions": len(clients)}
        command = f"mqlog subscriptions PLACE -g {word(group.group)} -t {word(topic)}"
        yield Verdict("INCONSISTENT_SUBSCRIPTION", group.group, evidence, numbers, command, topic)


def _normal(expression: FilterExpression | None) -> str:
    """Return what a member does with a topic; the same for the same tags in another order."""
    if expression is None:
        return "not at all"
    text = expression.expression
    if expression.kind.upper() != SQL92:
        tags = {tag.strip() for tag in text.split("||")} - {""}
        text = " || ".join(sorted(tags)) or "*"
    return f"to {shown(text)}"


def filter_only(group: GroupFacts) -> Iterator[Verdict]:
    """FILTER_ONLY: offsets lag, and no waiting message passes the expression."""
    for topic in group.topics:
        queues = [queue for queue in topic.queues if queue.lag and queue.filter is not None]
        is_all = queues and len(queues) == sum(queue.lag > 0 for queue in topic.queues)
        if (
            not is_all
            or topic.longest_wait_ms < bounds.WAITING_MS
            or any(q.matching for q in queues)
        ):
            continue
        evidence = (
            f"{topic.lag:,} messages come after the group's offset, and none of them matches the "
            f"group's filter {shown(str(queues[0].filter))}: it has nothing to do, unless the "
            "filter is wrong"
        )
        numbers = {"lag": topic.lag, "lagMatching": 0, "waitsMs": topic.longest_wait_ms}
        yield Verdict(
            "FILTER_ONLY", group.group, evidence, numbers,
            f"mqlog tags PLACE -t {word(topic.topic)}", topic.topic,
        )  # fmt: skip


def hot_queue(group: GroupFacts) -> Iterator[Verdict]:
    """HOT_QUEUE: one queue receives most messages, and most that wait are in it."""
    for topic, queue in group.queues():
        waits_ms = topic.waits_ms(queue)
        is_behind = queue.lag and waits_ms >= bounds.WAITING_MS and not queue.is_unattended
        if is_behind and 2 * queue.lag >= topic.lag and _is_hot(topic, queue):
            received = queue.received or 0
            of_all = sum(one.received or 0 for one in topic.queues)
            evidence = (
                f"this queue, one of {len(topic.queues)}, received {received:,} of the {of_all:,} "
                f"messages of the last {span(bounds.RECENT_MS)}, and {queue.lag:,} of the "
                f"{topic.lag:,} messages that wait are in it"
            )
            numbers = {
                "received": received,
                "receivedOfAll": of_all,
                "queues": len(topic.queues),
                "lag": queue.lag,
                "lagOfAll": topic.lag,
            }
            command = f"mqlog queues PLACE -t {word(topic.topic)}"
            yield Verdict.of_queue("HOT_QUEUE", topic, queue, (evidence, numbers, command))


def _is_hot(topic: TopicFacts, queue: QueueFacts) -> bool:
    if queue.received is None or any(other.received is None for other in topic.queues):
        return False
    of_all = sum(other.received or 0 for other in topic.queues)
    is_most = 2 * queue.received >= of_all
    return (
        of_all >= bounds.MIN_RECEIVED
        and is_most
        and queue.received * len(topic.queues) >= _HOT_TIMES * of_all
        and len(topic.queues) > 1
    )


def slow_consumer(group: GroupFacts) -> Iterator[Verdict]:
    """SLOW_CONSUMER: between two looks fewer messages were consumed than stored."""
    others = (stuck_queue, paused_by_order, stands_still)
    stuck = {verdict.topic for rule in others for verdict in rule(group)}
    for topic in group.topics:
        looks = [(q.consumed_since, q.stored_since, q.before) for q in topic.queues]
        if (
            topic.topic in stuck
            or any(queue.pops for queue in topic.queues)
            or any(None in look for look in looks)
            or not looks
        ):
            continue
        if any((one or 0) < 0 for look in looks for one in look[:2]):
            continue  # Offsets were set back, or a queue was made anew: nothing can be compared.
        if (
            all(queue.is_unattended for queue in topic.queues)
            or topic.longest_wait_ms < bounds.WAITING_MS
        ):
            continue
        consumed = sum(one or 0 for one, _, _ in looks)
        stored = sum(one or 0 for _, one, _ in looks)
        ms = max(look.ms_ago for _, _, look in looks if look is not None)
        if not topic.lag or consumed >= _SLOW_SHARE * stored:
            continue
        members = sum(q.consumers or 0 for q in topic.queues[:1])
        evidence = (
            f"in the last {span(ms)} {stored:,} messages were stored and {consumed:,} consumed; "
            f"{topic.lag:,} wait, the oldest for {span(topic.longest_wait_ms)}"
        )
        numbers = {
            "stored": stored,
            "consumed": consumed,
            "betweenMs": ms,
            "lag": topic.lag,
            "waitsMs": topic.longest_wait_ms,
        }
        numbers |= {"consumers": members} if members else {}
        command = f"mqlog latency PLACE -t {word(topic.topic)} -g {word(group.group)} --since -1h"
        yield Verdict("SLOW_CONSUMER", group.group, evidence, numbers, command, topic.topic)


def expiring(group: GroupFacts) -> Iterator[Verdict]:
    """EXPIRING: messages were deleted before they were consumed, or will be within a day."""
    for topic, queue in group.queues():
        if queue.is_ahead:
            continue
        told = _lost(queue) if queue.expired else _soon_lost(topic, queue)
        if told is not None:
            command = f"mqlog queues PLACE -t {word(topic.topic)}"
            yield Verdict.of_queue("EXPIRING", topic, queue, (*told, command))


def _lost(queue: QueueFacts) -> tuple[str, dict[str, int]]:
    evidence = (
        f"{queue.expired:,} messages, from offset {queue.consumer_offset or 0:,} on, were deleted "
        f"before the group consumed them; {queue.lag:,} more wait"
    )
    return evidence, {"expired": queue.expired, "minOffset": queue.min_offset, "lag": queue.lag}


def _soon_lost(topic: TopicFacts, queue: QueueFacts) -> tuple[str, dict[str, int]] | None:
    loss = queue.loss
    if loss is None or not queue.matching or topic.waits_ms(queue) < bounds.WAITING_MS:
        return None
    left_ms = max(0, loss.at_ms - topic.as_of_ms)
    if left_ms >= bounds.SOON_MS:
        return None
    why = "the disk will be full" if loss.by == LOST_BY_DISK else "their file will be too old"
    evidence = (
        f"the broker will delete messages from offset {queue.start:,} on at about "
        f"{moment(loss.at_ms)}, in {span(left_ms)}, because {why}; {queue.lag:,} messages wait, "
        f"the oldest for {span(topic.waits_ms(queue))}"
    )
    numbers = {"etaLossMs": loss.at_ms, "etaLossEarliestMs": loss.earliest_ms, "leftMs": left_ms}
    return evidence, numbers | {"lag": queue.lag}


def poison(group: GroupFacts) -> Iterator[Verdict]:
    """POISON: a message failed several times, and will be delivered again."""
    for retried in group.retried:
        if retried.times >= bounds.MIN_TRIES:
            keys = f" (keys {shown(retried.keys)})" if retried.keys else ""
            evidence = (
                f"message {shown(retried.msg_id)}{keys} was consumed {retried.times} times without "
                "success, and will be delivered again"
            )
            numbers = {"reconsumeTimes": retried.times}
            command = f"mqlog find PLACE --id {word(retried.msg_id)}"
            yield Verdict("POISON", group.group, evidence, numbers, command, retried.topic)


def dead_letters(group: GroupFacts) -> Iterator[Verdict]:
    """DEAD_LETTERS: messages that the group has given up."""
    if group.dead_letters:
        since = group.newest_dead_ms
        newest = "" if since is None else f"; the newest came at {moment(since)}"
        evidence = (
            f"{group.dead_letters:,} messages are in the dead-letter topic, and will not be "
            f"delivered again{newest}"
        )
        numbers = {"deadLetters": group.dead_letters}
        command = f"mqlog retries PLACE -g {word(group.group)} --dead"
        yield Verdict("DEAD_LETTERS", group.group, evidence, numbers, command)


RULES: Final[tuple[VerdictRule, ...]] = (
    no_members,
    inconsistent_subscription,
    paused_by_order,
    stuck_queue,
    stands_still,
    hot_queue,
    slow_consumer,
    filter_only,
    poison,
    expiring,
    never_committed,
    ahead,
    dead_letters,
)
"""All rules, the most telling first."""


def verdicts(group: GroupFacts) -> list[Verdict]:
    """Return the verdicts about a group; none if nothing shows a fault.

    None of RocketMQ's own groups, which brokers work off when they like; nor of the offsets that a
    broker notes of a broadcasting group, whose members keep theirs at home.
    """
    if is_broadcast_group(group.group) or is_system_group(group.group):
        return []
    return [verdict for rule in RULES for verdict in rule(group)]
