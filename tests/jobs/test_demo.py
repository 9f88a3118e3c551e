"""The demo, whole, and the shop it makes."""

import io
import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from mqlog_jobs.output import picture
from mqlog_jobs.work import demo, demo_data
from mqstore.errors import InvalidOptionError

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_the_shop_is_the_same_every_time_and_in_order() -> None:
    messages = demo_data.messages(200, NOON)

    assert messages == demo_data.messages(200, NOON)
    times = [message.storeTimestamp for message in messages]
    assert times == sorted(times)
    assert NOON - timedelta(hours=1) <= times[0]
    assert times[-1] <= NOON


def test_every_order_has_a_life_that_makes_sense() -> None:
    lives: dict[str, list[str]] = defaultdict(list)
    for message in demo_data.messages(200, NOON):
        lives[message.keys].append(message.tags)
        assert json.loads(message.body)["order"] == message.keys == message.shardingKey

    assert len(lives) == 200
    for tags in lives.values():
        shipped = ["captured", "paid", "packed", "sent", "delivered"]
        assert [tag for tag in tags if tag != "declined"] in (
            ["created", "cancelled"],
            ["created", *shipped],
        )


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")

    with pytest.raises(InvalidOptionError, match="must be a new or an empty directory"):
        demo.run(tmp_path)


def test_a_picture_has_colours_fetches_nothing_and_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    for path in (first, second):
        picture.save(path, "title", lambda console: console.print(Text("red", style="bold red")))

    drawn = first.read_text()
    assert drawn == second.read_text()
    assert "font-weight: bold" in drawn
    assert "url(" not in drawn.replace("url(#", "")
    assert "@font-face" not in drawn


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_demo_shows_its_own_store_and_a_broker_s(tmp_path: Path) -> None:
    stream = io.StringIO()
    console = Console(file=stream, record=True, width=100, force_terminal=True, color_system=None)
    demo.run(tmp_path / "shop", tmp_path / "demo.svg", console)
    shown = stream.getvalue()

    for words in ("SHOP_ORDERS", "CG_WAREHOUSE", "CG_ACCOUNTING", "GTopic", "CG_G", "LP_G"):
        assert words in shown
    assert "86 messages waiting, 22.6 KiB; 80 match GA || GB" in shown
    assert "not shown" not in shown
    drawn = (tmp_path / "demo.svg").read_text()
    assert "CG_WAREHOUSE" in drawn
    assert "CG_ACCOUNTING" not in drawn
    assert str(tmp_path) not in drawn
    assert (tmp_path / "shop" / "broker-a" / "store" / "commitlog").is_dir()
