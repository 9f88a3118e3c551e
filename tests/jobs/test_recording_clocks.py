"""mqlog record while the clock is a day or years off, back and forth: no rates of such times."""

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mqlog_jobs.cli import main
from mqstore.files.base import folder as folders
from support.oracle import Message
from support.stores import Layout, MakeStore

DAY_S = 86_400
YEARS_S = 4 * 365 * DAY_S
NOW_NS = time.time_ns()


@pytest.fixture
def root(store: MakeStore) -> Path:
    messages = [Message(topic="T", queue_id=n % 2) for n in range(20)]
    offsets = {("T", "g"): {0: 4, 1: 10}}
    return store(messages, Layout(commit_log_bytes=1 << 20, group_offsets=offsets)).root


class _Clock:
    """What stands in for the module ``time``: a clock that shows one time after the other."""

    def __init__(self, seconds: list[int]) -> None:
        self._seconds = itertools.chain(seconds, itertools.repeat(seconds[-1]))

    def time_ns(self) -> int:
        return NOW_NS + next(self._seconds) * 1_000_000_000


def ran(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[object, str, str]:
    monkeypatch.setattr("sys.argv", ["mqlog", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


Record = Callable[[list[int]], tuple[object, str, str]]


@pytest.fixture
def record(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Record:
    """Take a sample at each time that the clock shows, in seconds from now."""

    def run(seconds: list[int]) -> tuple[object, str, str]:
        how = ("--every", "1ms", "--count", str(len(seconds)), "--json")
        with monkeypatch.context() as patch:
            patch.setattr(folders, "time", _Clock(seconds))
            return ran(patch, capsys, "record", str(root), str(tmp_path / "s.parquet"), *how)

    return run


@pytest.fixture
def forecast(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[], list[dict[str, object]]]:
    """Forecast by the samples; return the rows."""

    def run() -> list[dict[str, object]]:
        words = (
            "forecast",
            str(root),
            "--samples",
            str(tmp_path / "s.parquet"),
            "-g",
            "g",
            "--json",
        )
        code, out, err = ran(monkeypatch, capsys, *words)
        assert code in (0, None), err
        return [json.loads(line) for line in out.splitlines()]

    return run


def times_s(folder: Path) -> list[int]:
    found = pq.read_table(folder / "s.parquet")["asOf"].to_pylist()
    return sorted({round(one.timestamp() - NOW_NS / 1e9) for one in found})


@pytest.mark.parametrize("back", [-DAY_S, -YEARS_S, -60])
def test_a_clock_that_goes_back_within_a_run_adds_no_sample_until_it_is_later(
    record: Record, tmp_path: Path, back: int
) -> None:
    code, out, err = record([-90, -60, back - 60, back - 30, -30, 0])
    assert code in (0, None)
    assert times_s(tmp_path) == [-90, -60, -30, 0]
    assert len(out.splitlines()) == 4
    assert err.count("has a sample of later than now: the clock says") == 2
    assert "remove the files whose names end so late" in err


@pytest.mark.parametrize("ahead", [DAY_S, YEARS_S])
def test_samples_of_a_clock_that_was_ahead_are_left_out_of_forecasts_and_told(
    record: Record,
    forecast: Callable[[], list[dict[str, object]]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    ahead: int,
) -> None:
    record([-1800, -900, -60, ahead, 0])
    assert times_s(tmp_path) == [-1800, -900, -60, ahead]
    rows = forecast()
    assert [row["looks"] for row in rows] == [4, 4]
    for row in rows:
        assert all(not isinstance(v, float) or 0 <= v < float("inf") for v in row.values()), row
    assert f"{tmp_path}/s.parquet: 1 samples are of later than now, the last of " in caplog.text


def test_a_recording_of_a_clock_that_was_ahead_is_refused_with_the_files_to_remove(
    record: Record, tmp_path: Path
) -> None:
    record([YEARS_S])
    (file,) = (tmp_path / "s.parquet").iterdir()
    code, _, err = record([0])
    assert code == 2
    end = file.name.removesuffix(".parquet").split("-")[-1]
    assert f"(…-{end}.parquet)" in err
    file.unlink()
    assert record([0])[0] in (0, None)
    assert times_s(tmp_path) == [0]


def test_a_hair_is_no_clock_that_went_back(record: Record, tmp_path: Path) -> None:
    code, _, err = record([0, 0, 0])
    assert (code in (0, None), err) == (True, "")
    assert len(pq.read_table(tmp_path / "s.parquet")["asOf"].unique()) == 3


@pytest.mark.parametrize(
    ("seconds", "is_told"),
    [
        ([-20_000, -19_970, -19_940, -60, -30, 0], True),
        ([-150, -120, -90, -60, -30, 0], False),
        ([-2_400, -1_800, -1_200, -600, 0], False),
    ],
)
def test_a_long_time_without_a_sample_is_told_as_a_clock_may_have_been_set_ahead(
    record: Record,
    forecast: Callable[[], list[dict[str, object]]],
    caplog: pytest.LogCaptureFixture,
    seconds: list[int],
    is_told: bool,
) -> None:
    record(seconds)
    assert [row["looks"] for row in forecast()] == [len(seconds) + 1] * 2
    told = [line for line in caplog.messages if "or the clock was set ahead" in line]
    assert len(told) == is_told
    if is_told:
        begin, end = (
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW_NS // 10**9 + at))
            for at in (-19_940, -60)
        )
        assert f"between {begin} and {end}, and others follow each other in about 30 s" in told[0]
