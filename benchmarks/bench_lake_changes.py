"""Changes merged into a table of Delta Lake, beside an append of the same messages.

    python -m benchmarks lake_changes

A store of Debezium's messages of one table, whose keys are drawn at random: a third are new ones.
``append`` writes key and body of each message to a table of Delta, in the batches of ``merge``;
``merge`` is what ``mqlog changes`` does. Both read the store by the same batches.
"""

import json
import random
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

import mqlog
from benchmarks.rounds import Side, compare
from mqlog_jobs.delta.change_command import ChangeRequest, run
from mqlog_jobs.delta.change_rules import ChangeRules
from mqlog_jobs.places import Named

BATCH = 20_000
TYPES = "id BIGINT, name VARCHAR(40), qty INT, amount DECIMAL(18,4), PRIMARY KEY (id)"


def main(messages: int) -> None:
    """Print a line."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _write(root / "store", _changes(messages))
        sides = [
            Side("append", lambda: _append(root), messages),
            Side("merge", lambda: _merge(root), messages),
        ]
        compare("lake_changes", "debezium", sides, messages=messages, batch=BATCH)


def _changes(messages: int) -> list[dict]:
    rng = random.Random(1)
    keys: list[int] = []
    changes = []
    for position in range(messages):
        is_new = not keys or rng.random() < 1 / 3
        key = len(keys) if is_new else rng.choice(keys)
        if is_new:
            keys.append(key)
        row = {"id": key, "name": f"name {key}", "qty": position % 1_000, "amount": "1.5000"}
        changes.append({
            "before": None,
            "after": row,
            "op": "c" if is_new else "u",
            "ts_ms": 1_700_000_000_000 + position,
            "source": {
                "connector": "mysql", "db": "shop", "table": "orders", "file": "bin.000001",
                "pos": 100 * position, "row": 0, "ts_ms": 1_700_000_000_000 + position,
                "snapshot": "false",
            },
        })  # fmt: skip
    return changes


def _write(store: Path, changes: list[dict]) -> None:
    keys = [json.dumps({"id": one["after"]["id"]}, separators=(",", ":")) for one in changes]
    bodies = [json.dumps(one).encode() for one in changes]
    columns = {
        "topic": ["T"] * len(keys),
        "queueId": pa.array([zlib.crc32(key.encode()) % 4 for key in keys], pa.int32()),
        "keys": keys,
        "body": pa.array(bodies, pa.binary()),
    }
    mqlog.write(pa.table(columns), str(store), create_store=True, queue_nums=4)


def _append(root: Path) -> int:
    lake = root / "appended"
    shutil.rmtree(lake, ignore_errors=True)
    batches = mqlog.open(root / "store").follow(
        "T",
        columns=["keys", "body", "queueId", "queueOffset"],
        starting_offsets="earliest",
        timeout=0,
        max_offsets_per_trigger=BATCH,
    )
    written = 0
    for rows, _ in batches:
        write_deltalake(str(lake), pa.Table.from_batches([rows]), mode="append")
        written += rows.num_rows
    return written


def _merge(root: Path) -> int:
    lake = root / "merged"
    shutil.rmtree(lake, ignore_errors=True)
    request = ChangeRequest(("T",), f"delta:{lake}", "debezium", BATCH)
    named = Named.of([str(root / "store")], None, [f"changesSchema={TYPES}"])
    output, sys.stdout = sys.stdout, (root / "lines").open("w", encoding="utf-8")
    try:
        run(named, request, ChangeRules(), as_json=True)
    finally:
        sys.stdout.close()
        sys.stdout = output
    lines = (root / "lines").read_text(encoding="utf-8").splitlines()
    return sum(json.loads(line)["messages"] for line in lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60_000)
