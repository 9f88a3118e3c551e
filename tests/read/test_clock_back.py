"""A broker whose clock went back within a queue: filters lose no row, starts by time warn."""

import logging
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pytest

import mqlog
from support.oracle import Message, encode, sealed
from support.stores import lay_out

START, HOUR = 1_795_000_000_000, 3_600_000
TIMES = [START + n * 1000 + (HOUR if n < 20 else 0) for n in range(60)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of one queue, whose first messages were stored an hour ahead."""
    laid = lay_out(tmp_path / "store", [Message(store_timestamp_ms=START)] * 60)
    for message, moment in zip(laid.messages, TIMES, strict=True):
        path, position = laid.file_of(message)
        at = sealed(replace(message, store_timestamp_ms=moment))
        with path.open("r+b") as file:
            file.seek(position)
            file.write(encode(at))
    return laid.root


MOMENTS = [START, START + 30_000, START + HOUR, START + HOUR + 10_000]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_filter_by_time_gives_the_rows_of_a_read_of_all(root: Path, moment: int) -> None:
    time = pc.field("storeTimestamp")
    value = datetime.fromtimestamp(moment / 1000, UTC)
    scan = mqlog.open(str(root)).scan("T")
    for asked, expected in (
        (time >= value, sum(each >= moment for each in TIMES)),
        (time < value, sum(each < moment for each in TIMES)),
    ):
        assert scan.to_table(columns=["queueOffset"], filter=asked).num_rows == expected


@pytest.mark.parametrize("option", ["starting_timestamp", "ending_timestamp"])
def test_a_start_or_an_end_by_time_is_warned_of(
    root: Path, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        mqlog.open(str(root)).scan("T", **{option: MOMENTS[2]}).to_table()
    assert "storeTimestamp goes back within T/0" in caplog.text


def test_nothing_is_warned_of_where_the_clock_ran_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times = [Message(store_timestamp_ms=START + n) for n in range(60)]
    root = lay_out(tmp_path / "store", times).root
    with caplog.at_level(logging.WARNING):
        found = mqlog.open(str(root)).scan("T", starting_timestamp=START + 30).to_table()
    assert found.num_rows == 30
    assert "goes back" not in caplog.text
