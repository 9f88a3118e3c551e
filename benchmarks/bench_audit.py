"""Digests for an audit on one core, beside a scan of the same columns.

    python -m benchmarks audit

``by offset`` counts all properties, ``by id`` those of users; ``scan`` reads the columns and makes
no digest. Bodies have 1 KiB; the line has the bytes of bodies, the page cache is warm.

The lines ``differences`` are of 25 times as many messages with small bodies. One in a hundred
differs in a known way (``audit_changes``): all are found and no other, or nothing is measured.
"""

import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from benchmarks.alone import alone
from benchmarks.audit_changes import QUEUES, Changes, Known, known
from benchmarks.facts import facts, load
from benchmarks.laid_out import Shape, lay_out
from benchmarks.rounds import Side, compare
from mqstore.audit.differences import differences
from mqstore.audit.digests import digests_of
from mqstore.audit.rows import AuditRule, default_left_out
from mqstore.audit.sides import audit_sides
from mqstore.read.directory import open_origin, take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of

BODY_BYTES = 1024
SMALL_BODY_BYTES = 16
GROWN = 25


def main(messages: int) -> None:
    """Print three lines."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lay_out(root, Shape(messages=messages, queues=QUEUES, body_bytes=BODY_BYTES))
        slices = slices_of(take(root))
        rules = {by: AuditRule(by, default_left_out(by)) for by in ("offset", "id")}
        settings = ScanSettings(columns=rules["offset"].columns, merged=True)
        sides = [
            Side("scan", lambda: sum(b.num_rows for b in scan(slices, settings)), messages),
            Side("by offset", lambda: digests_of(slices, rules["offset"], "b").count, messages),
            Side("by id", lambda: digests_of(slices, rules["id"], "b").count, messages),
        ]
        compare("audit", "digests", sides, messages=messages, bytes=messages * BODY_BYTES)
    _find(GROWN * messages)


def _find(messages: int) -> None:
    """Find all known differences of two stores, by offset and by id; print a line of each."""
    with tempfile.TemporaryDirectory() as folder:
        roots = Path(folder) / "first", Path(folder) / "second"
        shape = Shape(messages=messages, queues=QUEUES, body_bytes=SMALL_BODY_BYTES)
        size = lay_out(roots[0], shape)
        shutil.copytree(*roots)
        changes = Changes.of(shape)
        changes.make(roots[1], size)
        for by in ("offset", "id"):
            before = load()
            needed, (seconds, found) = alone(_found, roots, by)
            expected = changes.expected(by)
            if found != expected:
                wrong = (found - expected) + (expected - found)
                raise AssertionError(f"by {by}: {wrong.total()} wrong: {wrong.most_common(5)}")
            line = {
                "bench": "audit",
                "case": "differences",
                "by": by,
                "messages": messages,
                "bodyBytes": SMALL_BODY_BYTES,
                "found": found.total(),
                "kinds": dict(Counter(kind for kind, _, _ in found.elements())),
                "seconds": round(seconds, 2),
                "MiB": round(needed, 1),
                "load": [before, load()],
                **facts(),
            }
            print(json.dumps(line), flush=True)


def _found(roots: tuple[Path, Path], by: str) -> tuple[float, Counter[Known]]:
    """Return the seconds of an audit of two stores, and what it found."""
    rule = AuditRule(by, default_left_out(by))
    begin = time.perf_counter()
    with (
        closing(open_origin(roots[0]).bounds()) as here,
        closing(open_origin(roots[1]).bounds()) as there,
    ):
        sides = audit_sides([(here, here.snapshot())], [(there, there.snapshot())])
        digests = sides[0].digests(rule), sides[1].digests(rule)
        found = Counter(known(one, by) for one in differences(sides, digests, rule))
    return time.perf_counter() - begin, found


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
