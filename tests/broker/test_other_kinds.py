"""A broker of 5.5.1 whose store is of other kinds: several CommitLog folders, light queues (LMQ), a
topic with priorities.
"""

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from broker.harness import FAST_DELAYS, Cluster, Dumped, Row
from broker.pop.remote import SEND, SUCCESS, Remote
from broker.reading import told
from broker.recipe import Names, await_delays, go_on, produce_few
from broker.test_pop_groups import table
from broker.toolchain import Toolchain
from mqstore.copy.restore_point import restore_point
from mqstore.copy.take_point import take_point
from mqstore.errors import NotAStoreError
from snapshot_copy.pointed import at, backing
from support import oracle, planned

pytestmark = pytest.mark.broker

NAMES = Names("K")
PARENT, PRIORITY = "KMulti", "KPriority"
LIGHT: Final = ("%LMQ%KOne", "%LMQ%KTwo")
QUEUES: Final = 8
SETTINGS: Final = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "mappedFileSizeCommitLog": "32768",
}
Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Kinds:
    """What a broker had: as it was sent, as the official client got it, and as mqlog saw it."""

    dumped: Dumped
    live: list[Row]
    progress: list[Row]
    root: Path
    logs: tuple[Path, Path]


def send(client: Remote, topic: str, queues: int, number: int, **more: str) -> None:
    """Send a message as a client does, with properties of its own."""
    name = f"{topic}-{number:03}"
    properties = {"UNIQ_KEY": name, "KEYS": name, "WAIT": "true", **more}
    code, remark, _, _ = client.ask(
        SEND, name.encode(), a="PG", b=topic, c="TBW102", d=queues, e=0, f=0,
        g=int(time.time() * 1000), h=0, j=0, k=False, m=False,
        i=oracle.join_properties(properties, trailing=False).decode(),
    )  # fmt: skip
    assert code == SUCCESS, remark


@pytest.fixture(scope="module")
def kinds(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Kinds:
    folder = tmp_path_factory.mktemp("kinds-")
    root, logs = folder / "store", (folder / "a", folder / "b")
    root.mkdir()
    settings = FAST_DELAYS | SETTINGS | {"storePathCommitLog": ",".join(map(str, logs))}
    with (
        Cluster(toolchain, "5.5.1", folder / "programs") as cluster,
        cluster.broker(root, settings) as broker,
        Remote(broker.address) as client,
    ):
        where = "-b", broker.address
        broker.mqadmin("updateTopic", *where, "-t", PARENT)
        attribute = "-a", "+message.type=PRIORITY"
        broker.mqadmin("updateTopic", *where, "-t", PRIORITY, "-r", "8", "-w", "8", *attribute)
        for number in range(90):
            names = LIGHT if number % 3 == 0 else LIGHT[:1]
            send(client, PARENT, 8, number, INNER_MULTI_DISPATCH=",".join(names))
            send(client, PRIORITY, QUEUES, number, _SYS_MSG_PRIORITY_=str(number % 10))
        produce_few(broker, NAMES)
        go_on(broker, NAMES)
        await_delays(broker, NAMES)
        dumped = broker.dump()
        live = planned.rows(f"rocketmq://{cluster.name_server}", columns="full")
        progress = broker.consumer_progress(NAMES.pull_group)
        broker.stop()
    return Kinds(dumped, live, progress, root, logs)


def folders(kinds: Kinds) -> str:
    return json.dumps([str(log) for log in kinds.logs])


def keys(rows: list[Row]) -> dict[Key, str]:
    return {(r["topic"], r["queueId"], r["queueOffset"]): r["msgId"] for r in rows}


def of_users(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row["topic"].startswith(("RMQ", "rmq", "SCHEDULE", "%LMQ%"))]


def test_several_commit_log_folders_have_all_messages_live_and_on_disk(kinds: Kinds) -> None:
    assert min(len(list(log.iterdir())) for log in kinds.logs) > 2
    expected = keys(of_users(kinds.dumped.rows))
    assert len(expected) > 300
    found = planned.rows(str(kinds.root), storePathCommitLog=folders(kinds), columns="full")
    assert keys(of_users(found)) == expected
    assert keys(of_users(kinds.live)) == expected
    with pytest.raises(NotAStoreError, match="storePathCommitLog"):
        planned.rows(str(kinds.root))


def test_a_point_of_several_folders_restores_them_as_one(kinds: Kinds, tmp_path: Path) -> None:
    repository = backing(tmp_path / "repository")
    take_point(kinds.root, repository, commit_log=[str(log) for log in kinds.logs])
    restore_point(at(repository, 1), tmp_path / "restored")
    found = planned.rows(str(tmp_path / "restored"))
    assert keys(of_users(found)) == keys(of_users(kinds.dumped.rows))
    shutil.rmtree(tmp_path / "restored")


def test_the_backlog_of_such_a_store_is_what_the_tool_prints(kinds: Kinds) -> None:
    printed = {
        (row["topic"], row["queueId"]): row["brokerOffset"] - row["consumerOffset"]
        for row in kinds.progress
    }
    options = {"storePathCommitLog": folders(kinds), "groups": NAMES.pull_group}
    rows = table(str(kinds.root), "backlog", **options)
    assert {(row["topic"], row["queueId"]): row["lag"] for row in rows} == printed
    assert sum(printed.values()) > 0


def test_a_light_queue_has_what_was_sent_to_it_and_its_parent_all(kinds: Kinds) -> None:
    sent = {LIGHT[0]: range(90), LIGHT[1]: range(0, 90, 3)}
    for name, numbers in sent.items():
        options = {"storePathCommitLog": folders(kinds), "subscribe": name}
        found = planned.rows(str(kinds.root), **options)
        by_place = {row["queueOffset"]: row["keys"] for row in found}
        assert by_place == {at_: f"{PARENT}-{n:03}" for at_, n in enumerate(numbers)}
        assert {row["queueId"] for row in found} == {0}
    parent = [row for row in kinds.dumped.rows if row["topic"] == PARENT]
    assert len(parent) == 90


def test_a_priority_is_the_queue_and_a_property(kinds: Kinds) -> None:
    """PriorityUtils: queue min(priority, queues - 1), whatever queue the sender chose."""
    options = {"storePathCommitLog": folders(kinds), "subscribe": PRIORITY, "columns": "full"}
    found = planned.rows(str(kinds.root), **options)
    assert len(found) == 90
    for row in found:
        priority = int(dict(row["properties"])["_SYS_MSG_PRIORITY_"])
        assert row["queueId"] == min(priority, QUEUES - 1)
    assert told(kinds.dumped.rows)
