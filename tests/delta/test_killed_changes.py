"""A run that is killed again and again, and goes on, ends in the rows of the database."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import mqlog
from changes.recordings import recorded, truth
from changes.test_recordings import ALTERED, CHARSETS, NONE, ZERO_DATES, Difference
from delta.test_recorded_changes import differences
from support import soak
from support.processes import until

KILLS = soak.size("killed_change_runs", check=1, test=3, whole=25)
TABLES = ("CaseTable", "items", "kinds", "late", "orders")


def store_of(messages: list, path: Path) -> None:
    columns = {
        "topic": ["DB"] * len(messages),
        "queueId": pa.array([one.queue_id for one in messages], pa.int32()),
        "body": pa.array([one.message.body for one in messages], pa.binary()),
    }
    mqlog.write(pa.table(columns), str(path), create_store=True, queue_nums=4)


def start(store: Path, lake: Path, output: Path) -> subprocess.Popen:
    words = ["changes", store, "DB", "--to", f"delta:{lake}", "--batch", "12", "--json"]
    with output.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "mqlog", *map(str, words)], stdout=file, start_new_session=True
        )


def wait_in(process: subprocess.Popen, output: Path, rng: random.Random) -> None:
    """Wait into the start of a run, or into one of its batches."""
    lines = rng.randrange(2)
    until(lambda: process.poll() is not None or output.read_bytes().count(b"\n") >= lines)
    end = time.monotonic() + rng.random() * (0.4 if lines else 2)
    until(lambda: process.poll() is not None or time.monotonic() >= end)


@pytest.mark.soak
def test_runs_killed_at_any_moment_end_in_the_database_and_one_more_changes_no_row(
    tmp_path: Path,
) -> None:
    rng = random.Random(soak.SEED)
    # Twice, as a producer sends again what it is not sure of.
    messages = recorded("mariadb", "canal_protobuf")
    store_of([*messages, *messages[len(messages) // 2 :]], tmp_path / "store")
    lake = tmp_path / "lake"
    killed = 0
    for number in range(KILLS):
        output = tmp_path / f"{number}.jsonl"
        process = start(tmp_path / "store", lake, output)
        wait_in(process, output, rng)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.wait(timeout=60)
    for number in ("last", "again"):
        process = start(tmp_path / "store", lake, tmp_path / f"{number}.jsonl")
        assert process.wait(timeout=300) == 0
    assert killed
    assert differences(lake, truth("mariadb")) == {
        "CaseTable": NONE,
        "items": NONE,
        "kinds": Difference(0, 0, CHARSETS | ZERO_DATES),
        "late": NONE,
        "orders": Difference(0, 0, ALTERED),
    }
    again = (tmp_path / "again.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in again] == []
    # The same from the first message on: nothing is behind any more.
    versions = {name: DeltaTable(str(lake / f"shop.{name}")).version() for name in TABLES}
    (lake / "_mqlog" / "state.json").unlink()
    assert start(tmp_path / "store", lake, tmp_path / "all.jsonl").wait(timeout=300) == 0
    assert versions == {name: DeltaTable(str(lake / f"shop.{name}")).version() for name in TABLES}
    doubtful = DeltaTable(str(lake / "_bad")).to_pyarrow_table()
    columns = [doubtful[name].to_pylist() for name in ("queueId", "queueOffset", "rowInMessage")]
    places = zip(*columns, strict=True)
    assert len(set(places)) == doubtful.num_rows
    soak.tell(f"{killed} of {KILLS} runs were killed")
