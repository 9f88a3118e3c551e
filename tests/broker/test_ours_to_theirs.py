"""Stores that mqstore wrote, served by real brokers: judged by what official clients get."""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from broker.harness import (
    DEFAULT_FILES,
    FAST_DELAYS,
    SMALL_FILES,
    Broker,
    Cluster,
    Dumped,
    Row,
)
from broker.left import NAMES, Left
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
from broker.reading import by_queue, read, rows_of, told
from mqstore.backlog.measure import measure
from mqstore.backlog.plan import plan
from mqstore.backlog.request import BacklogRequest
from mqstore.check import Finding, check
from mqstore.format.config import DELAY_LEVELS_MS
from mqstore.read.directory import take
from mqstore.tables.store import queues

pytestmark = pytest.mark.broker

PREFIX = "Ours"
LATE = f"{PREFIX}Late"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
TOPICS = tuple(f"{PREFIX}{n}" for n in range(3))
LZ4, ZSTD, ZLIB = 0x100, 0x200, 0x300
DELAYS = {"messageDelayLevel": FAST_DELAYS["messageDelayLevel"].replace(" 2s", " 5s", 1)}
"""Ours for the levels that we write. A message whose time is further away than the delay that its
broker has for the level is delivered at once, as
ScheduleMessageService.DeliverDelayedMessageTimerTask#correctDeliverTimestamp has it."""
EVERY = 37
"""One message in so many is looked up."""


@dataclass(slots=True)
class Turn:
    """One turn of a store: we wrote, a broker served, added and was stopped."""

    rows: list[dict[str, Any]]
    """All rows we had written by then."""
    ours: list[Row] = field(default_factory=list)
    """Our own read of the store before the broker saw it."""
    served: Dumped = field(default_factory=lambda: Dumped([], {}, []))
    """What the client pulled of it at first."""
    statuses: dict[str, list[Row]] = field(default_factory=dict)
    queues: dict[tuple[str, int], Row] = field(default_factory=dict)
    """Our table of queues, before the broker saw the store."""
    lookups: list[tuple[str, Row, list[Row]]] = field(default_factory=list)
    """(kind, message looked for, messages found)."""
    progress: list[Row] = field(default_factory=list)
    final: Dumped = field(default_factory=lambda: Dumped([], {}, []))
    """The dump before it was stopped, with what the broker appended."""
    recovered: Dumped = field(default_factory=lambda: Dumped([], {}, []))
    """The dump of the next broker, if this one was killed."""
    left: list[Row] = field(default_factory=list)
    """Our read of what it left."""
    backlog: dict[tuple[str, int], Row] = field(default_factory=dict)
    delayed: list[Row] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """What our checker has to say after our write, and after the broker's stop."""


@pytest.fixture(scope="session")
def turns(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[Turn]:
    """A store that is ours and the broker's in turn: new; then appended to what a broker left."""
    root = tmp_path_factory.mktemp(f"ours-{cluster.version}-") / "store"
    port = free_ports(-2, 0, 1)
    author = Author(PREFIX, seed=1)
    first = author.write_rows(1200, delay_levels=[1, 2, 1, 18])
    write(root, first, **on_port(port, **SMALL_SIZES, compression="zlib"))
    one = serve(cluster, root, port, Turn(first))
    second = author.write_rows(1200)
    write(root, second, compression="lz4", partitioner="hash", born_host="10.1.2.3:4567")
    two = serve(cluster, root, port, Turn([*author.rows]), stop=Broker.kill)
    with cluster.broker(root, DELAYS, port) as broker:
        two.recovered = broker.dump()
        broker.kill()
    return [one, two]


def serve(
    cluster: Cluster,
    root: Path,
    port: int,
    turn: Turn,
    stop: Callable[[Broker], None] = Broker.stop,
) -> Turn:
    """Let a broker serve the store, append to it, and stop."""
    turn.findings += check(root)
    turn.ours = read(root)
    table = rows_of(queues(take(root)))
    turn.queues = {(row["topic"], row["queueId"]): row for row in table}
    with cluster.broker(root, DELAYS, port) as broker:
        turn.served = broker.dump()
        turn.statuses = {topic: broker.topic_status(topic) for topic in TOPICS}
        look_up(broker, turn)
        broker.wait_for(LATE, 3)
        tagged = [r for r in turn.rows if r["topic"] == TOPICS[0] and r["tags"] == "TagA"]
        broker.push(TOPICS[0], "CG_OURS", "TagA", len(tagged) // 2, fail_every=100_000)
        turn.progress = broker.consumer_progress("CG_OURS")
        broker.produce(TOPICS[0], "Single", 50)
        broker.produce(f"{PREFIX}New", "Batch", 20)
        broker.produce(TOPICS[1], "ZipZLIB", 20)
        turn.final = broker.dump()
        turn.delayed = [row for row in turn.final.rows if row["topic"] == LATE]
        stop(broker)
    turn.findings += check(root)
    turn.left = read(root)
    request = BacklogRequest(groups="CG_OURS")
    backlog = rows_of(measure(plan(take(root), request), request, as_of_ms=0))
    turn.backlog = {(row["topic"], row["queueId"]): row for row in backlog}
    return turn


def look_up(broker: Broker, turn: Turn) -> None:
    """Ask for some messages by each key, by UNIQ_KEY (in two ways) and by offsetMsgId."""
    wanted: list[tuple[str, Row, str]] = []
    for row in [r for r in told(turn.served.rows) if r["topic"] in TOPICS][::EVERY]:
        keys = row["properties"].get("KEYS", "").split()
        wanted += [("key", row, key) for key in keys]
        wanted += [(kind, row, row["msgId"]) for kind in ("uniqKey", "uniqKeyNear")]
        if broker.version == "5.5.0" and "TAGS" in row["properties"]:
            wanted.append(("tag", row, row["properties"]["TAGS"]))
        wanted.append(("offsetMsgId", row, offset_msg_id(row)))
    answers = broker.lookup((kind, row["topic"], value) for kind, row, value in wanted)
    turn.lookups = [(w[0], w[1], told(found)) for w, found in zip(wanted, answers, strict=True)]


def numbered(rows: Iterable[Row]) -> dict[int, Row]:
    """Messages of ours by their number; each is there once."""
    ours = [row for row in rows if NUMBER in row["properties"] and row["topic"] != SCHEDULE]
    found = {int(row["properties"][NUMBER]): row for row in ours}
    assert len(found) == len(ours)
    return found


def test_our_checker_finds_no_fault_in_what_brokers_serve(turns: list[Turn]) -> None:
    for turn in turns:
        assert [finding for finding in turn.findings if finding.severity == "error"] == []


def test_the_client_pulls_what_was_written(turns: list[Turn]) -> None:
    for turn in turns:
        assert turn.served.problems == []
        pulled = numbered(turn.served.rows)
        for number, row in enumerate(turn.rows):
            if not row["delayTimeLevel"]:
                assert differences(row, pulled[number]) == {}


def test_the_client_pulls_the_very_records_that_we_read(turns: list[Turn]) -> None:
    """Offsets, sizes, flags, checksums, timestamps, hosts, properties: of every message."""
    for turn in turns:
        pulled = by_queue(told(turn.served.rows))
        for queue, rows in by_queue(turn.ours).items():
            if queue[0] != LATE and not queue[0].startswith("RMQ_SYS_"):
                assert pulled[queue][: len(rows)] == rows, queue


def test_hosts_and_times_are_those_asked_for(turns: list[Turn]) -> None:
    for turn in turns:
        for row in numbered(turn.served.rows).values():
            assert row["bornHost"] == "/10.1.2.3:4567"
            assert row["storeHost"].startswith("/127.0.0.1:")
            assert row["store"] >= row["born"]


@pytest.mark.parametrize("kind", ["key", "uniqKey", "uniqKeyNear", "offsetMsgId"])
def test_lookups_find_our_messages(turns: list[Turn], kind: str) -> None:
    for turn in turns:
        asked = [(wanted, found) for k, wanted, found in turn.lookups if k == kind]
        assert len(asked) > 20
        missed = [wanted for wanted, found in asked if wanted not in found]
        assert missed == [], f"{len(missed)} of {len(asked)}"


def test_a_broker_that_indexes_tags_finds_our_messages_by_tag(turns: list[Turn]) -> None:
    """From 5.5 on; a query returns the 64 newest, so each found one must have the tag."""
    for turn in turns:
        for wanted, found in [(w, f) for kind, w, f in turn.lookups if kind == "tag"]:
            tag, topic = wanted["properties"]["TAGS"], wanted["topic"]
            assert found
            assert {(r["topic"], r["properties"].get("TAGS")) for r in found} == {(topic, tag)}


def test_topic_status_is_our_table_of_queues(turns: list[Turn]) -> None:
    for turn in turns:
        rows = [row for status in turn.statuses.values() for row in status]
        assert len(rows) >= 12
        for theirs in rows:
            ours = turn.queues[theirs["topic"], theirs["queueId"]]
            assert ours["minOffset"] == theirs["minOffset"]
            assert ours["maxOffset"] == theirs["maxOffset"]
            assert ours["maxStoreTimestamp"] // 1000 == theirs["lastUpdate"]


def test_consumer_progress_is_our_backlog(turns: list[Turn]) -> None:
    """A push consumer took our messages by tag; what it left behind we count alike."""
    turn = turns[0]  # The other's broker was killed before it saved the offsets.
    theirs = {r["queueId"]: r for r in turn.progress if r["topic"] == TOPICS[0]}
    assert sum(row["consumerOffset"] for row in theirs.values()) > 0
    for queue_id, row in theirs.items():
        ours = turn.backlog[TOPICS[0], queue_id]
        assert (ours["consumerOffset"] or 0) == row["consumerOffset"]
        last = ours["lastConsumedStoreTimestamp"]
        assert (last or 0) // 1000 == row["lastTimestamp"]


def test_delayed_messages_come_when_they_are_due(turns: list[Turn]) -> None:
    turn = turns[0]
    late = {n: row for n, row in enumerate(turn.rows) if row["delayTimeLevel"]}
    waiting = {
        int(row["properties"][NUMBER]): row
        for row in turn.ours
        if row["topic"] == SCHEDULE and NUMBER in row["properties"]
    }
    assert set(waiting) == set(late)
    delivered = numbered(turn.delayed)
    assert set(delivered) == {n for n, row in late.items() if row["delayTimeLevel"] < 18}
    for number, row in delivered.items():
        delay_ms = DELAY_LEVELS_MS[late[number]["delayTimeLevel"] - 1]
        assert row["store"] >= waiting[number]["store"] + delay_ms
        assert differences(late[number], row) == {}
        assert row["msgId"] == waiting[number]["msgId"]


def test_what_the_broker_appended_after_us_is_read(turns: list[Turn]) -> None:
    for turn in turns:
        assert turn.final.problems == []
        found = by_queue(turn.left)
        for queue, rows in by_queue(told(turn.final.rows)).items():
            assert found[queue][: len(rows)] == rows, queue
        assert sum(len(rows) for rows in found.values()) >= len(turn.served.rows) + 90


def test_a_killed_broker_recovers_what_we_wrote(turns: list[Turn]) -> None:
    """After kill -9 the next broker dispatches again; nothing is lost, doubled or moved."""
    recovered = by_queue(told(turns[1].recovered.rows))
    for queue, rows in by_queue(told(turns[1].final.rows)).items():
        assert recovered[queue][: len(rows)] == rows, queue
    assert len(numbered(turns[1].recovered.rows)) == len(numbered(turns[1].final.rows))


def test_every_kind_of_file_rolled(turns: list[Turn]) -> None:
    """Small mapped files: what was judged above crossed their edges many times."""
    assert max(row["physicalOffset"] for row in turns[0].ours) > 2 * 262_144
    assert max(row["physicalOffset"] for row in turns[1].ours) > 5 * 262_144
    assert max(row["queueOffset"] for row in turns[1].ours) > 200
    assert len(turns[1].ours) > 2 * 1200
    assert {row["sysFlag"] & 0x700 for row in turns[1].ours} == {0, LZ4, ZLIB}


def test_a_store_of_default_sizes_survives_a_kill_of_its_broker(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A CommitLog of 1 GiB (sparse), IPv6 hosts, preserved times, ZSTD; normal and then abnormal
    recovery give the same messages."""
    root = tmp_path / "store"
    port = free_ports(-2, 0, 1)
    rows = Author(PREFIX, seed=2).write_rows(400)
    hosts = {"store_host": f"[2001:db8::1]:{port}", "born_host": "[2001:db8::7]:4567"}
    settings = on_port(port, compression="zstd", timestamps="preserve", **hosts)
    write(root, rows, **settings)
    ours = by_queue(read(root))
    dumps = []
    for _ in range(2):
        with cluster.broker(root, DEFAULT_FILES, port) as broker:
            dumps.append(broker.dump())
            broker.kill()
    for dump in dumps:
        assert dump.problems == []
        pulled = numbered(dump.rows)
        assert len(pulled) == len(rows)
        for number, row in enumerate(rows):
            assert differences(row, pulled[number]) == {}
            assert pulled[number]["store"] == row["storeTimestamp"] // 1000
            assert pulled[number]["bornHost"] == "/[2001:db8:0:0:0:0:0:7]:4567"
            assert pulled[number]["storeHost"] == f"/[2001:db8:0:0:0:0:0:1]:{port}"
        queues = by_queue(told(dump.rows))
        assert {queue: queues[queue] for queue in ours} == ours
    assert sum(row["sysFlag"] & 0x700 == ZSTD for row in dumps[0].rows) == 10


def test_an_append_to_a_store_that_a_broker_wrote_is_served(
    cluster: Cluster, left: dict[str, Left], tmp_path: Path
) -> None:
    """Beside what it held: to its topics, by its producers' choice of queue, and to a new one."""
    root = tmp_path / "store"
    shutil.copytree(left["stopped"].root, root)
    author = Author(PREFIX, seed=4)
    rows = author.write_rows(300)
    for number, row in enumerate(rows):
        row["queueId"] = None
        if number % 3 == 0:
            row |= {"topic": NAMES.order, "shardingKey": f"order{number % 7}"}
        elif number % 3 == 1:
            row |= {"topic": "Wide", "queueId": 4 + number % 4}
    write(root, rows, partitioner="hash", queue_nums=8)
    with cluster.broker(root) as broker:
        dump = broker.dump()
        broker.kill()
    assert dump.problems == []
    pulled = by_queue(told(dump.rows))
    for queue, held in by_queue(told(left["stopped"].dump.rows)).items():
        assert pulled[queue][: len(held)] == held, queue
    ours = numbered(dump.rows)
    assert [differences(row, ours[number]) for number, row in enumerate(rows)] == [{}] * 300
    assert {queue_id for topic, queue_id in pulled if topic == "Wide"} == {4, 5, 6, 7}
    chosen = {(r["properties"]["__SHARDINGKEY"], r["queueId"]) for r in left_rows(left, dump)}
    assert len(chosen) == len({key for key, _ in chosen}) == 7


def left_rows(left: dict[str, Left], dump: Dumped) -> list[Row]:
    """The ordered messages of both: SelectMessageQueueByHash chose for theirs, we for ours."""
    theirs = [row for row in left["stopped"].dump.rows if row["topic"] == NAMES.order]
    ours = [row for row in numbered(dump.rows).values() if row["topic"] == NAMES.order]
    assert len(theirs) == 200
    assert len(ours) == 100
    return theirs + ours


def test_keys_are_found_after_a_kill_of_the_broker(cluster: Cluster, tmp_path: Path) -> None:
    """Abnormal recovery deletes IndexFiles that are newer than the checkpoint says, and rebuilds
    only from the last CommitLog files: ours must be as old as it says, full or not."""
    root = tmp_path / "store"
    port = free_ports(-2, 0, 1)
    large = {"max_index_num": 20_000}  # One IndexFile over several CommitLog files.
    author = Author(PREFIX, seed=3)
    old = on_port(port, **SMALL_SIZES | large, timestamps="preserve")
    write(root, author.write_rows(1000), **old)
    write(root, author.write_rows(20))
    settings = SMALL_FILES | {"maxIndexNum": "20000"}
    with cluster.broker(root, settings, port) as broker:
        broker.dump()
        broker.kill()
    turn = Turn(author.rows)
    with cluster.broker(root, settings, port) as broker:
        turn.served = broker.dump()
        look_up(broker, turn)
        broker.kill()
    # A client that guesses the time from the id looks back three days at most; these are older.
    kinds = {"key", "uniqKey"}
    asked = [(wanted, found) for kind, wanted, found in turn.lookups if kind in kinds]
    missed = [wanted for wanted, found in asked if wanted not in found]
    assert missed == [], f"{len(missed)} of {len(asked)}"
