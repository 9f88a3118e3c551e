"""Opened stores for tests that plan reads without the connector: sources, snapshots, tails."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from mqstore.read.capabilities import Tail, followable
from mqstore.read.directory import open_origin
from mqstore.read.queues import QueueFilter
from mqstore.read.source import BoundsSource, QueueSlice, Snapshot


def opened(
    root: str | Path, broker_name: str | None = None, *, strict: bool = True
) -> tuple[BoundsSource, Snapshot]:
    """Return the source of the store at ``root``, and a snapshot of all of it."""
    source = open_origin(root).bounds(broker_name)
    return source, source.snapshot(strict=strict)


def topics_of(root: str | Path) -> set[str]:
    """Return the topics that the store at ``root`` knows."""
    with closing(open_origin(root).bounds()) as source:
        return source.topics()


def source_of(snapshot: Snapshot) -> BoundsSource:
    """Return the source that the snapshot is of."""
    return snapshot.origin.bounds(snapshot.broker_name)


def tail_of(
    root: str | Path,
    topics: Callable[[str], bool] | None = None,
    queues: Callable[[str, int], bool] | None = None,
    *,
    broker_name: str | None = None,
    **how: Any,
) -> Tail:
    """Return the tail of the store at ``root``; ``how`` as ``BoundsSource.tail`` takes it."""
    return followable(open_origin(root).bounds(broker_name)).tail(
        QueueFilter(topics, queues), **how
    )


def narrowed(
    slices: Sequence[QueueSlice], keys: Sequence[str], msg_ids: Sequence[str]
) -> list[QueueSlice]:
    """Return what the IndexFiles leave of slices of one store."""
    if not slices:
        return []
    with closing(slices[0].origin.bounds()) as source:
        return source.narrow(slices, keys, msg_ids)
