"""The work of ``mqlog replay`` and the job replay.py: a replay, or a count of what it would do."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mqlog_jobs.output.amounts import several
from mqlog_jobs.replays.replay_plan import ReplayArguments, own_flags
from mqstore.carry.groups import (
    CarriedOffset,
    StandingOffset,
    carried_offsets,
    check_stood_still,
    check_target,
    commit_carried,
    standing_offsets,
)
from mqstore.carry.marks import BothTargets, GroupMarks
from mqstore.deliver.replay.choice import choose, task_of
from mqstore.deliver.replay.estimate import estimate
from mqstore.deliver.replay.progress import without
from mqstore.deliver.replay.rows import SourceQueue
from mqstore.deliver.replay.run import HereRunner, OffsetMapTarget, Replay, Runner, read_state
from mqstore.errors import shown
from mqstore.read.selection import OpenStores


def replayed(
    given: ReplayArguments,
    runner: Runner,
    moved: OffsetMapTarget | None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Replay what is requested, by the tasks of a runner; return what was done.

    Raises what ``choose``, ``standing_offsets``, ``task_of``, Replay#run and ``commit_carried``
    raise.
    """
    request, settings = given.request, given.settings()  # Before a place is opened.
    with given.source.opened(request.topics_named, groups=given.groups or None) as stores:
        found = choose(request, stores, settings.cluster)
        standing = _standing(given, stores)
        with own_flags():
            task = task_of(request, found, settings)
    marks = GroupMarks(_committed(standing))
    with own_flags():
        replay = Replay(
            task=task,
            slices=found.slices,
            origins=found.origins,
            moved=BothTargets(moved, marks) if given.groups else moved,
            progress=progress,
        )
        counts = replay.run(runner)
    done: dict[str, Any] = {
        "messages": counts.messages,
        "bodyBytes": counts.body_bytes,
        "topics": dict(sorted(counts.by_topic.items())),
        "before": counts.before,
        "found": counts.found,
        "skipped": counts.skipped,
        "repeats": counts.repeats,
    }
    if given.groups:
        with given.source.opened(request.topics_named, groups=given.groups) as stores:
            check_stood_still(standing, _standing(given, stores))
        carried = carried_offsets(standing, marks)
        commit_carried(settings.cluster, carried)
        done["groups"] = list(map(_row_of_carried, carried))
    return done


def groups_planned(given: ReplayArguments) -> list[dict[str, Any]]:
    """Return where groups would go on, a row for each source queue; sends and commits nothing.

    By what was replayed before: the place of what was not is not known. Raises as ``replayed``.
    """
    request, settings = given.request, given.settings()
    with given.source.opened(request.topics_named, groups=given.groups) as stores:
        found = choose(request, stores, settings.cluster)
        standing = _standing(given, stores)
    marks = GroupMarks(_committed(standing))
    with own_flags():
        check_target(settings.cluster, given.groups)
        done = read_state(settings).done
        if done:
            topics = {topic for _, topic, _ in done}
            sent = tuple(piece for piece in found.slices if piece.topic in topics)
            settings = replace(settings, create_topic=False, queue_nums=None)
            task = task_of(request, replace(found, slices=sent), settings)
            both = BothTargets(None, marks)
            Replay(task=task, slices=sent, origins=found.origins, moved=both).look_up(HereRunner())
    left = {(p.broker_name, p.topic, p.queue_id) for p in without(found.slices, done)}
    return [
        _row_of_carried(replace(one, new_offset=None) if one.standing.queue in left else one)
        for one in carried_offsets(standing, marks)
    ]


def _standing(given: ReplayArguments, stores: OpenStores) -> list[StandingOffset]:
    if not given.groups:
        return []
    topics = given.request.topics_named if given.request.places else None
    with own_flags():
        return standing_offsets(stores, given.groups, topics)


def _committed(standing: Sequence[StandingOffset]) -> dict[SourceQueue, set[int]]:
    found: dict[SourceQueue, set[int]] = {}
    for one in standing:
        found.setdefault(one.queue, set()).add(one.committed)
    return found


def _row_of_carried(one: CarriedOffset) -> dict[str, Any]:
    broker, topic, queue_id = one.standing.queue
    return {
        "group": one.standing.group,
        "brokerName": broker,
        "topic": topic,
        "queueId": queue_id,
        "consumerOffset": one.standing.committed,
        "waiting": one.standing.waiting,
        "replayed": one.replayed,
        "newTopic": None if one.to is None else one.to.topic,
        "newBrokerName": None if one.to is None else one.to.broker,
        "newQueueId": None if one.to is None else one.to.queue_id,
        "newOffset": one.new_offset,
        "again": one.again,
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
