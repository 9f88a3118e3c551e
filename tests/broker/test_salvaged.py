"""A broker's store, damaged and salvaged, and served by a broker again."""

import random
import shutil
from pathlib import Path

import pytest

from broker import recipe
from broker.group import dledger_settings
from broker.harness import FAST_DELAYS, SMALL_FILES, Broker, Cluster, Row
from broker.left import MOVING, NAMES, Left
from broker.ports import free_ports
from broker.reading import by_queue, read, told
from mqstore.check import check
from mqstore.copy.salvage import salvage
from support import goldens, soak

pytestmark = pytest.mark.broker

SIZE = int(SMALL_FILES["mappedFileSizeCommitLog"])
TOLD = ("topic", "queueId", "queueOffset", "storeSize", "msgId", "bodySha1", "properties", "store")
HOLES = 12


def damaged(left: Left, root: Path) -> list[Row]:
    """Damage a copy of a store; return the messages of the dump whose bytes are whole."""
    chance = random.Random(1)
    shutil.copytree(left.root, root)
    logs = sorted((root / "commitlog").iterdir())
    before = {int(path.name): path.read_bytes() for path in logs}
    after = {start: bytearray(data) for start, data in before.items()}
    for number in range(HOLES):
        data = after[chance.choice(list(after)[:-1])]
        start, length = chance.randrange(len(data) - 9000), chance.choice([100, 900, 9000])
        data[start : start + length] = bytes(length) if number % 2 else chance.randbytes(length)
    for path in logs:
        path.write_bytes(after[int(path.name)])
    logs[1].rename(logs[1].with_name("lost+found-1"))
    shutil.rmtree(root / "consumequeue" / NAMES.topic)

    def is_whole(row: Row) -> bool:
        place, size = row["physicalOffset"], row["storeSize"]
        start = place - place % SIZE
        part = slice(place - start, place - start + size)
        return before[start][part] == after[start][part]

    return [row for row in told(left.dump.rows) if is_whole(row)]


def in_words(rows: list[Row]) -> dict[tuple[str, int], list[Row]]:
    kept = [row for row in rows if not row["topic"].startswith((*MOVING, "SCHEDULE_", "rmq_sys"))]
    queues = by_queue({name: row[name] for name in TOLD} for row in kept)
    return {queue: found for queue, found in queues.items() if found}


def test_a_broker_serves_every_whole_message_of_a_salvaged_store(
    cluster: Cluster, left: dict[str, Left], tmp_path: Path
) -> None:
    whole = damaged(left["stopped"], tmp_path / "damaged")
    made = salvage(tmp_path / "damaged", tmp_path / "new")
    assert [str(found) for found in check(tmp_path / "new") if found.severity == "error"] == []
    assert made.moved > 0
    assert made.lost_messages > 0
    expected = in_words(whole)
    assert in_words(read(tmp_path / "new")) == expected
    with cluster.broker(tmp_path / "new", FAST_DELAYS) as broker:
        assert in_words(told(broker.dump().rows)) == expected
        for group, before in left["stopped"].progress.items():
            then = {(r["topic"], r["queueId"]): r["consumerOffset"] for r in before}
            for row in broker.consumer_progress(group):
                if not row["topic"].startswith(MOVING):
                    wanted = then[row["topic"], row["queueId"]]
                    assert row["consumerOffset"] == min(wanted, row["brokerOffset"])
        sent = broker.produce(NAMES.topic, "Single", 20)
        new = {(row["topic"], row["queueId"], row["queueOffset"]) for row in sent}
        assert_added(broker, expected, new)
        broker.kill()
    if soak.WHOLE:
        with cluster.broker(tmp_path / "new", FAST_DELAYS) as broker:
            assert_added(broker, expected, new)
            broker.stop()


OF_PLACE = frozenset({"physicalOffset", "msgId", "offsetMsgId"})


def test_a_broker_serves_every_message_of_a_salvaged_dledger_disk(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Alone, and as the first of a group that begins with it; both take new messages."""
    root = goldens.unpack(goldens.DLEDGER, tmp_path)
    assert salvage(root, tmp_path / "new").is_complete
    expected = without_places(read(root))
    assert without_places(read(tmp_path / "new")) == expected
    groups = {}, dledger_settings("n0", {"n0": free_ports(0)})
    for number, settings in enumerate(groups):
        again = tmp_path / f"served-{number}"
        shutil.copytree(tmp_path / "new", again)
        with cluster.broker(again, FAST_DELAYS | settings) as broker:
            found = without_places(told(broker.dump().rows))
            assert {q: found.get(q) for q in expected} == expected
            sent = broker.produce("After", "Single", 20)
            assert len(sent) == 20
            broker.wait_for("After", 20)
            broker.stop()


def without_places(rows: list[Row]) -> dict[tuple[str, int], list[Row]]:
    moving = *MOVING, recipe.Names("D").delay, "SCHEDULE_", "rmq_sys"
    kept = [row for row in rows if not row["topic"].startswith(moving)]
    plain = ({name: row[name] for name in row if name not in OF_PLACE} for row in kept)
    return {queue: found for queue, found in by_queue(plain).items() if found}


def assert_added(
    broker: Broker,
    expected: dict[tuple[str, int], list[Row]],
    new: set[tuple[str, int, int]],
) -> None:
    """What was salvaged is there, and what was sent since; each queue offset was given once."""
    assert len(new) == 20
    for queue, rows in in_words(told(broker.dump().rows)).items():
        ours = [row for row in rows if (*queue, row["queueOffset"]) not in new]
        assert ours == expected.get(queue, []), queue
        new = new - {(*queue, row["queueOffset"]) for row in rows}
    assert new == set()
