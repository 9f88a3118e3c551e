"""Samples in a directory: whole at each moment, also when the writer is killed; bounded."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqstore.errors import InvalidOptionError
from mqstore.tables import samples
from mqstore.tables.samples import SAMPLE_SCHEMA, Recording, read_samples, sample_files
from support.processes import until

NOW = 1_800_000_000_000
EVER = 0, 2 * NOW


def table(at_ms: int, queues: int = 3, group: str = "g") -> pa.Table:
    row = {
        "asOf": datetime.fromtimestamp(at_ms / 1000, UTC), "brokerName": "b", "group": group,
        "topic": "T", "minOffset": 0, "brokerOffset": 100, "consumerOffset": 50, "lag": 50,
    }  # fmt: skip
    rows = [row | {"queueId": number} for number in range(queues)]
    return pa.Table.from_pylist(rows, SAMPLE_SCHEMA)


def record(folder: Path, count: int, most_bytes: int = 1 << 30, first: int = 0) -> None:
    recording = Recording(str(folder), most_bytes)
    for number in range(first, first + count):
        recording.add(table(NOW + number), NOW + number)
    recording.close()


def times(folder: Path, most: int = 1_000) -> list[int]:
    found = read_samples(str(folder), EVER, most, lambda group: group == "g")
    moments = [one["asOf"][0].as_py() for one in found]
    assert all(len(one) == 3 for one in found)
    return [round(at.timestamp() * 1000) - NOW for at in moments]


def test_samples_are_read_as_they_were_added_also_when_many_became_one_file(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "s.parquet"
    record(folder, 130)
    assert times(folder) == list(range(130))
    assert times(folder, most=5) == list(range(125, 130))
    files, repeats = sample_files(folder)
    assert len(files) == 2 + 10
    assert not repeats
    # Any other reader of Parquet has the same rows.
    assert len(pq.read_table(folder)) == 3 * 130
    assert read_samples(str(folder), (NOW + 3, NOW + 5), 9, lambda _: False) == []


def test_a_recording_goes_on_where_one_ended_and_repeats_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "s.parquet"
    record(folder, 3)
    merged = pa.concat_tables([table(NOW + number) for number in range(3)])
    pq.write_table(merged, folder / f"samples-{NOW:013}-{NOW + 2:013}.parquet")
    (folder / ".samples.new").write_bytes(b"half a file")
    assert times(folder) == [0, 1, 2]
    record(folder, 2, first=3)
    assert times(folder) == [0, 1, 2, 3, 4]
    assert len(list(folder.iterdir())) == 3


def test_the_oldest_samples_go_beyond_the_size(tmp_path: Path) -> None:
    folder = tmp_path / "s.parquet"
    record(folder, 1)
    size = sum(path.stat().st_size for path in folder.iterdir())
    record(folder, 20, most_bytes=5 * size, first=1)
    assert times(folder) == list(range(16, 21))


def test_a_directory_of_others_a_file_and_a_second_recorder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    (tmp_path / "file").touch()
    for name, reason in (("mine", "with other files"), ("file", "is a file")):
        with pytest.raises(InvalidOptionError, match=reason):
            Recording(str(tmp_path / name), 1)
    recording = Recording(str(tmp_path / "new"), 1)
    with pytest.raises(InvalidOptionError, match="another process"):
        Recording(str(tmp_path / "new"), 1)
    recording.close()
    Recording(str(tmp_path / "new"), 1).close()


def test_whoever_reads_while_files_become_one_finds_each_sample_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "_MOST_SINGLE", 4)
    folder = tmp_path / "s.parquet"
    record(folder, 1)
    writer = threading.Thread(target=record, args=(folder, 150), kwargs={"first": 1})
    writer.start()
    looked = 0
    while writer.is_alive() or not looked:
        found = times(folder)
        assert found == list(range(len(found)))
        looked += 1
    writer.join()
    assert times(folder) == list(range(151))


WRITER = """
import sys
sys.path.insert(0, {tests!r})
from tables import test_samples
from mqstore.tables import samples
samples._MOST_SINGLE = 5
test_samples.record(test_samples.Path({folder!r}), 10**6, first={first})
"""


def test_a_recorder_that_is_killed_leaves_every_sample_but_the_one_under_way(
    tmp_path: Path,
) -> None:
    folder, first = tmp_path / "s.parquet", 0
    for _ in range(4):
        code = WRITER.format(tests=str(Path(__file__).parents[1]), folder=str(folder), first=first)
        with subprocess.Popen([sys.executable, "-c", code]) as writer:
            until(partial(_has, folder, first + 12))
            os.kill(writer.pid, signal.SIGKILL)
        found = times(folder)
        assert found == list(range(len(found)))
        assert len(found) >= first + 12
        first = len(found)


def _has(folder: Path, number: int) -> bool:
    files, _ = sample_files(folder) if folder.exists() else ([], [])
    return bool(files) and files[-1].last_ms - NOW >= number


def test_samples_of_the_last_day_cost_the_newest_files_alone(tmp_path: Path) -> None:
    folder = tmp_path / "s.parquet"
    record(folder, 3)
    (folder / f"samples-{NOW - 2:013}-{NOW - 1:013}.parquet").write_text("damaged, and old")
    assert len(read_samples(str(folder), (NOW, 2 * NOW), 20, lambda _: True)) == 3
    with pytest.raises(InvalidOptionError, match="has no samples"):
        read_samples(str(folder), EVER, 20, lambda _: True)


def test_lags_at_chosen_times_are_sums_over_queues_of_wanted_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "_MOST_SINGLE", 4)
    folder = tmp_path / "s.parquet"
    with closing(Recording(str(folder), 1 << 20)) as recording:
        for number in range(6):
            lags = [("G", 0, number), ("G", 1, 10), ("H", 0, 7)][: 3 if number < 5 else 2]
            (row,) = table(NOW + number, 1).to_pylist()
            rows = [{**row, "group": g, "queueId": queue, "lag": lag} for g, queue, lag in lags]
            recording.add(pa.Table.from_pylist(rows, SAMPLE_SCHEMA), NOW + number)
    found = samples.lags_at(str(folder), lambda times: [times[1], times[-1]], "GH".__contains__)
    assert found == {"G": {NOW + 1: 11, NOW + 5: 15}, "H": {NOW + 1: 7}}
    assert samples.lags_at(str(folder), lambda times: times[:1], "H".__eq__) == {"H": {NOW: 7}}
    with pytest.raises(InvalidOptionError, match="is not there"):
        samples.lags_at(str(tmp_path / "no"), list, bool)
