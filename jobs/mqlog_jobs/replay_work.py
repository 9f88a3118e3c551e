"""The work of ``mqlog replay`` and the job replay.py: a replay, or a count of what it would do."""

from collections.abc import Callable
from typing import Any

from mqlog_jobs.amounts import several
from mqlog_jobs.replay_plan import ReplayArguments, own_flags
from mqstore.deliver.replay.choice import choose, task_of
from mqstore.deliver.replay.estimate import estimate
from mqstore.deliver.replay.progress import without
from mqstore.deliver.replay.run import OffsetMapTarget, Replay, Runner, read_state
from mqstore.errors import shown


def replayed(
    given: ReplayArguments,
    runner: Runner,
    moved: OffsetMapTarget | None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Replay what is requested, by the tasks of a runner; return what was done.

    Raises what ``choose``, ``task_of`` and Replay#run raise.
    """
    request, settings = given.request, given.settings()  # Before a place is opened.
    with given.source.opened(request.topics_named) as stores:
        found = choose(request, stores, settings.cluster)
        with own_flags():
            task = task_of(request, found, settings)
    with own_flags():
        replay = Replay(
            task=task, slices=found.slices, origins=found.origins, moved=moved, progress=progress
        )
        counts = replay.run(runner)
    return {
        "messages": counts.messages,
        "bodyBytes": counts.body_bytes,
        "topics": dict(sorted(counts.by_topic.items())),
        "before": counts.before,
        "found": counts.found,
        "skipped": counts.skipped,
        "repeats": counts.repeats,
    }


def said(done: dict[str, Any]) -> str:
    """Return what ``replayed`` did in a sentence."""
    topics = ", ".join(f"{count:,} to {shown(topic)}" for topic, count in done["topics"].items())
    parts = [f"{several(done['messages'], 'message')} sent{': ' if topics else ''}{topics}"]
    if done["found"]:
        parts.append(f"{done['found']:,} of them by an earlier run that did not finish")
    if done["before"]:
        parts.append(f"{done['before']:,} offsets of the source were replayed before")
    if done["skipped"]:
        parts.append(f"{done['skipped']:,} were left out as bad")
    if done["repeats"]:
        parts.append(f"{done['repeats']:,} requests were sent again")
    return "; ".join(parts)


def planned(given: ReplayArguments, progress: Callable[[int, int], None]) -> list[dict[str, Any]]:
    """Return what would be sent where, a row for each source queue and topic; sends nothing."""
    request, settings = given.request, given.settings()
    reading = request.reading(settings)
    with given.source.opened(request.topics_named) as stores:
        found = choose(request, stores, settings.cluster)
    slices = list(found.slices)
    if not request.at_least_once:
        slices = without(slices, read_state(settings).done)
    with own_flags():
        rows = estimate(reading, slices, found.brokers, settings, progress)
    return [
        {
            "brokerName": row.broker,
            "topic": row.topic,
            "queueId": row.queue_id,
            "messages": row.messages,
            "bodyBytes": row.body_bytes,
            "newTopic": row.to_topic,
            "newBrokerName": row.to_broker,
            "newQueueId": row.to_queue_id,
        }
        for row in rows
    ]
