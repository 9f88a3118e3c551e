"""Small stores and the commits that run on them while the disk is watched.

Every file is so small that a handful of messages crosses its end. A seed changes the shape, so
that a longer run sees other stores; the same seed gives the same store and the same rows.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from mqstore.write.commit import abort, commit
from mqstore.write.stage.job import CommitResult
from support.oracle import Message, join_properties
from support.stores import Layout, lay_out
from support.writing import prepared, staged

APP = "loader"
NAMES = ("T", "Topic_2")
BORN_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Shape:
    """Numbers that make one scenario what it is."""

    old: int  # messages of a broker, before
    rows: int
    parts: int = 1
    body: int = 20  # bytes, about
    topics: tuple[str, ...] = ("T",)
    queues: int = 2
    layout: Layout = field(
        default_factory=lambda: Layout(commit_log_bytes=8192, queue_units=20, index_units=60)
    )
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1  # of APP; before it, all lower ones are committed
    stale: int = 0  # bytes behind the end of the log that are no record


@dataclass(frozen=True)
class Scenario:
    """A kind of store and commit."""

    name: str
    shape: Callable[[random.Random], Shape]


@dataclass(frozen=True)
class Work:
    """One commit that is to be made: on which store, what, and known as what."""

    name: str
    seed: int
    shape: Shape
    batches: tuple[pa.RecordBatch, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """The write's settings."""
        made: dict[str, Any] = {"txn_app_id": APP, "txn_version": self.shape.version}
        return {**made, **self.shape.settings}

    def lay_out(self, root: Path) -> None:
        """Make the store as it is before."""
        shape = self.shape
        if shape.settings.get("create_store"):
            return
        rng = random.Random(self.seed)
        old = [_old(n, shape, rng) for n in range(shape.old)]
        laid = lay_out(root, old, shape.layout)
        if shape.stale:
            path, position = laid.file_of(laid.messages[-1])
            with path.open("r+b") as file:
                file.seek(position + laid.messages[-1].size)
                file.write(rng.randbytes(shape.stale))
        for version in range(1, shape.version):
            batch = _rows(rng, shape, 0, 3, f"v{version}")
            again = {**self.settings, "txn_version": version}
            write(root, (batch,), again)

    def run(self, root: Path) -> CommitResult:
        """Stage and commit."""
        return write(root, self.batches, self.settings)


def write(
    root: Path, batches: Sequence[pa.RecordBatch], settings: Mapping[str, Any]
) -> CommitResult:
    """Append batches, a partition each. What fails leaves things as a failing driver would."""
    job = prepared(root, batches[0].schema, **settings)
    try:
        manifests = staged(job, *[[batch] for batch in batches])
    except BaseException:
        abort(job, [])
        raise
    return commit(job, manifests)


def work(scenario: Scenario, seed: int) -> Work:
    """Return the commit of a scenario that belongs to a seed; seed 0 is the plain one."""
    rng = random.Random(f"{scenario.name} {seed}")
    shape = scenario.shape(rng)
    share = -(-shape.rows // shape.parts)
    batches = tuple(
        _rows(rng, shape, first, min(share, shape.rows - first), "new")
        for first in range(0, shape.rows, share)
    )
    return Work(scenario.name, seed, shape, batches)


def _old(number: int, shape: Shape, rng: random.Random) -> Message:
    properties = {"KEYS": f"old{number}", "UNIQ_KEY": f"{number:032X}"}
    return Message(
        topic=NAMES[0],
        queue_id=number % shape.queues,
        body=f"old {number} ".encode() + bytes(rng.randrange(shape.body)),
        properties=join_properties(properties),
        store_timestamp_ms=BORN_MS + number,
    )


def _rows(rng: random.Random, shape: Shape, first: int, count: int, word: str) -> pa.RecordBatch:
    numbers = range(first, first + count)
    bodies = [f"{word} {n} ".encode() + bytes(rng.randrange(shape.body)) for n in numbers]
    return pa.RecordBatch.from_pydict(
        {
            "body": pa.array(bodies),
            "topic": pa.array([shape.topics[n % len(shape.topics)] for n in numbers]),
            "queueId": pa.array([n % shape.queues for n in numbers], pa.int32()),
            "keys": pa.array([f"{word}{n}" for n in numbers]),
            "tags": pa.array([f"t{n % 3}" for n in numbers]),
            "bornTimestamp": pa.array([BORN_MS + n for n in numbers], pa.int64()),
        }
    )


def _layout(log: int, units: int = 40, index: int = 200) -> Layout:
    return Layout(commit_log_bytes=log, queue_units=units, index_slots=13, index_units=index)


SCENARIOS = (
    Scenario(
        "everything",
        lambda rng: Shape(
            old=7 + rng.randrange(4),
            rows=10 + rng.randrange(4),
            parts=2,
            body=40,
            topics=NAMES,
            layout=_layout(2048, units=4, index=30),
        ),
    ),
    Scenario(
        "same-file",
        lambda rng: Shape(
            old=5 + rng.randrange(4), rows=4 + rng.randrange(5), layout=_layout(8192)
        ),
    ),
    Scenario(
        "next-file",
        lambda rng: Shape(
            old=6 + rng.randrange(5), rows=9 + rng.randrange(3), body=60, layout=_layout(3072)
        ),
    ),
    Scenario(
        "many-files",
        lambda rng: Shape(old=3, rows=24 + rng.randrange(12), body=150, layout=_layout(2048)),
    ),
    Scenario(
        "new-topic",
        lambda rng: Shape(old=3 + rng.randrange(3), rows=6, topics=NAMES, layout=_layout(8192)),
    ),
    Scenario(
        "queue-files",
        lambda rng: Shape(
            old=16 + rng.randrange(4), rows=9 + rng.randrange(24), layout=_layout(16384, units=10)
        ),
    ),
    Scenario(
        "index-files",
        lambda rng: Shape(
            old=8 + rng.randrange(3), rows=9 + rng.randrange(12), layout=_layout(16384, index=24)
        ),
    ),
    Scenario(
        "new-store",
        lambda rng: Shape(
            old=0,
            rows=5 + rng.randrange(10),
            settings={
                "create_store": True,
                "mapped_file_size_commit_log": 4096,
                "mapped_file_size_consume_queue": 200,
                "max_hash_slot_num": 13,
                "max_index_num": 60,
            },
        ),
    ),
    Scenario(
        "segments",
        lambda rng: Shape(old=4, rows=12, parts=3 + rng.randrange(2), layout=_layout(8192)),
    ),
    Scenario(
        "second-version",
        lambda rng: Shape(old=4, rows=5 + rng.randrange(5), version=2, layout=_layout(8192)),
    ),
    Scenario(
        "stale-tail",
        lambda rng: Shape(
            old=4, rows=5 + rng.randrange(5), stale=2900 + rng.randrange(300), layout=_layout(4096)
        ),
    ),
    Scenario(
        "interlock",
        lambda rng: Shape(
            old=4, rows=5 + rng.randrange(5), layout=_layout(4096), settings={"interlock": True}
        ),
    ),
    Scenario(
        "mapped",
        lambda rng: Shape(
            old=6 + rng.randrange(5),
            rows=9 + rng.randrange(3),
            body=60,
            layout=_layout(3072),
            settings={"write_mode": "mmap"},
        ),
    ),
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
