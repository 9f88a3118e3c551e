"""Memory of a task that reads, of one that writes, and of the commit, at two sizes.

    python -m benchmarks memory

Each runs in a process of its own and tells by how much its largest resident size exceeds what
it was when everything was imported; pages of mapped files do not count, for nothing is mapped.
The second size is four times the first: what grows with the work shows.
"""

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.alone import alone
from benchmarks.facts import facts, load
from benchmarks.laid_out import Shape, lay_out, topic_name
from benchmarks.rows import batches
from mqstore.codec.schema import PROFILES
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueSlice
from mqstore.read.store_bounds import StoreOrigin
from mqstore.write.commit import commit
from mqstore.write.prepare import prepare
from mqstore.write.stage.job import Manifest, WriteJob
from mqstore.write.stage.settings import WriteSettings
from mqstore.write.stage.task import stage

BODY_BYTES = 1024
GROWN = 4
PART = 10_000


def main(count: int) -> None:
    """Measure at ``count`` messages and at four times as many."""
    for rows in (count, GROWN * count):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            lay_out(root / "read", Shape(rows, BODY_BYTES))
            needed, _ = alone(_read, root / "read", rows)
            _report("read", rows, needed)
            settings = WriteSettings(root=str(root / "write"), create_store=True, topic="BENCH")
            job = prepare(settings, batches(1, 1)[0].schema)
            needed, manifest = alone(_stage, job, rows)
            _report("stage", rows, needed)
            needed, _ = alone(_commit, job, manifest)
            _report("commit", rows, needed)


def _read(root: Path, rows: int) -> None:
    slices = [QueueSlice(StoreOrigin.at(root), "b", topic_name(0), 0, 0, rows)]
    found = scan(slices, ScanSettings(columns=PROFILES["full"]))
    assert sum(batch.num_rows for batch in found) == rows


def _stage(job: WriteJob, rows: int) -> Manifest:
    part = batches(PART, BODY_BYTES)[0]
    given = (part.slice(0, min(PART, rows - start)) for start in range(0, rows, PART))
    return stage(job, given, partition=0, attempt=0)


def _commit(job: WriteJob, manifest: Manifest) -> None:
    commit(job, [manifest])


def _report(case: str, rows: int, mebibytes: float) -> None:
    line = {
        "bench": "memory",
        "case": case,
        "messages": rows,
        "bodyBytes": BODY_BYTES,
        "MiB": round(mebibytes, 1),
        "load": [load()],
        **facts(),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
