"""mqlog record and forecast: samples that forecasts, verdicts and gauges are made of."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import mqlog
from mqlog_jobs.cli import main
from mqlog_jobs.output.prometheus import times_text
from support.oracle import Message
from support.stores import Layout, MakeStore

START = 1_700_000_000_000


@pytest.fixture
def root(store: MakeStore) -> Path:
    messages = [Message(topic="T", store_timestamp_ms=START + n, queue_id=n % 2) for n in range(20)]
    offsets = {("T", "g"): {0: 4, 1: 10}, ("T", "h"): {0: 10, 1: 10}}
    return store(messages, Layout(commit_log_bytes=1 << 20, group_offsets=offsets)).root


def names(gauges: Path) -> list[str]:
    return [
        line.split()[2]
        for line in gauges.read_text(encoding="utf-8").splitlines()
        if "# TYPE" in line
    ]


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr("sys.argv", ["mqlog", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code in {0, None}, err
    return out


def test_samples_are_recorded_and_forecasts_are_made_of_them(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, gauges = str(tmp_path / "s.parquet"), tmp_path / "eta.prom"
    every = ("--every", "1ms", "--count", "3", "--json")
    told = run(monkeypatch, capsys, "record", str(root), file, *every, "--prometheus", str(gauges))
    lines = [json.loads(line) for line in told.splitlines()]
    assert [(line["groups"], line["queues"], line["lag"]) for line in lines] == [(2, 4, 6)] * 3
    rows = pq.read_table(file).to_pylist()
    assert len(rows) == 12
    assert {(row["group"], row["queueId"], row["lag"]) for row in rows} == {
        ("g", 0, 6), ("g", 1, 0), ("h", 0, 0), ("h", 1, 0)
    }  # fmt: skip
    assert 'eta_zero_timestamp_seconds{broker="broker-1",topic="T",group="h"}' in gauges.read_text()
    # It fills the dashboard alone: the gauges of the backlog stand before those times.
    of_backlog = tmp_path / "backlog.prom"
    run(monkeypatch, capsys, "backlog", str(root), "--quiet", "--prometheus", str(of_backlog))
    assert set(names(of_backlog)) < set(names(gauges))
    assert len(names(gauges)) == len(set(names(gauges)))
    told = run(monkeypatch, capsys, "forecast", str(root), "--samples", file, "--json")
    assert [json.loads(line)["looks"] for line in told.splitlines()] == [4] * 4
    # Nothing was stored and nothing consumed between the looks: what waits is never consumed.
    told = run(monkeypatch, capsys, "forecast", str(root), "--samples", file, "-g", "g")
    waits, caught_up, loss = told.splitlines()[3:]
    assert loss.startswith("loss: not known for messages in the file that is written")
    assert waits.split()[:6] == ["T", "0", "6", "0", "0", "never"]
    assert "never" not in caught_up
    # A place, as Python and as Spark have it, has the same rows.
    table = mqlog.open(root).table("forecast", samples=file, groups="g").to_table()
    assert table["looks"].to_pylist() == [4, 4]
    told = run(monkeypatch, capsys, "why", str(root), "--samples", file)
    assert "no verdict" in told


def test_a_forecast_on_a_terminal_has_the_spread_of_its_times(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (root / "commitlog").iterdir():
        os.utime(file)
    told = run(monkeypatch, capsys, "forecast", str(root), "-g", "g")
    assert "one look: no rates, so no time of catching up" in told
    head, line, caught_up = told.splitlines()[1], told.splitlines()[3], told.splitlines()[4]
    assert head.split() == ["TOPIC", "QUEUE", "LAG", "STORED/S", "CONSUMED/S", "CAUGHT", "UP", "IN",
                            "LOST", "IN", "BY", "STATUS"]  # fmt: skip
    assert line.split() == ["T", "0", "6", "–", "–", "?", "?", "–", "LATE"]
    assert caught_up.split()[-6:] == ["–", "0", "ms", "–", "–", "OK"]


def test_a_recording_that_cannot_begin_says_why(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for words, reason in (
        ((str(root), str(tmp_path / "file")), "is a file: name a directory"),
        ((str(root), str(tmp_path / "s"), "--every", "no"), "--every"),
        ((str(root), str(tmp_path / "s"), "--max-size", "-1"), "--max-size"),
        ((str(tmp_path), str(tmp_path / "s")), "MQLOG_NOT_A_STORE"),
    ):
        monkeypatch.setattr("sys.argv", ["mqlog", "record", *words, "--count", "1"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert reason in capsys.readouterr().err


def row(queue_id: int, zero: datetime | None, loss: datetime | None) -> dict[str, Any]:
    return {
        "brokerName": "b", "topic": "T", "group": "g", "queueId": queue_id,
        "etaZero": zero, "etaLoss": loss,
    }  # fmt: skip


def test_gauges_have_the_first_loss_and_the_last_queue_that_is_caught_up() -> None:
    at = datetime(2027, 1, 15, 8, tzinfo=UTC)
    later = at + timedelta(hours=1)
    labels = '{broker="b",topic="T",group="g"}'

    def gauges(*rows: dict[str, Any]) -> list[str]:
        lines = times_text(rows).splitlines()
        return [line.removeprefix("mqlog_consumer_") for line in lines if line[0] != "#"]

    assert gauges(row(0, at, later), row(1, later, at), row(2, at, None)) == [
        f"eta_zero_timestamp_seconds{labels} 1800003600",
        f"eta_loss_timestamp_seconds{labels} 1800000000",
    ]
    # When one queue has no time, the topic has none.
    for rows in ((row(0, at, None), row(1, None, None)), (row(0, None, None), row(1, at, None))):
        assert gauges(*rows) == []
