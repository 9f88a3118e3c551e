"""Queues that are counted together are counted as each alone."""

import importlib
from collections import Counter
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest

from backlog.counted import AS_OF_MS, ExpiringItems, brute_force, measured, message
from mqstore.backlog import (
    BacklogItem,
    BacklogRequest,
    measure,
    measure_in_batches,
    plan,
)
from mqstore.format.consume_queue import UNIT
from mqstore.format.hashing import java_hash
from mqstore.read.directory import open_origin, take
from support.expectations import rows
from support.stores import Laid, Layout, lay_out


def _side_by_side(root: Path) -> tuple[Laid, BacklogRequest]:
    """Six queues whose messages lie side by side; two groups in each, one of them halfway."""
    sent = [
        message(tag, topic=topic, queue_id=queue_id)
        for tag in ("A", "B", None, "Aa", "BB", "A", "C")
        for topic in ("T", "Topic_2", "Topic_3")
        for queue_id in (0, 1)
    ]
    topics = ("T", "Topic_2", "Topic_3")
    offsets = {(topic, "g1"): {0: 0, 1: 3} for topic in topics}
    offsets |= {(topic, "g2"): {0: 2, 1: 0} for topic in topics}
    subscriptions = {"g1": {"T": "A", "*": "B || Aa"}, "g2": {"Topic_2": "BB", "Topic_3": "C"}}
    return lay_out(root, sent, Layout(group_offsets=offsets)), BacklogRequest(None, subscriptions)


@pytest.mark.parametrize(
    "bounds",
    [
        {"MAX_QUEUES": 1},
        {"MAX_QUEUES": 4},
        {"_BLOCK_UNITS": 12, "_LEAST_UNITS": 1},  # several blocks of each queue
        {"MAX_CELLS": 30},  # by tag more than six queues may have, as many as one may
        {"MAX_CHARS": 20},
    ],
    ids=str,
)
@pytest.mark.parametrize("lag_mode", ["exact", "hash"])
@pytest.mark.parametrize("by_tag", [False, True])
def test_queues_counted_together_are_counted_as_each_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bounds: dict[str, int],
    lag_mode: str,
    *,
    by_tag: bool,
) -> None:
    laid, request = _side_by_side(tmp_path)
    request = replace(request, lag_mode=lag_mode, by_tag=by_tag)
    for name, bound in bounds.items():
        for module in ("count", "measure"):
            found = importlib.import_module(f"mqstore.backlog.{module}")
            if hasattr(found, name):
                monkeypatch.setattr(found, name, bound)
    assert measured(laid.root, request) == list(brute_force(laid, request))


def test_queues_counted_together_when_a_file_expires_lose_only_its_messages(
    tmp_path: Path,
) -> None:
    large = [message("A", queue_id=n % 2, body=bytes(1500)) for n in range(8)]
    laid = lay_out(tmp_path, large, Layout(group_offsets={("T", "g"): {0: 0, 1: 0}}))
    request = BacklogRequest(subscriptions={"g": {"T": "A"}})
    items = ExpiringItems(plan(take(laid.root), request))
    items.path = laid.file_of(laid.messages[0])[0]
    gone = [m for m in laid.messages if laid.file_of(m)[0] == items.path]
    found = rows(measure(items, request, AS_OF_MS))
    assert not items.path.exists()
    lost = Counter(m.queue_id for m in gone)
    assert [(r["lag"], r["lagMatching"]) for r in found] == [(4, 4 - lost[0]), (4, 4 - lost[1])]


def test_rows_come_in_batches_queue_by_queue_and_are_those_of_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid, request = _side_by_side(tmp_path)
    items = plan(take(laid.root, broker_name="broker-a"), request)
    monkeypatch.setattr(importlib.import_module("mqstore.backlog.measure"), "_BATCH_ROWS", 3)
    batches = list(measure_in_batches(items, request, AS_OF_MS))
    assert [batch.num_rows for batch in batches] == [4, 4, 4]
    queues = [(r["topic"], r["queueId"]) for batch in batches for r in rows(batch)]
    assert len(list(groupby(queues))) == 6
    found = [row for batch in batches for row in rows(batch)]
    key = itemgetter("group", "topic", "queueId")
    assert sorted(found, key=key) == rows(measure(items, request, AS_OF_MS))


def test_a_queue_of_many_chunks_is_counted_for_all_groups_in_it(tmp_path: Path) -> None:
    count, tags = 130_000, np.array([java_hash("A"), java_hash("B"), 0], np.int64)
    random = np.random.default_rng(5)
    units = np.zeros(count, UNIT)
    units["size"] = random.integers(100, 4000, count)
    units["tags_code"] = random.choice(tags, count)
    queue = tmp_path / "consumequeue/T/0"
    queue.mkdir(parents=True)
    (tmp_path / "commitlog").mkdir()
    (queue / f"{0:020d}").write_bytes(units.tobytes())
    starts = [0, 1, 52_427, 52_428, 52_429, 100_000, count - 1, count]
    item = BacklogItem(open_origin(tmp_path), "b", "g", "T", 0, 0, count)
    items = [
        replace(item, consumer_offset=start, subscription=expression)
        for start in starts
        for expression in ("A", "A || B", None)
    ]
    found = rows(measure(items, BacklogRequest(lag_mode="hash"), AS_OF_MS))
    wanted = {"A": tags[:1], "A || B": tags[:2], None: tags}
    for row in found:
        behind = units[row["consumerOffset"] :]
        passing = behind[np.isin(behind["tags_code"], wanted[row["subscription"]])]
        assert (row["lag"], row["lagMatching"]) == (len(behind), len(passing))
        assert row["bytesBehind"] == behind["size"].sum(dtype=np.int64)
        assert row["bytesMatching"] == passing["size"].sum(dtype=np.int64)
