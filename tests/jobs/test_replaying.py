"""mqlog replay: golden stores to a cluster on loopback, what is kept, and what is refused."""

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from jobs.command import Done, Run
from live.taking import Take, TakingCluster
from mqstore.deliver.replay import run as replay_run
from mqstore.live.send.pace import Pace
from support import goldens
from support.oracle import Message
from support.stores import MakeStore

CONTROL = "MQLOG_CONTROL"
FAST = ("-o", "fenceWait=1ms")
DERIVED = {"CLUSTER", "MSG_REGION", "TRACE_ON", "UNIQ_KEY", "DELAY", "REAL_TOPIC", "REAL_QID"}
DERIVED |= {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "TRAN_MSG", "PGROUP", "__transactionId__"}
DERIVED |= {"RECONSUME_TIME", "CONSUME_START_TIME", "__CRC32#", "TRANSACTION_CHECK_TIMES"}
PREFIX = {"4.9.7": "H", "5.5.0": "G"}
OURS = {"UNIQ_KEY", "MQLOG_WRITE"}
Shown = tuple[str, int, dict[str, str]]


@pytest.fixture
def taking() -> Iterator[TakingCluster]:
    with TakingCluster().running() as found:
        assert isinstance(found, TakingCluster)
        found.topic(CONTROL)
        yield found


@pytest.fixture
def replayed(run: Run, taking: TakingCluster) -> Any:
    def replay(source: str | Path, *more: str | Path) -> Done:
        fast = () if "--at-least-once" in more else FAST
        return run("replay", source, f"rocketmq://{taking.address}", *fast, *more)

    return replay


def held(taking: TakingCluster, topic: str, queue_id: int) -> list[Shown]:
    """Hash of the body, flag and properties of each message, but those that a write adds."""
    return [
        (
            digest(zlib.decompress(m.body) if m.sys_flag & 1 else m.body),
            m.flag,
            {name: value for name, value in m.properties_map.items() if name not in OURS},
        )
        for m in taking.queues["broker-a", topic, queue_id].messages
        if m is not None
    ]


def told(version: str, topic: str, queue_id: int) -> list[Shown]:
    """The same of what the official client read of a golden store, without what brokers add."""
    return [
        (
            row["bodySha1"],
            row["flag"],
            {name: value for name, value in row["properties"].items() if name not in DERIVED},
        )
        for row in sorted(goldens.expected(version), key=lambda row: row["queueOffset"])
        if (row["topic"], row["queueId"]) == (topic, queue_id)
    ]


def digest(body: bytes) -> str:
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()


def test_messages_of_a_store_are_there_once_in_their_queues_and_a_second_run_sends_nothing(
    replayed: Any, taking: TakingCluster, golden: tuple[str, Path], tmp_path: Path
) -> None:
    version, root = golden
    first, second = (PREFIX[version] + name for name in ("Topic", "Tx"))
    for topic in (first, second):
        taking.topic(topic, 4)
    chosen = ("-t", first, "-t", second, "--offset-map", f"parquet:{tmp_path}/map")
    done = replayed(root, *chosen)
    count = sum(row["topic"] in {first, second} for row in goldens.expected(version))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{count:,} messages sent: ")
    for topic in (first, second):
        for queue_id in range(4):
            assert held(taking, topic, queue_id) == told(version, topic, queue_id)
    check_map(taking, tmp_path / "map", version, first, second)
    sends = len(taking.sends())
    again = replayed(root, *chosen)
    assert again.out == f"0 messages sent; {count:,} offsets of the source were replayed before\n"
    assert len(taking.sends()) == sends
    count = len(taking.all_bodies(second))
    replayed(root, "-t", second, "--name", "other")
    assert len(taking.all_bodies(second)) == 2 * count > 0


def check_map(taking: TakingCluster, directory: Path, version: str, *topics: str) -> None:
    """Every message of those topics is where the map says, with the body that it had."""
    rows = ds.dataset(directory, format="parquet").to_table().to_pylist()
    bodies = {
        (row["topic"], row["queueId"], row["queueOffset"]): row["bodySha1"]
        for row in goldens.expected(version)
    }
    for row in rows:
        queue = taking.queues[row["newBrokerName"], row["newTopic"], row["newQueueId"]]
        message = queue.messages[row["newQueueOffset"]]
        assert message is not None
        plain = zlib.decompress(message.body) if message.sys_flag & 1 else message.body
        assert digest(plain) == bodies.pop((row["topic"], row["queueId"], row["queueOffset"]))
        assert message.msg_id == row["msgId"]
    assert {topic for topic, _, _ in bodies}.isdisjoint(topics)


def test_a_run_after_one_that_was_cut_off_sends_what_is_missing(
    replayed: Any,
    taking: TakingCluster,
    golden_550: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each write is stored in part, then no connection answers; its map is whole in the end."""
    monkeypatch.setattr(replay_run, "PART_MESSAGES", 100)
    taking.topic("GTopic", 4)
    chosen = ("-t", "GTopic", "--offset-map", f"parquet:{tmp_path}/map", "-o", "batchMaxMessages=9")
    left = [0]

    def take(request: dict[str, Any]) -> Take | None:
        if request["extFields"]["b"] == CONTROL:
            return None
        left[0] -= 1
        return None if left[0] >= 0 else Take(stores=2 if left[0] == -1 else 0, code=None)

    taking.take = take
    runs = 0
    while True:
        left[0], runs = 7, runs + 1
        done = replayed(golden_550, *chosen)
        if done.code == 0:
            break
        assert "[MQLOG_PUBLICATION_UNFINISHED]" in done.err
    assert runs > 4
    assert sum(len(held(taking, "GTopic", n)) for n in range(4)) == 481
    for queue_id in range(4):
        assert held(taking, "GTopic", queue_id) == told("5.5.0", "GTopic", queue_id)
    check_map(taking, tmp_path / "map", "5.5.0", "GTopic")


def test_a_map_that_was_not_written_is_found_again(
    replayed: Any, taking: TakingCluster, golden_550: Path, tmp_path: Path
) -> None:
    taking.topic("GTopic", 4)
    taking.topic("GTx", 4)
    replayed(golden_550, "-t", "GTopic", "-t", "GTx")
    sends = len(taking.sends())
    for kind in ("csv", "json", "parquet"):
        target = f"{kind}:{tmp_path}/{kind}"
        assert replayed(golden_550, "-t", "GTopic", "--offset-map", target).code == 0
    found = [
        sorted(map(str, ds.dataset(tmp_path / kind, format=kind).to_table().to_pylist()))
        for kind in ("csv", "json", "parquet")
    ]
    assert found[0] == found[1] == found[2]
    assert len(taking.sends()) == sends
    check_map(taking, tmp_path / "parquet", "5.5.0", "GTopic", "GTx")


def test_messages_that_come_later_are_sent_by_the_next_run(
    replayed: Any, taking: TakingCluster
) -> None:
    source = taking.fill("S", 5)
    taking.topic("T", 1)
    place = f"rocketmq://{taking.address}"
    assert replayed(place, "-t", "S", "--to", "T").out == "5 messages sent: 5 to T\n"
    source.messages += [replace(m, topic="S") for m in taking.fill("X", 8).messages[5:] if m]
    again = replayed(place, "-t", "S/0@7", "--to", "T")
    assert again.out == "1 message sent: 1 to T\n"
    again = replayed(place, "-t", "S", "--to", "T")
    assert again.out == "2 messages sent: 2 to T; 6 offsets of the source were replayed before\n"
    assert taking.bodies("T") == [b"0", b"1", b"2", b"3", b"4", b"7", b"5", b"6"]


def failed(number: int, **properties: str) -> Message:
    """A dead letter as a broker stores it."""
    own = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "0A", "UNIQ_KEY": f"{number:032X}"}
    own |= {"WAIT": "false", "DELAY": "3", "REAL_TOPIC": "%RETRY%g", "KEYS": "k", **properties}
    block = "".join(f"{name}\x01{value}\x02" for name, value in own.items() if value)
    return Message(
        topic="%DLQ%g", queue_id=0, body=b"%d" % number, properties=block.encode(), flag=number
    )


def test_dead_letters_go_back_to_their_topics_in_turn(
    replayed: Any, taking: TakingCluster, store: MakeStore
) -> None:
    taking.topic("T", 2)
    taking.topic("U", 1)
    root = store([*(failed(n) for n in range(4)), failed(4, RETRY_TOPIC="U", TAGS="t")]).root
    done = replayed(root, "-t", "%DLQ%g", "--to-origin")
    assert done.out == "5 messages sent: 4 to T, 1 to U\n"
    for queue_id in range(2):
        assert held(taking, "T", queue_id) == [
            (digest(b"%d" % n), n, {"KEYS": "k"}) for n in (queue_id, queue_id + 2)
        ]
    assert held(taking, "U", 0) == [(digest(b"4"), 4, {"KEYS": "k", "TAGS": "t"})]
    plan = replayed(root, "-t", "%DLQ%g", "--to-origin", "--name", "n", "--dry-run", "--json")
    assert [(r["newTopic"], r["newQueueId"], r["messages"], r["bodyBytes"]) for r in plan.rows] == [
        ("T", None, 4, 4),
        ("U", None, 1, 1),
    ]


def test_at_least_once_keeps_ids_and_sends_again(
    replayed: Any, taking: TakingCluster, golden_550: Path, tmp_path: Path
) -> None:
    taking.topic("GTopic", 4)
    chosen = ("-t", "GTopic", "--at-least-once", "--offset-map", f"parquet:{tmp_path}/map")
    for _ in range(2):
        done = replayed(golden_550, *chosen)
        assert done.out == "481 messages sent: 481 to GTopic\n"
    queues = [taking.queues["broker-a", "GTopic", queue_id] for queue_id in range(4)]
    ids = Counter(m.msg_id for queue in queues for m in queue.messages if m)
    assert ids == {r["msgId"]: 2 for r in goldens.expected("5.5.0") if r["topic"] == "GTopic"}
    rows = ds.dataset(tmp_path / "map", format="parquet").to_table().to_pylist()
    assert len({(r["newQueueId"], r["newQueueOffset"]) for r in rows}) == 962


def test_a_dry_run_counts_and_sends_nothing(
    replayed: Any, taking: TakingCluster, golden_550: Path
) -> None:
    taking.topic("GTopic", 2)
    chosen = ("-t", "GTopic", "--tag", "GA", "--map", "GTopic=New", "--create-topic", "-o")
    chosen += ("queueNums=8", "--dry-run")
    plan = replayed(golden_550, *chosen, "--json").rows
    wanted = [row for row in goldens.expected("5.5.0") if row["topic"] == "GTopic"]
    wanted = [row for row in wanted if row["properties"].get("TAGS") == "GA"]
    assert {(row["queueId"], row["newQueueId"]): row["messages"] for row in plan} == {
        (n, n): count for n, count in Counter(row["queueId"] for row in wanted).items()
    }
    assert {(row["newTopic"], row["newBrokerName"]) for row in plan} == {("New", "broker-a")}
    assert "messages, " in replayed(golden_550, *chosen).out
    assert taking.sends() == []
    assert ("broker-a", "New", 0) not in taking.queues
    done = replayed(golden_550, *chosen[:-1], "--json")
    assert done.rows[0]["messages"] == len(wanted)
    assert done.rows[0]["bodyBytes"] == sum(int(str(row["bodyBytes"])) for row in plan)
    assert ("broker-a", "New", 7) in taking.queues


def test_a_rate_spaces_small_requests(
    replayed: Any, taking: TakingCluster, golden_550: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """481 messages at 2,000 a second, and 40 kB a second, by a clock that only sleeps move."""
    pauses: list[float] = []

    def sent(pace: Pace, messages: int, size: int) -> None:
        pauses.append(max(messages / pace.messages_per_s, size / pace.bytes_per_s))

    monkeypatch.setattr(Pace, "sent", sent)
    taking.topic("GTopic", 4)
    chosen = ("-t", "GTopic", "--at-least-once")
    replayed(golden_550, *chosen, "--rate", "200")
    assert sum(pauses) == pytest.approx(481 / 200)
    assert max(pauses) <= 0.25
    pauses.clear()
    replayed(golden_550, *chosen, "--byte-rate", "40k", "-o", "delivery=atLeastOnce")
    assert pauses == []  # The option is refused.
    replayed(golden_550, *chosen, "--byte-rate", "40k")
    sizes = [len(request["body"]) for request in taking.sends()[-len(pauses) :]]
    assert pauses == [size / 40_960 for size in sizes]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-t", "GTopic"), "no broker has a topic GTopic"),
        (("-t", "GTopic"), "--create-topic makes it"),
        (("-t", "Gtopic"), "no such topic"),
        (("-t", "GTopic/9"), "the topic has no queue 9"),
        (("-t", "%RETRY%CG_G"), "send them back to their topics with --to-origin"),
        (("-t", "SCHEDULE_TOPIC_XXXX", "--to", "T"), "is RocketMQ's own"),
        (("-t", "GTopic", "--to-origin"), "is for topics that begin with %RETRY% or %DLQ%"),
        (("--to-origin",), "name a topic with --topic"),
        (("-t", "GTopic", "--to", "T", "--map", "GTopic=T"), "not together with --map"),
        (("-t", "GTopic", "--map", "Other=T"), "no message of Other is replayed"),
        (("-t", "GTopic", "--to", "T", "-o", "delivery=exactlyOnce"), "is set by --at-least-once"),
        (("-t", "GTopic", "--to", "T", "-o", "txnAppId=a"), "is set by --name"),
        (("-t", "GTopic", "--to", "T", "-o", "partitioner=hash"), "cannot be set"),
        (("-t", "GTopic", "--to", "T", "-o", "inlineBytes=1m"), "divided into parts"),
        (("-t", "GTopic", "--to", "T", "-o", "secretKey=x"), "would show in the list of processes"),
        (("-t", "GTopic", "--to", "T", "--at-least-once", "--name", "n"), "is for exactly once"),
        (("-t", "GTopic", "--to", "T", "--on-corrupt", "rescue"), "must be one of fail, skip"),
        (("-t", "GTopic", "--to", "T", "--offset-map", "x"), "write parquet:DIR"),
        (
            ("-t", "GTopic", "--to", "T", "--offset-map", "csv:x", "--dry-run"),
            "not together with --dry-run",
        ),
        (("-t", "GTopic", "--to", "T", "--tag", "a |"), "--tag"),
        (("-t", "GTopic", "--to", "T", "--source-option", "tls=true"), "is for clusters"),
        (("-t", "GTopic", "--source-option", "x=1"), "--source-option='x=1': no such option"),
        (("-t", "GTopic", "--map", "x"), "option --map='x': must be OLD=NEW"),
        (("-t", "GTopic@3", "--to", "T"), "no such topic"),
    ],
)
def test_wrong_arguments_are_told_and_send_nothing(
    replayed: Any, taking: TakingCluster, golden_550: Path, arguments: tuple[str, ...], said: str
) -> None:
    taking.topic("T")
    done = replayed(golden_550, *arguments)
    assert done.code == 2
    assert said in done.err
    assert taking.sends() == []


def test_a_dead_letter_without_its_topic_is_named(
    replayed: Any, taking: TakingCluster, store: MakeStore
) -> None:
    taking.topic("T")
    done = replayed(
        store([failed(0), failed(1, RETRY_TOPIC="")]).root, "-t", "%DLQ%g", "--to-origin"
    )
    assert done.code == 2
    assert "%DLQ%g/0, queue offset 1: the message has no property RETRY_TOPIC" in done.err
    assert taking.bodies("T") == []


def test_a_replay_never_takes_what_it_sent_itself(replayed: Any, taking: TakingCluster) -> None:
    taking.fill("T", 3)
    place = f"rocketmq://{taking.address}"
    assert replayed(place, "-t", "T", "--same-topic").out == "3 messages sent: 3 to T\n"
    again = replayed(place, "-t", "T", "--same-topic")
    assert again.out == "0 messages sent; 3 offsets of the source were replayed before\n"
    assert taking.bodies("T") == [b"0", b"1", b"2"] * 2


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--at-least-once",), ("--to", "T")])
def test_a_topic_is_not_doubled_unless_that_is_asked_for(
    replayed: Any, taking: TakingCluster, more: tuple[str, ...]
) -> None:
    """Also if the name server that is named for the source is another one."""
    taking.fill("T", 3)
    taking.topic("U")
    with TakingCluster().running() as other:
        other.queues, other.addresses = taking.queues, {"broker-a": {0: taking.address}}
        for address in (taking.address, other.address):
            done = replayed(f"rocketmq://{address}", "-t", "T", *more)
            assert done.code == 2
            assert "is the cluster that the messages come from: T would have each" in done.err
            assert "--same-topic" in done.err
    assert taking.sends() == []
    if "--to" not in more:
        assert replayed(f"rocketmq://{taking.address}", "-t", "T", "--to", "U", *more).code == 0


def test_another_cluster_gets_the_same_topic(replayed: Any, taking: TakingCluster) -> None:
    taking.topic("T")
    with TakingCluster().running() as other:
        other.fill("T", 3)
        done = replayed(f"rocketmq://{other.address}", "-t", "T")
        assert done.out == "3 messages sent: 3 to T\n"
        assert len(taking.bodies("T")) == 3


def test_times_of_producers_are_kept_on_request(
    replayed: Any, taking: TakingCluster, golden_550: Path
) -> None:
    taking.topic("GTx", 4)
    assert replayed(golden_550, "-t", "GTx", "-o", "timestamps=preserve").code == 0
    queues = [taking.queues["broker-a", "GTx", queue_id] for queue_id in range(4)]
    assert Counter(m.born_timestamp_ms for queue in queues for m in queue.messages if m) == Counter(
        row["born"] for row in goldens.expected("5.5.0") if row["topic"] == "GTx"
    )


def test_a_dead_letter_whose_topic_is_gone_is_named_with_the_flag_that_makes_it(
    replayed: Any, taking: TakingCluster, store: MakeStore
) -> None:
    done = replayed(store([failed(0)]).root, "-t", "%DLQ%g", "--to-origin")
    assert done.code == 2
    assert "no such topic; use --create-topic to add it" in done.err
    assert (
        replayed(store([failed(0)]).root, "-t", "%DLQ%g", "--to-origin", "--create-topic").code == 0
    )
    assert taking.all_bodies("T") == [b"0"]


def test_messages_in_more_places_than_a_control_record_holds_are_refused_before_any_is_sent(
    replayed: Any, taking: TakingCluster, store: MakeStore
) -> None:
    taking.topic("T")
    taking.settings = "mappedFileSizeCommitLog=1300\n"
    root = store(
        [
            Message(
                topic="T", queue_offset=n, body=b"%d" % n, properties=b"KEYS\x01k%d\x02" % (n % 2)
            )
            for n in range(100)
        ]
    ).root
    scattered = replayed(root, "-t", "T", "--key", "k1")
    assert scattered.code == 2
    assert "[MQLOG_CONTROL_TOO_LARGE] replay without a name" in scattered.err
    assert taking.sends() == []
    taking.settings = ""
    assert replayed(root, "-t", "T", "--key", "k1").out == "50 messages sent: 50 to T\n"
