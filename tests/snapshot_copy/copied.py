"""Messages to copy, a store that grows, its rows and errors, and a copy that is killed."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqstore.check import check
from mqstore.files.base import durable
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import Snapshot, slices_of
from support.growing import grow
from support.oracle import Message, join_properties
from support.stores import Laid, Layout, lay_out

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


@contextmanager
def growing(laid: Laid, count: int, more: Path, step: int, calls: Sequence[str]) -> Iterator[None]:
    """Let a store grow to ``count`` messages, as laid out in ``more``, at one of these calls.

    ``calls`` are functions of ``durable``; the one of number ``step`` comes behind the growth.
    """
    lay_out(more, messages(count), laid.layout)
    done = 0

    def grows(name: str) -> Callable[..., object]:
        act = getattr(durable, name)

        def call(*arguments: object) -> object:
            nonlocal done
            if done == step:
                grow(laid, messages(count), laid.layout)
                for path in (more / "index").glob("*"):
                    shutil.copyfile(path, laid.root / "index" / path.name)
            done += 1
            return act(*arguments)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in calls:
            patch.setattr(durable, name, grows(name))
        yield


def rows(root: Path) -> Rows:
    return rows_in(take(root))


def rows_in(snapshot: Snapshot) -> Rows:
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
