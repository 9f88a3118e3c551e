"""The backlog of groups that pop, beside the same groups pulling: core library, one core.

    python -m benchmarks pops

MESSAGES (6,400 at least) in 4 queues of each of 100 topics, and a row for each queue of each of
1,000 groups (a ten-thousandth of MESSAGES, if fewer). Each group stands at another place of each
queue. The store ``pop`` has beside that a checkpoint of 8 messages for each group and topic, half
of which are acknowledged; both are counted by the tags themselves.
"""

import json
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

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
BROKER = "b"
INVISIBLE_MS = 60_000
FEWEST = 2 * POPPED * TOPICS * QUEUES
"""Fewer messages would leave queues without the messages that are popped."""


def main(count: int) -> None:
    """Lay out both stores in a temporary directory and measure them."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    count = max(FEWEST, count)
    groups = max(2, count // 10_000)
    shape = Shape(count, 100, queues=QUEUES, topics=TOPICS)
    with tempfile.TemporaryDirectory() as directory:
        pull, pop = Path(directory) / "pull", Path(directory) / "pop"
        for root in (pull, pop):
            lay_out(root, shape)
            _write_offsets(root, groups, shape.each)
        _write_pops(pop, groups, shape)
        rows = groups * TOPICS * QUEUES
        sides = [
            Side("pull", partial(_rows, pull, groups, 0), rows),
            Side("pop", partial(_rows, pop, groups, POPPED - ACKNOWLEDGED), rows),
        ]
        compare("pops", f"{groups} groups x {TOPICS} topics", sides, messages=count)


def _rows(root: Path, groups: int, open_: int) -> int:
    told = {f"G{number}": {"*": ("TagA", "TagR")[number % 2]} for number in range(groups)}
    request = backlog.BacklogRequest(subscriptions=told)
    snapshot = take(root, broker_name=BROKER)
    items = backlog.plan(snapshot, request)
    found = rows = 0
    for batch in backlog.measure_in_batches(items, request, snapshot.taken_ms):
        rows += batch.num_rows
        found += sum(batch["due"].fill_null(0).to_pylist())
    assert found == open_ * groups * TOPICS
    return rows


def _committed(group: int, queue: int, groups: int, each: int) -> int:
    return POPPED + (each - POPPED) * (group + queue) // (groups + QUEUES)


def _write_offsets(root: Path, groups: int, each: int) -> None:
    offsets = {
        f"{topic_name(topic)}@G{group}": {
            str(queue): _committed(group, queue, groups, each) for queue in range(QUEUES)
        }
        for topic in range(TOPICS)
        for group in range(groups)
    }
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


def _write_pops(root: Path, groups: int, shape: Shape) -> None:
    """Write the records of the timer topic into files of their own behind the others."""
    start = len(list((root / "commitlog").iterdir())) * shape.log_bytes
    units = []
    data = bytearray()
    for tag, body, name in _pops(groups, shape.each):
        record = _record(tag, body, name, len(units), start + len(data))
        units.append((start + len(data), len(record), tags_code(tag)))
        data += record
    with (root / "commitlog" / mapped_file_name(start)).open("wb") as file:
        file.write(data)
        file.truncate(shape.log_bytes)
    folder = root / "consumequeue" / TIMER_TOPIC / "0"
    folder.mkdir(parents=True)
    per_file = next((root / "consumequeue" / topic_name(0) / "0").iterdir()).stat().st_size
    whole = np.array(units, UNIT).tobytes()
    for begin in range(0, len(whole), per_file):
        with (folder / mapped_file_name(begin)).open("wb") as file:
            file.write(whole[begin : begin + per_file])
            file.truncate(per_file)


def _pops(groups: int, each: int) -> Iterator[tuple[str, dict[str, object], str]]:
    for topic in range(TOPICS):
        for group in range(groups):
            first = _committed(group, 0, groups, each) - POPPED
            key = {"t": topic_name(topic), "c": f"G{group}", "q": 0, "so": first, "pt": FIRST_MS}
            key["bn"] = BROKER
            name = f"{topic_name(topic)}@0@{first}@G{group}@{FIRST_MS}@{BROKER}"
            places = list(range(POPPED))
            body = key | {"it": INVISIBLE_MS, "n": POPPED, "d": places, "bm": 0}
            yield CHECKPOINT_TAG, body, name
            for place in places[:ACKNOWLEDGED]:
                yield ACK_TAG, key | {"ao": first + place}, name


def _record(tag: str, body: dict[str, object], name: str, place: int, at: int) -> bytes:
    out = FIRST_MS + INVISIBLE_MS
    texts = {"REAL_TOPIC": "rmq_sys_REVIVE_LOG_C", "REAL_QID": "0", "TIMER_OUT_MS": str(out)}
    properties = join({"TAGS": tag, "UNIQ_KEY": f"{name}@{tag}", **texts})
    data, topic = json.dumps(body).encode(), TIMER_TOPIC.encode()
    tail = bytes([len(topic)]) + topic + len(properties).to_bytes(2) + properties
    head = np.zeros(1, HEADER)
    head["total_size"] = HEADER.itemsize + len(data) + len(tail)
    head["magic"], head["body_length"] = RECORD_MAGICS[0], len(data)
    head["body_crc"] = zlib.crc32(data) & CRC_MASK
    head["queue_offset"], head["physical_offset"] = place, at
    head["store_timestamp_ms"] = FIRST_MS
    head["born_ip"] = head["store_ip"] = np.void(bytes([127, 0, 0, 1]))
    return head.tobytes() + data + tail


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
