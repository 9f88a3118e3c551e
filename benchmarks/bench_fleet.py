"""A fleet of simulated brokers: looks at the backlog of all groups, by offsets.

The argument is the number of brokers: each topic is on two of them, there are twenty topics and a
hundred groups a broker. The fleet runs in a process of its own on the same cores.
"""

import json
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from benchmarks.alone import alone
from benchmarks.facts import facts, load
from live.fleet import Fleet, Model, Size, running
from mqlog_jobs.cli import collect_rarely
from mqstore.backlog import BacklogRequest, Planner
from mqstore.backlog.request import group_test
from mqstore.backlog.standing import Standing
from mqstore.read.message_query import snapshots_of
from mqstore.read.selection import OpenStores, Selection
from mqstore.request.places import open_all, places

TOPICS, GROUPS = 20, 100
"""For each broker."""
LOOKS = 4
MOVED_PERCENT = 5


def main(brokers: int) -> None:
    """Measure the looks, and check each of their rows."""
    size = Size(brokers, TOPICS * brokers, GROUPS * brokers)
    needed, looks = alone(_looks, size)
    sums, lines = zip(*looks, strict=True)
    for number, (rows, line) in enumerate(zip(_checked(size, sums), lines, strict=True)):
        case = "first look" if number == 0 else "later look"
        print(
            json.dumps(
                {
                    "bench": "fleet",
                    "case": case,
                    "brokers": brokers,
                    "topics": size.topics,
                    "groups": size.groups,
                    "rows": rows,
                    **line,
                    "MiB": round(needed, 1),
                    "load": [load()],
                    **facts(),
                }
            ),
            flush=True,
        )


def _looks(size: Size) -> list[tuple[int, dict[str, Any]]]:
    collect_rarely()  # As the command does, whose looks these are.
    with running(size) as fleet:
        found = places([f"rocketmq://{fleet.address}"], {})
        selection = Selection(roots=(), include_system_topics=True, groups=(), with_state=True)
        with closing(open_all(selection, found.clusters)) as stores:
            planner, measured = Planner(BacklogRequest()), []
            for number in range(LOOKS):
                if number:
                    fleet.move(number, max(1, size.brokers * MOVED_PERCENT // 100))
                measured.append(_look(fleet, stores, planner))
            return measured


def _look(fleet: Fleet, stores: OpenStores, planner: Planner) -> tuple[int, dict[str, Any]]:
    begin, used = time.perf_counter(), time.process_time()
    snapshots = snapshots_of(stores, held=True, groups=group_test(None, system=True))
    items = planner.plan(stores.sources, snapshots)
    standing = Standing.of(items)
    words, lags = standing.status.to_pylist(), standing.lag.tolist()
    line = {
        "seconds": round(time.perf_counter() - begin, 3),
        "cpuSeconds": round(time.process_time() - used, 3),
    }
    asked = fleet.asked()
    codes: Counter[int] = sum(asked.values(), Counter())
    asked.pop("name server", None)
    line |= {"requests": codes.total(), "mostOfABroker": max(c.total() for c in asked.values())}
    rows = (
        (i.broker_name, i.group, i.topic, i.queue_id, i.high, i.consumer_offset, i.low, lag, word)
        for i, lag, word in zip(items, lags, words, strict=True)
    )
    return _sum(rows), line | {"byCode": {str(code): codes[code] for code in sorted(codes)}}


def _checked(size: Size, sums: Iterable[int]) -> list[int]:
    """Return how many rows each look has; raises where one row is not the model's."""
    model, counts = Model(size), []
    for number, found in enumerate(sums):
        if number:
            model.move(number, max(1, size.brokers * MOVED_PERCENT // 100))
        rows = list(model.rows())
        assert found == _sum(rows), f"look {number} has other rows"
        counts.append(len(rows))
    return counts


def _sum(rows: Iterable[tuple[Any, ...]]) -> int:
    """Return a sum over rows in any order."""
    return sum(zlib.crc32(repr(row).encode()) << 20 | 1 for row in rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
