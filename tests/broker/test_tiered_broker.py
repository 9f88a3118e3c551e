"""A broker of 5.5.1 with tiered storage in files: read live, and by its store and its tier.

Its first CommitLog files are gone, as after their retention, and it serves their messages from the
tier: to pulls of one queue at the same time not always all of them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.harness import FAST_DELAYS, Broker, Cluster, Dumped, Row
from broker.recipe import Names, go_on, produce
from broker.test_pop_groups import table
from broker.toolchain import Toolchain
from support import planned, soak
from support.processes import until

pytestmark = [pytest.mark.broker, pytest.mark.soak]

VERSIONS = ("5.5.0", "5.5.1") if soak.WHOLE else ("5.5.1",)
READS = soak.size("reads_of_tiers", check=2, test=4, whole=50)
NAMES = Names("T")
TIERED = {
    "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
    "tieredBackendServiceProvider": "org.apache.rocketmq.tieredstore.provider.PosixFileSegment",
    "tieredStorageLevel": "NOT_IN_DISK",
    "tieredStoreGroupCommitTimeout": "1000",
    "tieredStoreCommitLogMaxSize": "65536",
    "tieredStoreConsumeQueueMaxSize": "8000",
    "readAheadCacheEnable": "false",
    "mappedFileSizeCommitLog": "65536",
}
UNIT_BYTES = 20
Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Tiered:
    """What a broker had: as the official client saw it, and as mqlog saw it live and after."""

    dumped: Dumped
    live: list[list[Row]]
    by_tag: list[Row]
    lags: dict[tuple[str, int], int]
    progress: list[Row]
    root: Path
    tier: Path


@pytest.fixture(scope="module", params=VERSIONS)
def tiered(
    request: pytest.FixtureRequest, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Tiered:
    folder = tmp_path_factory.mktemp("tiered-")
    root, tier = folder / "store", folder / "tier"
    root.mkdir()
    tier.mkdir()
    settings = FAST_DELAYS | TIERED | {"tieredStoreFilePath": str(tier)}
    with Cluster(toolchain, request.param, folder / "programs") as cluster:
        with cluster.broker(root, settings) as broker:
            port = broker.port
            produce(broker, NAMES)
            go_on(broker, NAMES)
            until(lambda: units_of(tier) >= held(broker))  # Some 30 s.
            broker.stop()
        logs = sorted((root / "commitlog").iterdir())
        for log in logs[: len(logs) * 2 // 3]:
            log.unlink()
        live = f"rocketmq://{cluster.name_server}"
        with cluster.broker(root, settings, port) as broker:
            dumped = broker.dump()
            asked = {"columns": "full", "includeSystemTopics": "true"}
            reads = [planned.rows(live, **asked) for _ in range(READS)]
            by_tag = planned.rows(live, subscribe=NAMES.topic, tags=NAMES.tags[0])
            lags = {
                (row["topic"], row["queueId"]): row["lag"]
                for row in table(live, "backlog", groups=NAMES.pull_group)
            }
            progress = broker.consumer_progress(NAMES.pull_group)
            broker.stop()
    return Tiered(dumped, reads, by_tag, lags, progress, root, tier)


def units_of(tier: Path) -> int:
    """How many messages of the topics the tier has."""
    files = tier.glob(f"*/*/{NAMES.letter}*/*/CONSUME_QUEUE/*")
    return sum(file.stat().st_size for file in files) // UNIT_BYTES


def held(broker: Broker) -> int:
    return sum(broker.held(topic) for topic in NAMES.topics)


def by_key(rows: list[Row]) -> dict[Key, Any]:
    """The ids of messages of topics; RocketMQ's own go on."""
    return {
        (row["topic"], row["queueId"], row["queueOffset"]): row["msgId"]
        for row in rows
        if row["topic"] in NAMES.topics
    }


def test_each_live_read_has_all_that_the_official_client_gets(tiered: Tiered) -> None:
    """Without pulling short ranges again, none of eight such reads came through."""
    expected = by_key(tiered.dumped.rows)
    assert len(expected) > 1_000
    assert min(low for (topic, _), (low, _) in tiered.dumped.queues.items() if topic[0] == "T") == 0
    for rows in tiered.live:
        assert by_key(rows) == expected


def test_a_live_read_by_tag_has_all_that_have_it(tiered: Tiered) -> None:
    tagged = [
        row
        for row in tiered.dumped.rows
        if row["topic"] == NAMES.topic and row["properties"].get("TAGS") == NAMES.tags[0]
    ]
    assert tagged
    assert by_key(tiered.by_tag) == by_key(tagged)


def test_the_store_and_the_tier_have_all_that_the_official_client_gets(tiered: Tiered) -> None:
    found = planned.rows(str(tiered.root), storePathTiered=str(tiered.tier), columns="full")
    assert by_key(found) == by_key(tiered.dumped.rows)
    assert len(by_key(planned.rows(str(tiered.root), columns="full"))) < len(by_key(found))


def test_the_backlog_is_what_the_tool_prints_live_and_by_the_store(tiered: Tiered) -> None:
    printed = {
        (row["topic"], row["queueId"]): row["brokerOffset"] - row["consumerOffset"]
        for row in tiered.progress
    }
    assert sum(printed.values()) > 100
    assert tiered.lags == printed
    for options in ({}, {"storePathTiered": str(tiered.tier)}):
        rows = table(str(tiered.root), "backlog", groups=NAMES.pull_group, **options)
        assert {(row["topic"], row["queueId"]): row["lag"] for row in rows} == printed
        assert {row["expired"] for row in rows} == {0}
        assert "TIERED" in {row["status"] for row in rows}
