"""Messages to copy, the rows of a store, its errors, and a copy that is killed."""

import signal
import subprocess
import sys
from pathlib import Path

from mqstore.check import check
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from support.oracle import Message, join_properties
from support.stores import Layout

Rows = dict[tuple[str, int], list[tuple[int, int, bytes]]]
SMALL = Layout(commit_log_bytes=1024, queue_units=4, index_slots=5, index_units=12)


def messages(count: int) -> list[Message]:
    return [
        Message(
            topic="AB"[i % 2],
            queue_id=i % 3,
            body=f"message {i}".encode(),
            properties=join_properties({"KEYS": f"k{i}", "TAGS": f"t{i % 2}"}),
        )
        for i in range(count)
    ]


def rows(root: Path) -> Rows:
    snapshot = take(root)
    settings = ScanSettings(columns=("queueOffset", "physicalOffset", "body"))
    found: Rows = {}
    for piece in slices_of(snapshot):
        found[piece.topic, piece.queue_id] = [
            (row["queueOffset"], row["physicalOffset"], row["body"])
            for batch in scan([piece], settings)
            for row in batch.to_pylist()
        ]
    return found


def errors(root: Path) -> list[str]:
    return [str(f) for f in check(root) if f.severity == "error"]


def kill_at(link: int, source: Path, target: Path) -> Path:
    """Kill a process that copies, at the link of that number; return what it leaves."""
    program = f"""
import os, signal
from mqstore.files.base import durable
from mqstore.copy.copy_store import copy_store
act, done = durable.link, []
def link(source, target):
    done.append(target)
    if len(done) == {link}:
        os.kill(os.getpid(), signal.SIGTERM)
    act(source, target)
durable.link = link
copy_store({str(source)!r}, {str(target)!r})
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    assert done.returncode == -signal.SIGTERM, done.stderr.decode()
    return target.with_name(f"{target.name}.partial")
