"""A compaction topic beside another, on a broker of 5.5.1: what the official client gets of both.

Live, both are read. Of the store the compaction topic alone is refused by name, or left out with a
warning that names it, at every door. A copy of the stopped store has its compacted log: a broker
started on it gives the same messages, and none beside them that was not replaced.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.harness import Cluster, Row
from broker.toolchain import Toolchain
from mqstore.check import check
from mqstore.copy.restore_point import restore_point
from mqstore.copy.take_point import take_point
from mqstore.errors import UnsupportedTopicError
from snapshot_copy.pointed import at, backing
from support import planned
from support.processes import until

pytestmark = pytest.mark.broker

COMPACTED, PLAIN = "CmpTopic", "CmpPlain"
SENT, PLAIN_SENT = 300, 20
SETTINGS = {
    "compactionMappedFileSize": "32768",
    "compactionCqMappedFileSize": "4600",
    "compactionScheduleInternal": "500",
}
TOPICS = {
    "topicConfigTable": {
        COMPACTED: {
            "topicName": COMPACTED,
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "attributes": {"cleanup.policy": "COMPACTION"},
        }
    }
}


@dataclass(frozen=True, slots=True)
class Seen:
    """The rows that the client pulled, those read live, and the store that the broker left."""

    pulled: list[Row]
    live: list[dict[str, Any]]
    tagged: list[dict[str, Any]]
    root: Path
    repository: Path
    served: list[Row]
    left_out: tuple[str, ...]


def key_of(row: Row) -> tuple[str, int, int, str]:
    return row["topic"], row["queueId"], row["queueOffset"], row["msgId"]


@pytest.fixture(scope="module")
def seen(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("compaction-")
    root, repository = folder / "store", folder / "repository"
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_text(json.dumps(TOPICS))
    with Cluster(toolchain, "5.5.1", folder / "programs") as cluster:
        live = f"rocketmq://{cluster.name_server}"
        with cluster.broker(root, SETTINGS) as broker:
            broker.produce(COMPACTED, "Keyed", SENT)
            broker.produce(PLAIN, "Single", PLAIN_SENT)
            until(lambda: len(served(broker.dump())) < SENT // 2)
            pulled = broker.dump().rows
            rows = planned.rows(live, columns="full")
            tagged = planned.rows(live, subscribe=COMPACTED, tags="TagA")
            left_out = take_point(str(root), backing(folder / "beside")).left_out
            broker.stop()
        take_point(str(root), backing(repository))
        restored = folder / "restored"
        restore_point(at(backing(repository), 1), str(restored))
        quiet = SETTINGS | {"compactionScheduleInternal": "3600000"}
        with cluster.broker(restored, quiet) as broker:
            again = broker.dump().rows
            broker.stop()
    return Seen(pulled, rows, tagged, root, repository, again, left_out)


def served(dumped: Any) -> list[Row]:
    return served_rows(dumped.rows)


def served_rows(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["topic"] == COMPACTED]


def test_live_rows_are_those_that_the_client_pulled(seen: Seen) -> None:
    expected = {key_of(row) for row in seen.pulled if row["topic"] in (COMPACTED, PLAIN)}
    assert {key_of(row) for row in seen.live} == expected
    assert len(seen.live) == len(expected)
    compacted = [row for row in expected if row[0] == COMPACTED]
    assert 0 < len(compacted) < SENT // 2
    of_topic = [row for row in seen.live if row["topic"] == COMPACTED]
    tagged = {key_of(row) for row in of_topic if row["tags"] == "TagA"}
    assert tagged
    assert {key_of(row) for row in seen.tagged} == tagged


def test_of_the_store_that_topic_alone_is_left_out(
    seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    for place in (str(seen.root), f"{seen.repository}@1"):
        with caplog.at_level(logging.WARNING):
            rows = planned.rows(place)
        assert {row["topic"] for row in rows} == {PLAIN}
        assert len(rows) == PLAIN_SENT
        assert f"left out: {COMPACTED}" in caplog.text
        caplog.clear()
        with pytest.raises(UnsupportedTopicError, match=rf"COMPACTION\] topic {COMPACTED}"):
            planned.rows(place, subscribe=f"{COMPACTED},{PLAIN}")
    assert [one for one in check(seen.root) if one.severity == "error"] == []


def test_a_broker_on_the_restored_point_gives_the_same_messages(seen: Seen) -> None:
    """A broker that starts enters the last messages again: one more may wait for compaction."""
    pulled = {key_of(row) for row in seen.pulled if row["topic"] in (COMPACTED, PLAIN)}
    again = {key_of(row): row for row in seen.served if row["topic"] in (COMPACTED, PLAIN)}
    assert again.keys() >= pulled
    newest: dict[tuple[int, str], int] = {}
    for row in served_rows(seen.served):
        place = row["queueId"], row["properties"]["KEYS"]
        newest[place] = max(newest.get(place, -1), row["queueOffset"])
    for row in (row for place, row in again.items() if place not in pulled):
        assert row["topic"] == COMPACTED
        assert row["queueOffset"] < newest[row["queueId"], row["properties"]["KEYS"]]


def test_beside_a_running_broker_the_compacted_log_is_left_out_of_a_point(seen: Seen) -> None:
    assert "compaction" in seen.left_out
