"""Digests for an audit on one core, beside a scan of the same columns.

    python -m benchmarks audit

``by offset`` counts all properties, ``by id`` those of users; ``scan`` reads the columns and makes
no digest. Bodies have 1 KiB; the line has the bytes of bodies, the page cache is warm.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.laid_out import Shape, lay_out
from benchmarks.rounds import Side, compare
from mqstore.audit.digests import digests_of
from mqstore.audit.rows import AuditRule, default_left_out
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of

QUEUES = 4
BODY_BYTES = 1024


def main(messages: int) -> None:
    """Print one line."""
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


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
