"""A broker of RocketMQ 5.5.1: read live and by its store, and a store of ours that it serves.

A short suite of what 5.5.1 does in another way than 5.5.0, beside one read and one write; all other
tests run on 4.9.7 and 5.5.0. Maven Central has no name server, client and tools of 5.5.1.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from broker.harness import FAST_DELAYS, Cluster, Dumped, Row
from broker.our_messages import (
    NUMBER,
    SMALL_SIZES,
    Author,
    differences,
    offset_msg_id,
    on_port,
    write,
)
from broker.ports import free_ports
from broker.reading import read, told
from broker.recipe import Names, await_delays, produce_few
from broker.test_pop_groups import table
from broker.toolchain import Toolchain
from support import planned

pytestmark = pytest.mark.broker

GROUP = "CG_Today"
NAMES = Names("D")
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@dataclass(frozen=True, slots=True)
class Today:
    """What a broker of 5.5.1 had, as the official client and as mqlog saw it, live and after."""

    author: Author
    dumped: Dumped
    left: list[Row]
    rows: list[dict[str, Any]]
    by_id: dict[str, list[tuple[str, int, int]]]
    retries: list[dict[str, Any]]
    forecast: list[dict[str, Any]]
    compared: list[dict[str, Any]]
    progress: list[Row]


@pytest.fixture(scope="module")
def today(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Today:
    folder = tmp_path_factory.mktemp("rocketmq-5.5.1-")
    root, author, port = folder / "store", Author("Ours", seed=5), free_ports(-2, 0, 1)
    write(root, author.write_rows(300), **on_port(port, **SMALL_SIZES))
    settings = FAST_DELAYS | {"timerWheelEnable": "true"}
    with (
        Cluster(toolchain, "5.5.1", folder / "programs") as cluster,
        cluster.broker(root, settings, port) as broker,
    ):
        live = f"rocketmq://{cluster.name_server}"
        produce_few(broker, NAMES)
        broker.commit(NAMES.order, GROUP, 1)
        failed = broker.push(NAMES.topic, NAMES.push_group, " || ".join(NAMES.tags), 20, 4)
        broker.wait_for(f"%RETRY%{NAMES.push_group}", failed)
        broker.produce(NAMES.order, "Order", 900)
        await_delays(broker, NAMES)
        dumped = broker.dump()
        rows = planned.rows(live, includeSystemTopics="true", columns="full")
        by_id = {}
        for row in dumped.rows[:: max(len(dumped.rows) // 12, 1)]:
            found = planned.rows(live, includeSystemTopics="true", msgIds=offset_msg_id(row))
            by_id[offset_msg_id(row)] = [
                (one["topic"], one["queueId"], one["queueOffset"]) for one in found
            ]
        retries, forecast = table(live, "retries"), table(live, "forecast")
        compared = table(live, "lagcompare", groups=GROUP)
        progress = broker.consumer_progress(GROUP)
        broker.stop()
    return Today(author, dumped, read(root), rows, by_id, retries, forecast, compared, progress)


def test_a_broker_of_today_serves_our_messages_and_its_store_is_read(today: Today) -> None:
    ours = {
        int(row["properties"][NUMBER]): row
        for row in today.dumped.rows
        if NUMBER in row["properties"]
    }
    assert len(ours) == 300
    assert [differences(row, ours[n]) for n, row in enumerate(today.author.rows)] == [{}] * 300
    held = {(r["topic"], r["queueId"], r["queueOffset"]): r for r in told(today.left)}
    assert all(
        held[r["topic"], r["queueId"], r["queueOffset"]] == r for r in told(today.dumped.rows)
    )


def test_a_cluster_of_today_gives_what_its_client_gets(today: Today) -> None:
    live = {(r["topic"], r["queueId"], r["queueOffset"], r["physicalOffset"]) for r in today.rows}
    of_client = {
        (r["topic"], r["queueId"], r["queueOffset"], r["physicalOffset"]) for r in today.dumped.rows
    }
    assert of_client <= live
    assert len(live - of_client) < 200  # Timers and half messages go on.


def test_an_id_is_found_whatever_its_topic_is(today: Today) -> None:
    """Also of delayed messages, whose own topic 5.5.1 refuses."""
    places = {
        offset_msg_id(r): [(r["topic"], r["queueId"], r["queueOffset"])] for r in today.dumped.rows
    }
    assert today.by_id == {key: places[key] for key in today.by_id}
    assert len({found[0][0] for found in today.by_id.values()}) > 3


def test_retries_know_their_origins_and_forecasts_when_messages_are_lost(today: Today) -> None:
    assert today.retries
    assert None not in {row["originQueueOffset"] for row in today.retries}
    behind = [row for row in today.forecast if row["group"] == GROUP and row["lag"]]
    assert any(row["etaLoss"] is not None for row in behind)


def test_what_was_pulled_is_what_the_tool_prints(today: Today) -> None:
    """The table of pulled offsets is gone from the answers of 5.5.1."""
    printed = {
        (row["topic"], row["queueId"]): row["brokerOffset"] - row["consumerOffset"]
        for row in today.progress
    }
    assert {(r["topic"], r["queueId"]): r["progressDiff"] for r in today.compared} == printed
    assert {r["progressInflight"] for r in today.compared} == {0}
