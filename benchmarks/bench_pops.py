"""The backlog of groups that pop, beside the same groups pulling: core library, one core.

    python -m benchmarks pops

MESSAGES (6,400 at least) in 4 queues of each of 100 topics, and a row for each queue of each of
1,000 groups (a ten-thousandth of MESSAGES, if fewer). Each group stands at another place of each
queue. The store ``pop`` has beside that a checkpoint of 8 messages for each group and topic, half
of which are acknowledged; both are counted by the tags themselves. ``old`` is ``pop`` with a tenth
of MESSAGES more checkpoints before those, ten days older. At last the groups of the first store pop
ten times in each topic and acknowledge nothing: how much memory that takes.
"""

import json
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.alone import alone
from benchmarks.facts import facts, load
from benchmarks.laid_out import FIRST_MS, Shape, lay_out, topic_name
from benchmarks.rounds import Side, compare
from mqstore import backlog
from mqstore.format.consume_queue import UNIT
from mqstore.format.hashing import tags_code
from mqstore.format.message import CRC_MASK, HEADER, RECORD_MAGICS
from mqstore.format.names import TIMER_TOPIC, mapped_file_name
from mqstore.format.pop import ACK_TAG, CHECKPOINT_TAG
from mqstore.format.properties import join
from mqstore.read.directory import take

TOPICS = 100
QUEUES = 4
POPPED = 8
ACKNOWLEDGED = 4
MOST_CHECKPOINTS = 10
BROKER = "b"
INVISIBLE_MS = 60_000
OLDER_MS = 10 * 24 * 3_600_000
FEWEST = 2 * POPPED * TOPICS * QUEUES
"""Fewer messages would leave queues without the messages that are popped."""


@dataclass(frozen=True, slots=True)
class Pops:
    """What each group has popped in each topic: checkpoints of POPPED messages, one by one."""

    groups: int
    each: int
    checkpoints: int = 1
    acknowledged: int = ACKNOWLEDGED

    def committed(self, group: int, queue: int) -> int:
        """Return the next offset to pop, or to pull."""
        popped = POPPED * self.checkpoints
        return popped + (self.each - popped) * (group + queue) // (self.groups + QUEUES)

    @property
    def open(self) -> int:
        """How many messages of all groups are popped and not acknowledged."""
        return (POPPED - self.acknowledged) * self.checkpoints * self.groups * TOPICS

    def records(self) -> Iterator[tuple[str, dict[str, object], str]]:
        """Yield tag, body and name of each checkpoint and acknowledgement."""
        for topic in range(TOPICS):
            for group in range(self.groups):
                for number in range(self.checkpoints):
                    first = self.committed(group, 0) - POPPED * (number + 1)
                    yield from self._pop(topic_name(topic), f"G{group}", first)

    def _pop(
        self, topic: str, group: str, first: int
    ) -> Iterator[tuple[str, dict[str, object], str]]:
        key = {"t": topic, "c": group, "q": 0, "so": first, "pt": FIRST_MS, "bn": BROKER}
        name = f"{topic}@0@{first}@{group}@{FIRST_MS}@{BROKER}"
        places = list(range(POPPED))
        body = key | {"it": INVISIBLE_MS, "n": POPPED, "d": places, "bm": 0}
        yield CHECKPOINT_TAG, body, name
        for place in places[: self.acknowledged]:
            yield ACK_TAG, key | {"ao": first + place}, name


def main(count: int) -> None:
    """Lay out the stores in a temporary directory and measure them."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    count = max(FEWEST, count)
    shape = Shape(count, 100, queues=QUEUES, topics=TOPICS)
    pops = Pops(max(2, count // 10_000), shape.each)
    with tempfile.TemporaryDirectory() as directory:
        pull, pop, old = (Path(directory) / name for name in ("pull", "pop", "old"))
        for root, older in ((pull, None), (pop, 0), (old, count // 10)):
            lay_out(root, shape)
            _write_offsets(root, pops)
            if older is not None:
                _write_pops(root, pops, shape, older)
        rows = pops.groups * TOPICS * QUEUES
        sides = [
            Side("pull", partial(_rows, pull, pops.groups, 0), rows),
            Side("pop", partial(_rows, pop, pops.groups, pops.open), rows),
            Side("old", partial(_rows, old, pops.groups, pops.open), rows),
        ]
        what = f"{pops.groups} groups x {TOPICS} topics"
        compare("pops", what, sides, messages=count, older=count // 10)
        _measure_memory(pull, pops, shape)


def _measure_memory(root: Path, pops: Pops, shape: Shape) -> None:
    most = max(1, min(MOST_CHECKPOINTS, shape.each // (2 * POPPED)))
    pops = Pops(pops.groups, pops.each, most, acknowledged=0)
    _write_offsets(root, pops)
    _write_pops(root, pops, shape, 0)
    needed, _ = alone(_rows, root, pops.groups, pops.open)
    checkpoints = pops.open // POPPED
    line = {
        "bench": "pops",
        "case": f"{checkpoints:,} open checkpoints",
        "messages": pops.open,
        "MiB": round(needed, 1),
        "load": [load()],
        **facts(),
    }
    print(json.dumps(line), flush=True)


def _rows(root: Path, groups: int, open_: int) -> int:
    told = {f"G{number}": {"*": ("TagA", "TagR")[number % 2]} for number in range(groups)}
    request = backlog.BacklogRequest(subscriptions=told)
    snapshot = take(root, broker_name=BROKER)
    items = backlog.plan(snapshot, request)
    found = rows = 0
    for batch in backlog.measure_in_batches(items, request, snapshot.taken_ms):
        rows += batch.num_rows
        found += sum(batch["due"].fill_null(0).to_pylist())
    assert found == open_
    return rows


def _write_offsets(root: Path, pops: Pops) -> None:
    offsets = {
        f"{topic_name(topic)}@G{group}": {
            str(queue): pops.committed(group, queue) for queue in range(QUEUES)
        }
        for topic in range(TOPICS)
        for group in range(pops.groups)
    }
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


def _write_pops(root: Path, pops: Pops, shape: Shape, older: int) -> None:
    """Write the records of the timer topic into files of their own behind the others."""
    start = len(list((root / "commitlog").iterdir())) * shape.log_bytes
    units, size = [], 0
    with (root / "commitlog" / mapped_file_name(start)).open("wb") as file:
        for tag, record in _records(pops, start, older):
            units.append((start + size, len(record), tags_code(tag)))
            size += file.write(record)
        assert size < shape.log_bytes, "the timer topic does not fit into a file"
        file.truncate(shape.log_bytes)
    folder = root / "consumequeue" / TIMER_TOPIC / "0"
    folder.mkdir(parents=True)
    per_file = next((root / "consumequeue" / topic_name(0) / "0").iterdir()).stat().st_size
    whole = np.array(units, UNIT).tobytes()
    for begin in range(0, len(whole), per_file):
        with (folder / mapped_file_name(begin)).open("wb") as file:
            file.write(whole[begin : begin + per_file])
            file.truncate(per_file)


def _records(pops: Pops, start: int, older: int) -> Iterator[tuple[str, bytes]]:
    """Yield tag and record in the order of the log, ``older`` ones first: all of one kind."""
    at = start
    tag, body, name = next(pops.records())
    first = _record(tag, body, name, FIRST_MS - OLDER_MS)
    for place in range(older):
        yield tag, _placed(first, place, at)
        at += len(first)
    for number, (kind, fields, named) in enumerate(pops.records()):
        record = _placed(_record(kind, fields, named, FIRST_MS), older + number, at)
        yield kind, record
        at += len(record)


def _placed(record: bytes, place: int, at: int) -> bytes:
    """Return a record with its queue offset and its place in the log."""
    head = np.frombuffer(record[: HEADER.itemsize], HEADER).copy()
    head["queue_offset"], head["physical_offset"] = place, at
    return head.tobytes() + record[HEADER.itemsize :]


def _record(tag: str, body: dict[str, object], name: str, stored_ms: int) -> bytes:
    out = stored_ms + INVISIBLE_MS
    texts = {"REAL_TOPIC": "rmq_sys_REVIVE_LOG_C", "REAL_QID": "0", "TIMER_OUT_MS": str(out)}
    properties = join({"TAGS": tag, "UNIQ_KEY": f"{name}@{tag}", **texts})
    data, topic = json.dumps(body).encode(), TIMER_TOPIC.encode()
    tail = bytes([len(topic)]) + topic + len(properties).to_bytes(2) + properties
    head = np.zeros(1, HEADER)
    head["total_size"] = HEADER.itemsize + len(data) + len(tail)
    head["magic"], head["body_length"] = RECORD_MAGICS[0], len(data)
    head["body_crc"] = zlib.crc32(data) & CRC_MASK
    head["store_timestamp_ms"] = stored_ms
    head["born_ip"] = head["store_ip"] = np.void(bytes([127, 0, 0, 1]))
    return head.tobytes() + data + tail


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
