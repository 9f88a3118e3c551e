"""The rules about offsets that do not move: of a queue, of a whole group."""

from collections.abc import Iterator, Sequence

from mqstore.verdicts import bounds
from mqstore.verdicts.facts import GroupFacts, QueueFacts, TopicFacts, Verdict
from mqstore.verdicts.wording import names_of, span, word


def paused_by_order(group: GroupFacts) -> Iterator[Verdict]:
    """PAUSED_BY_ORDER: a queue is consumed in order, and no member holds its lock."""
    members = group.members or ()
    if not members or not all(member.is_ordered for member in members):
        return
    for topic, queue in group.queues():
        place = queue.broker_name, topic.topic, queue.queue_id
        waits_ms = topic.waits_ms(queue)
        if not queue.matching or waits_ms < bounds.WAITING_MS or queue.is_unattended:
            continue
        given = [member.client_id for member in members if place in member.locked]
        if any(member.locked.get(place) for member in members):
            continue
        whose = (
            f"{names_of(given)} was given the queue" if given else "no member was given the queue"
        )
        evidence = (
            f"the group consumes in order, {whose}, and no member, of {len(members)}, holds the "
            f"queue's lock; {queue.lag:,} messages wait, the oldest for {span(waits_ms)}"
        )
        numbers = {"members": len(members), "locked": 0, "lag": queue.lag, "waitsMs": waits_ms}
        command = f"mqlog groups PLACE -g {word(group.group)}"
        yield Verdict.of_queue("PAUSED_BY_ORDER", topic, queue, (evidence, numbers, command))


def stuck_queue(group: GroupFacts) -> Iterator[Verdict]:
    """STUCK_QUEUE: between looks a queue stood, while others moved and its turn has passed."""
    paused = {
        (verdict.topic, verdict.broker_name, verdict.queue_id) for verdict in paused_by_order(group)
    }
    for topic, queue in group.queues():
        if (topic.topic, queue.broker_name, queue.queue_id) in paused:
            continue
        if not queue.matching or queue.consumer_offset is None or queue.is_unattended:
            continue
        waits_ms = topic.waits_ms(queue)
        others = [other for other in topic.queues if other is not queue]
        if waits_ms < bounds.WAITING_MS or not others:
            continue
        told = _stands(topic, queue, others)
        if told is not None:
            evidence, numbers = told
            numbers |= {"lag": queue.lag, "consumerOffset": queue.start, "waitsMs": waits_ms}
            place = f"{topic.topic}/{queue.queue_id}@{queue.start}"
            command = f"mqlog cat PLACE {word(place)} -n 1"
            yield Verdict.of_queue("STUCK_QUEUE", topic, queue, (evidence, numbers, command))


def _stands(
    topic: TopicFacts, queue: QueueFacts, others: Sequence[QueueFacts]
) -> tuple[str, dict[str, int]] | None:
    """Return what shows that a queue stands and others do not: one look never does."""
    if not queue.stands or queue.before is None or queue.before.ms_ago < bounds.TURN_MS:
        return None
    # An offset that was set back meanwhile was not consumed.
    of_others = sum(max(other.consumed_since or 0, 0) for other in others)
    if not of_others or not _turn_has_passed(topic, queue, others):
        return None
    evidence = (
        f"the offset stayed at {queue.start:,} for {span(queue.before.ms_ago)}, and "
        f"{queue.lag:,} messages wait, while the group consumed {of_others:,} messages of other "
        "queues"
    )
    return evidence, {"consumed": 0, "consumedOfOthers": of_others}


def _turn_has_passed(topic: TopicFacts, queue: QueueFacts, others: Sequence[QueueFacts]) -> bool:
    """Tell whether a consumer that works queue after queue would have come to this one.

    It had nothing else to do: where others moved, what was stored was consumed, and nothing waits.
    Or each other one that has messages was worked on, for ROUND_MS, twice as long as any queue of
    the group has rested before it moved, and by two pulls of each.
    """
    before = queue.before
    ms_ago = 0 if before is None else before.ms_ago
    busy = [other for other in others if other.matching]
    moving = [other for other in others if (other.consumed_since or 0) > 0]
    if all(_keeps_up(topic, other, ms_ago) for other in moving):
        return True
    rested_ms = max((look.rest_ms for one in topic.queues if (look := one.before)), default=0)
    consumed = [max(other.consumed_since or 0, 0) for other in busy]
    return (
        ms_ago >= max(bounds.ROUND_MS, 2 * rested_ms)
        and all(consumed)
        and sum(consumed) >= bounds.ROUND_MESSAGES * len(busy)
    )


def _keeps_up(topic: TopicFacts, queue: QueueFacts, ms_ago: int) -> bool:
    worked_off = (queue.consumed_since or 0) - (queue.stored_since or 0)
    is_caught_up = not queue.matching or topic.waits_ms(queue) < min(ms_ago, bounds.WAITING_MS)
    return is_caught_up and worked_off <= bounds.ROUND_MESSAGES


def stands_still(group: GroupFacts) -> Iterator[Verdict]:
    """STANDS_STILL: between two looks no offset of the group moved, though messages wait."""
    queues = [queue for topic in group.topics for queue in topic.queues]
    if any(queue.pops or (queue.consumed_since or 0) != 0 for queue in queues):
        return
    paused = {verdict.topic for verdict in paused_by_order(group)}
    for topic in group.topics:
        waiting = [queue for queue in topic.queues if queue.matching and not queue.is_ahead]
        looks = [queue.before for queue in waiting if queue.before and queue.stands]
        waits_ms = max(map(topic.waits_ms, waiting), default=0)
        if len(looks) < len(waiting) or not looks or waits_ms < bounds.WAITING_MS:
            continue
        ms = min(look.ms_ago for look in looks)
        if (
            ms < bounds.TURN_MS
            or topic.topic in paused
            or any(queue.is_unattended for queue in waiting)
        ):
            continue
        yield _standing(topic, waiting, ms, waits_ms)


def _standing(topic: TopicFacts, waiting: Sequence[QueueFacts], ms: int, waits_ms: int) -> Verdict:
    messages = sum(queue.matching for queue in waiting)
    stored = sum(queue.stored_since or 0 for queue in topic.queues)
    consumers = waiting[0].consumers
    who = (
        f"{consumers:,} consumers are connected and commit nothing"
        if consumers
        else "whether consumers are connected is not known here"
    )
    evidence = (
        f"no offset of the group moved in the last {span(ms)}, while {messages:,} messages wait, "
        f"the oldest for {span(waits_ms)}; {who}"
    )
    numbers = {
        "consumed": 0,
        "stored": stored,
        "betweenMs": ms,
        "lagMatching": messages,
        "waitsMs": waits_ms,
    }
    command = f"mqlog groups PLACE -g {word(topic.group)}"
    return Verdict("STANDS_STILL", topic.group, evidence, numbers, command, topic.topic)
