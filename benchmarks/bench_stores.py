"""The backlog of many stores that a glob names, and the samples of ``mqlog record``: one process.

    python -m benchmarks stores

The argument is the number of queues: a thousand in each store, four of each topic, with four
messages each. In each store a topic has a group that stands at another place of each queue, so the
backlog has a row for each queue. ``offsets`` are the columns that need no message, ``record`` is a
sample.
"""

import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.laid_out import Shape, lay_out, topic_name
from benchmarks.rounds import Side, compare
from mqlog_jobs.places import Named
from mqlog_jobs.work.recording import sample
from mqlog_jobs.work.show_backlog import BacklogQuery
from mqstore.request.plan import plan_read
from mqstore.request.read import read_options

QUEUES = 1_000
OF_A_TOPIC = 4
EACH = 4
GROUPS = 10
LOG_BYTES = 1 << 20
OFFSETS = ("brokerName", "group", "topic", "queueId", "brokerOffset", "consumerOffset", "lag")


def main(queues: int) -> None:
    """Lay the stores out in a temporary directory and measure them."""
    stores = max(2, queues // QUEUES)
    topics = queues // stores // OF_A_TOPIC
    shape = Shape(topics * OF_A_TOPIC * EACH, 100, OF_A_TOPIC, topics, log_bytes=LOG_BYTES)
    with tempfile.TemporaryDirectory() as directory:
        for number in range(stores):
            root = Path(directory) / f"broker-{number:03}" / "store"
            lay_out(root, shape)
            _write_offsets(root, topics)
        glob = f"{directory}/*/store"
        rows = stores * topics * OF_A_TOPIC
        sides = [
            Side("offsets", partial(_backlog, glob, rows), rows),
            Side("record", partial(_sample, glob, rows), rows),
        ]
        case = f"{stores} stores x {topics * OF_A_TOPIC} queues"
        compare("stores", case, sides, cores=len(os.sched_getaffinity(0)))


def _write_offsets(root: Path, topics: int) -> None:
    offsets = {
        f"{topic_name(topic)}@G{topic % GROUPS}": {str(queue): queue for queue in range(OF_A_TOPIC)}
        for topic in range(topics)
    }
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


def _backlog(glob: str, rows: int) -> int:
    found = lag = 0
    for work in plan_read(read_options((glob,), {"table": "backlog"}), OFFSETS).work():
        for batch in work.batches():
            found += batch.num_rows
            lag += sum(batch["lag"].to_pylist())
    assert lag == rows // OF_A_TOPIC * sum(range(1, EACH + 1))
    return found


def _sample(glob: str, rows: int) -> int:
    asked = BacklogQuery.of(None, None, None, system=False)
    found, _ = sample(Named.of([glob]), asked, "record", 0)
    assert sum(found["lag"].to_pylist()) == rows // OF_A_TOPIC * sum(range(1, EACH + 1))
    return int(found.num_rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
