"""One more point of an idle store's history, on the same disk: seconds, and bytes written.

    python -m benchmarks points

The argument is the size of the CommitLog in MiB, two files of 1 GiB at least; they are sparse, as
no point reads a full file again. ``idle`` is a point of a store that had one before and has not
changed since.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.laid_out import Shape, lay_out
from benchmarks.rounds import Side, compare
from mqstore.copy.take_point import take_point
from mqstore.files.points.backing import LocalBacking
from mqstore.files.points.manifest import PointHead

QUEUES = 100
PER_FILE = 10_000


def main(mib: int) -> None:
    """Lay the store out in a temporary directory and take points of it."""
    files = max(2, mib >> 10)
    shape = Shape(files * PER_FILE, 100, QUEUES, per_file=PER_FILE)
    heads: list[PointHead] = []
    with tempfile.TemporaryDirectory() as directory:
        root, repository = Path(directory) / "broker-a" / "store", Path(directory) / "kept"
        lay_out(root, shape)
        backing = LocalBacking(str(repository))
        sides = [Side("idle", partial(_point, root, backing, heads), 1)]
        case = f"{files} GiB, {QUEUES} queues"
        compare("points", case, sides, found=partial(_bytes, repository, heads))


def _point(root: Path, backing: LocalBacking, heads: list[PointHead]) -> int:
    heads.append(take_point(root, backing))
    return 1


def _bytes(repository: Path, heads: list[PointHead]) -> dict[str, Any]:
    """Return what the first point, which is not counted, and the last one wrote."""
    manifests = (path.stat().st_size for path in (repository / "points").iterdir())
    return {
        "firstBytes": heads[0].written_bytes,
        "idleBytes": heads[-1].written_bytes,
        "manifestBytes": max(manifests),
    }


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_240)
