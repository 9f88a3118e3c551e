"""A store read from an object store on loopback, beside its directory; nothing is kept between.

    python -m benchmarks objects

A store of MESSAGES with bodies of 1 KiB, in a server of moto's that holds it in memory. ``all``
reads every message, ``tag`` the one percent of a rare tag; each listed and planned anew, in one
task. ``fetched`` and ``requests`` are what the server answered to one read. The server
is written in Python: it bounds the rate, a real object store has another.
"""

import sys
import tempfile
from contextlib import closing
from pathlib import Path

from benchmarks.laid_out import Shape, lay_out
from benchmarks.rounds import Side, compare
from mqstore.read.offsets import Earliest, Latest, resolve
from mqstore.read.scan import scan
from mqstore.read.selection import Selection
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.request.places import open_all, places
from support import s3_server

COLUMNS = ("topic", "queueId", "queueOffset", "body")
FILE_BYTES = 4 << 20  # The server reads a whole object for each range of it.


def main(messages: int) -> None:
    """Measure all messages, and a tag."""
    shape = Shape(messages, queues=4, log_bytes=FILE_BYTES)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        record = lay_out(root, shape)
        with s3_server.running(Path(directory) / "requests") as server:
            address = server.upload(root, "bench/store")
            for case, tags, rows in (("all", "*", messages), ("tag", "TagR", shape.rare)):
                settings = ScanSettings(columns=COLUMNS, tags=tags)

                def remote(settings: ScanSettings = settings) -> int:
                    return read(address, server.options, settings)

                def local(settings: ScanSettings = settings) -> int:
                    return read(str(root), {}, settings)

                before = len(server.requests())
                assert remote() == rows
                asked = server.requests()[before:]
                compare(
                    "objects",
                    case,
                    [Side("directory", local, rows), Side("objects", remote, rows)],
                    messages=messages,
                    log_bytes=record * messages,
                    fetched=sum(request.bytes for request in asked),
                    requests=len(asked),
                )


def read(path: str, options: dict[str, str], settings: ScanSettings) -> int:
    """List, plan and scan a store; return the number of messages."""
    found = places([path], options)
    with closing(open_all(Selection(roots=found.roots()), ())) as stores:
        (source,), (snapshot,) = stores.sources, stores.snapshots
        ranges = resolve(source, snapshot, lambda _: (Earliest(), Latest()))
        return sum(batch.num_rows for batch in scan(slices_of(snapshot, ranges), settings))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
