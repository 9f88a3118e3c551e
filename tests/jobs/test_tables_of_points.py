"""The tables of a point end at the point: what waits there waited until it was made."""

import time
from pathlib import Path

import pytest

from jobs.command import Run
from mqstore.copy.take_point import take_point
from mqstore.files.points.backing import LocalBacking
from support.oracle import Message
from support.stores import Layout, MakeStore

HOUR = 3_600_000


@pytest.fixture
def kept(store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, int]:
    """A repository whose point was made a day ago, an hour after the last message; and its time."""
    made_ms = time.time_ns() // 1_000_000 - 24 * HOUR
    messages = [Message(store_timestamp_ms=made_ms - HOUR + n) for n in range(10)]
    laid = store(messages, Layout(group_offsets={(messages[0].topic, "g"): {0: 4}}))
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: made_ms * 1_000_000)
        take_point(laid.root, LocalBacking(str(tmp_path / "kept")))
    return tmp_path / "kept", made_ms


@pytest.mark.parametrize("table", ["backlog", "forecast"])
def test_a_table_of_a_point_counts_to_the_point(
    run: Run, kept: tuple[Path, int], table: str
) -> None:
    path, made_ms = kept
    (row,) = run("table", table, f"{path}@1", "--json").rows
    assert row["asOf"] == time_text(made_ms)


def time_text(ms: int) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000))
    return f"{whole}.{ms % 1000:03d}000Z"


def test_the_backlog_of_a_point_waited_until_the_point(run: Run, kept: tuple[Path, int]) -> None:
    path, _ = kept
    for words in (("backlog", f"{path}@1"), ("table", "backlog", f"{path}@1")):
        (row,) = run(*words, "--json").rows
        assert row["lag"] == 6
        assert HOUR - 10 <= row["lagMs"] <= HOUR


def test_a_sample_of_a_point_is_of_its_time(
    run: Run, kept: tuple[Path, int], tmp_path: Path
) -> None:
    path, made_ms = kept
    words = ("record", f"{path}@1", str(tmp_path / "samples"), "--count", "1", "--every", "1ms")
    assert run(*words, "--json").rows[0]["asOf"] == time_text(made_ms)


def test_a_point_is_sampled_once_and_in_the_order_of_time(
    run: Run, kept: tuple[Path, int], tmp_path: Path
) -> None:
    path, made_ms = kept
    words = ("record", f"{path}@1", str(tmp_path / "samples"), "--every", "1ms")
    for count in ((), ("--count", "3")):
        done = run(*words, *count)
        assert done.code == 2
        assert "[MQLOG_INVALID_OPTION] option --count" in done.err
        assert f"{path}@1 is a point of a repository, which does not change" in done.err
    assert run(*words, "--count", "1").code == 0
    again = run(*words, "--count", "1")
    assert again.code == 2
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(made_ms // 1000))
    assert f"has a sample of {at}, and {path}@1 is a point of {at}" in again.err
    assert "the clock" not in again.err
