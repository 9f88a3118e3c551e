"""Change rows of recorded messages, format by format, beside the untyped read and json.loads.

    python -m benchmarks changes

A store of the recordings of tests/golden/changes, repeated; the page cache is warm. ``untyped``
reads body, keys and properties; ``parsed`` also parses each body with Python's json, where it is
JSON; ``rows`` makes all columns of changes. The line has the bytes of a body, and the number of
rows.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import mqlog
from benchmarks.rounds import Side, compare
from changes.recordings import Recorded, names_of, recorded
from support import oracle
from support.oracle import Message
from support.stores import Layout, lay_out

FORMATS = {
    "canal": "canal_flat",
    "canalProtobuf": "canal_protobuf",
    "debezium": "dbz_plain_shop",
    "debezium with schemas": "dbz_schema_shop",
    "debeziumFlat": "dbz_flatten_shop",
}
"""The value of the option, and the recordings."""
COLUMNS = ["body", "keys", "properties", "queueOffset"]
LAYOUT = Layout(commit_log_bytes=64 << 20, queue_units=300_000, index=False)


def main(messages: int) -> None:
    """Print a line for each format."""
    for name, prefix in FORMATS.items():
        of_format = recorded("mariadb", *names_of("mariadb", prefix))
        with tempfile.TemporaryDirectory() as folder:
            _compare(name, of_format, messages, Path(folder) / "store")


def _compare(name: str, of_format: Sequence[Recorded], messages: int, root: Path) -> None:
    chosen = [of_format[number % len(of_format)].message for number in range(messages)]
    lay_out(
        root,
        [
            Message(
                topic="T",
                body=one.body,
                properties=oracle.join_properties({**one.properties, "KEYS": one.keys or "k"}),
            )
            for one in chosen
        ],
        LAYOUT,
    )
    place = mqlog.open(root)
    changes = name.split(" ", maxsplit=1)[0]
    rows = place.scan("T", changes=changes).count()
    is_json = changes != "canalProtobuf"

    def untyped() -> int:
        return sum(b.num_rows for b in place.scan("T", columns=COLUMNS).to_reader())

    def parsed() -> int:
        bodies = (b.column("body") for b in place.scan("T", columns=COLUMNS).to_reader())
        return sum(json.loads(body.as_py()) is not None for of in bodies for body in of)

    def changed() -> int:
        return sum(b.num_rows for b in place.scan("T", changes=changes).to_reader())

    sides = [
        Side("untyped", untyped, messages),
        *([Side("parsed", parsed, messages)] if is_json else []),
        Side("rows", changed, rows),
    ]
    size = sum(len(one.body) for one in chosen) // messages
    compare("changes", name, sides, messages=messages, bodyBytes=size, changes=rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4_000)
