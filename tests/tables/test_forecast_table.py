"""The table forecast: rates of looks, when nothing waits, when a broker deletes what does."""

import os
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqstore.errors import InvalidOptionError
from mqstore.tables.looks import QueueSeries
from mqstore.tables.samples import SAMPLE_SCHEMA
from mqstore.verdicts.rates import COMMIT_MS
from support import parts, soak
from support.oracle import Message
from support.stores import Layout, MakeStore

Row = dict[str, Any]
START = 1_700_000_000_000
MINUTE = 60_000
RUNS = soak.size("forecast_runs", check=40, test=300, whole=6_000)


def read(root: Path, **options: str) -> list[Row]:
    return parts.rows(
        "forecast", [work.part for work in parts.planned(root, "forecast", **options)]
    )


def message(minute: float, queue_id: int = 0, **more: Any) -> Message:
    at = START + int(minute * MINUTE)
    values: dict[str, Any] = {"topic": "T", "store_timestamp_ms": at, "queue_id": queue_id}
    return Message(**(values | more))


def store_of(store: MakeStore, count: int = 100, **layout: Any) -> Path:
    values: dict[str, Any] = {
        "commit_log_bytes": 1 << 20,
        "group_offsets": {("T", "g"): {0: 40}, ("T", "done"): {0: count}},
    }
    messages = [message(n / 10, body=bytes(900)) for n in range(count)]
    return store(messages, Layout(**(values | layout))).root


def sample(seconds_ago: float, end: int, done: int | None, group: str = "g", **more: Any) -> Row:
    at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    row = {
        "asOf": at, "brokerName": "broker-1", "group": group, "topic": "T", "queueId": 0,
        "minOffset": 0, "brokerOffset": end, "consumerOffset": done, "lag": end - (done or 0),
        "consumers": None, "logEnd": None, "diskUsed": None,
    }  # fmt: skip
    return row | more


def samples(path: Path, *rows: Row) -> str:
    pq.write_table(pa.Table.from_pylist(list(rows), SAMPLE_SCHEMA), path)
    return str(path)


def seconds(row: Row, name: str) -> float | None:
    at, now = row[name], row["asOf"]
    return None if at is None else (at - now) / 1_000_000


def test_of_one_look_no_rate_and_no_time_is_known(store: MakeStore) -> None:
    root = store_of(store)
    done, behind = read(root)
    assert (done["group"], done["lag"], seconds(done, "etaZero")) == ("done", 0, 0)
    assert (behind["group"], behind["lag"], behind["looks"]) == ("g", 60, 1)
    unknown = set(behind) - {"brokerName", "group", "topic", "queueId", "lag", "looks", "asOf"}
    unknown -= {"isSystem", "status"}
    assert {name: behind[name] for name in unknown if behind[name] is not None} == {}


def test_recorded_samples_say_when_nothing_waits(store: MakeStore, tmp_path: Path) -> None:
    root = store_of(store)
    file = samples(
        tmp_path / "s.parquet",
        sample(60, 40, 4), sample(40, 60, 16), sample(20, 80, 28),
        sample(60, 0, 0, "other"),
    )  # fmt: skip
    (row,) = read(root, samples=file, groups="g")
    assert row["looks"] == 4
    assert row["ratesMs"] == pytest.approx(60_000, abs=2_000)
    assert row["storedRate"] == pytest.approx(1.0, rel=0.05)
    assert row["consumedRate"] == pytest.approx(0.6, rel=0.05)
    assert row["consumedRateLow"] < row["consumedRate"] < row["consumedRateHigh"]
    assert row["etaZero"] is None  # More is stored than consumed.
    file = samples(tmp_path / "t.parquet", sample(60, 100, 10), sample(30, 100, 25))
    (row,) = read(root, samples=file, groups="g")
    assert seconds(row, "etaZero") == pytest.approx(120, rel=0.1)
    early, late = seconds(row, "etaZeroEarliest"), seconds(row, "etaZeroLatest")
    assert early is not None
    assert early < 110
    assert late is None or late > 130


def test_an_offset_that_went_back_begins_the_rates_anew(store: MakeStore, tmp_path: Path) -> None:
    root = store_of(store)
    rows = sample(90, 100, 95), sample(60, 100, 10), sample(30, 100, 25)
    (row,) = read(root, samples=samples(tmp_path / "s.parquet", *rows), groups="g")
    assert row["looks"] == 3
    assert row["consumedRate"] == pytest.approx(0.5, rel=0.1)
    # A sample from before it ever committed, and one of another broker, are no looks at it.
    rows = sample(60, 100, None), sample(30, 100, 25), sample(45, 9, 9, brokerName="other")
    (row,) = read(root, samples=samples(tmp_path / "u.parquet", *rows), groups="g")
    assert row["looks"] == 2


def test_a_second_look_is_a_look_too(store: MakeStore) -> None:
    root = store_of(store)
    (row,) = read(root, lookAgain="20ms", groups="g")
    assert (row["looks"], row["consumedRate"], row["etaZero"]) == (2, 0.0, None)
    assert row["ratesMs"] >= 20


def test_samples_that_are_none_are_refused_by_name(store: MakeStore, tmp_path: Path) -> None:
    root = store_of(store)
    text, other = tmp_path / "text.parquet", tmp_path / "other.parquet"
    text.write_text("no Parquet")
    pq.write_table(pa.table({"asOf": [1]}), other)
    (tmp_path / "empty").mkdir()
    reasons = {
        str(text): "has no samples: ",
        str(other): "has no samples: no column brokerName",
        str(tmp_path / "empty"): "is a directory without samples",
        str(tmp_path / "away"): "is not there: mqlog record PLACE",
    }
    for path, reason in reasons.items():
        with pytest.raises(InvalidOptionError) as refused:
            read(root, samples=path)
        assert reason in str(refused.value)


def conf(path: Path, **settings: str) -> str:
    lines = [f"{name} = {text}\n" for name, text in settings.items()]
    path.write_text("# broker\nbrokerClusterName=c\n" + "".join(lines), encoding="utf-8")
    return str(path)


HOURS = ";".join(f"{hour:02}" for hour in range(24))


def test_a_store_s_files_and_broker_conf_say_when_the_first_message_goes(
    store: MakeStore, tmp_path: Path
) -> None:
    committed = {("T", "g"): {0: 3}, ("T", "last"): {0: 99}}
    root = store_of(store, commit_log_bytes=4096, group_offsets=committed)
    now = time.time()
    for number, file in enumerate(sorted((root / "commitlog").iterdir())):
        os.utime(file, (now, now - 5 * 3600 + 600 * number))
    kept = conf(tmp_path / "broker.conf", fileReservedTime="6", deleteWhen=HOURS,
                cleanFileForciblyEnable="false")  # fmt: skip
    first, last = read(root, brokerConf=kept)
    assert (first["group"], first["lossBy"]) == ("g", "TIME")
    assert seconds(first, "etaLoss") == pytest.approx(3600, abs=5)
    assert first["etaLossEarliest"] <= first["etaLoss"] <= first["etaLossLatest"]
    # The file that is written becomes full as the others did, and then it is kept.
    assert seconds(last, "etaLoss") == pytest.approx(6 * 3600, abs=5)
    # The option is over the file; without both a store tells nothing.
    other = read(root, brokerConf=kept, fileReservedTime="8h")
    assert seconds(other[0], "etaLoss") == pytest.approx(3 * 3600, abs=5)
    assert [row["etaLoss"] for row in read(root)] == [None, None]
    # Files that became full in a burst do not tell when the next one will be.
    for number, file in enumerate(sorted((root / "commitlog").iterdir())):
        os.utime(file, (now, now - 5 * 3600 + number))
    first, last = read(root, brokerConf=kept)
    assert (seconds(first, "etaLoss"), last["etaLoss"]) == (pytest.approx(3600, abs=5), None)


def test_a_disk_that_will_be_full_deletes_before_the_time(
    store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = store_of(store, commit_log_bytes=4096, group_offsets={("T", "g"): {0: 3}})
    now = time.time()
    files = sorted((root / "commitlog").iterdir())
    for number, file in enumerate(files):
        os.utime(file, (now, now - 700 * (len(files) - number)))
    real = os.statvfs(root)
    left = 4096 * 100  # In 700 s a file of 4096 bytes becomes full.
    size = 1 << 30
    used = int(0.85 * size) - left
    told = os.statvfs_result((1, 1, size, size - used, size - used, *real[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: told)
    kept = conf(tmp_path / "broker.conf", fileReservedTime="72", deleteWhen=HOURS)
    (row,) = read(root, brokerConf=kept)
    assert row["lossBy"] == "DISK"
    assert seconds(row, "etaLoss") == pytest.approx(70_000, rel=0.02)
    # Of a burst nothing is foreseen: files that became full within seconds are no rate.
    for number, file in enumerate(files):
        os.utime(file, (now, now - len(files) + number))
    (row,) = read(root, brokerConf=kept)
    assert row["lossBy"] != "DISK"


def test_a_broker_conf_that_cannot_be_read_is_refused(store: MakeStore, tmp_path: Path) -> None:
    root = store_of(store)
    large = tmp_path / "large.conf"
    large.write_bytes(bytes((1 << 20) + 1))
    for path, reason in ((tmp_path / "away", "cannot be read"), (large, "longer than 1 MiB")):
        with pytest.raises(InvalidOptionError, match=reason):
            read(root, brokerConf=str(path))


@pytest.mark.soak
def test_a_lag_is_zero_within_the_stated_spread_in_nineteen_of_twenty_runs() -> None:
    """Consumers of 20 to 60 messages a second, by chance; a committed offset is 0 to 10 s old."""
    found = [_is_held(random.Random(seed)) for seed in _seeds()]
    told = [held for held in found if held is not None]
    soak.tell(f"{sum(told)} of {len(told)} within the spread, seeds from {_seeds()[0]}")
    assert len(told) > RUNS / 4
    assert sum(told) >= 0.95 * len(told)


def _seeds() -> range:
    return range(soak.SEED * RUNS, (soak.SEED + 1) * RUNS)


def _is_held(dice: random.Random) -> bool | None:
    """Whether a group has caught up when its forecast says; None: it gives none."""
    rates = dice.uniform(0, 15), dice.uniform(20, 60)
    ends, done = [9_000.0], [0.0]

    def pass_second() -> None:
        for counter, rate in zip((ends, done), rates, strict=True):
            counter.append(counter[-1] + max(0.0, dice.gauss(rate, rate**0.5)))

    for _ in range(20):
        pass_second()
    looks = []
    for number in range(dice.choice((2, 4, 10, 20))):
        for _ in range(30 if number else 0):
            pass_second()
        looks.append((30_000 * number, int(ends[-1]), int(done[-dice.randint(1, 11)])))
    times, of_queue, of_group = zip(*looks, strict=True)
    drained = QueueSeries(times, of_queue, of_group).drained
    lag = of_queue[-1] - of_group[-1]
    ahead = drained.reach_ms(lag) if drained and lag > 100 else None
    if ahead is None:
        return None
    passed = 0
    while done[-1] < ends[-1] and passed < 100_000:
        pass_second()
        passed += 1
    low, high = ahead.low or 0.0, float("inf") if ahead.high is None else ahead.high
    return low - 2 * COMMIT_MS <= 1_000 * passed <= high + 2 * COMMIT_MS
