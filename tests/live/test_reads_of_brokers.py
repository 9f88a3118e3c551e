"""The live room against real brokers of both versions: what it reads is what their disks hold.

Reading changes nothing on a broker, and a broker that is frozen, killed or started again is a
named error in time, or no error and every message once.
"""

import os
import signal
import time
from contextlib import closing

import numpy as np
import pytest

from broker.harness import BROKER_NAME
from broker.reading import by_queue, columns
from live.real import ALL_COLUMNS, NAMES, READING, Live, full_rows, slices
from live.secure import ADMIN, FILES, MESSAGES, READER, STRANGER, TOPIC, TRUSTED, Guarded
from mqstore.backlog import BacklogRequest
from mqstore.backlog.plan import plan_all
from mqstore.errors import UnknownTopicError
from mqstore.format.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from mqstore.live.origin.bounds import LiveBounds, bounds, first_at, weigh
from mqstore.live.origin.entries import entries
from mqstore.live.origin.groups import committed
from mqstore.live.origin.lookup import by_id, by_key
from mqstore.live.origin.pull import LiveSlice, PullReader
from mqstore.live.origin.records import PullSettings, read
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.credentials import Credentials
from mqstore.live.remoting.errors import (
    AccessDeniedError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    NoMasterError,
)
from mqstore.live.remoting.settings import ClusterSettings, Limits
from mqstore.live.remoting.tls import Tls
from mqstore.live.remoting.topics import broker_infos, check_readable, reading_settings
from mqstore.options.secret import Secret
from mqstore.read.scan import scan
from mqstore.read.selection import Selection
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.request.places import open_all

pytestmark = pytest.mark.broker

LOG_FILE_BYTES = 262_144


def test_every_field_of_every_message_is_what_the_brokers_directory_gives(live: Live) -> None:
    pulled = live.pulled(live.bounds(), with_tags_codes=True)
    ours, theirs = by_queue(full_rows(pulled)), by_queue(columns(live.root, ALL_COLUMNS))
    assert sum(map(len, ours.values())) > 1_000
    # A broker of 4.9 has no route for half messages before its first check of transactions.
    assert {topic for topic, _ in theirs.keys() - ours.keys()} <= {HALF_TOPIC, OP_HALF_TOPIC}
    for queue, mine_all in ours.items():
        for mine, row in zip(mine_all, theirs[queue], strict=True):
            # The ConsumeQueue of delayed messages has times of delivery; answers do not tell it.
            of_disk = mine["tagsCode"] if queue[0] == SCHEDULE_TOPIC else row["tagsCode"]
            assert mine == row | {"tagsCode": of_disk, "brokerName": BROKER_NAME}


def test_the_records_pulled_are_those_of_the_log_byte_for_byte(live: Live) -> None:
    for part in live.pulled(live.bounds(), batch_bytes=50_000):
        headers = part.headers
        places = headers.field("physical_offset").tolist()
        for place, start, size in zip(places, headers.starts, headers.sizes, strict=True):
            file = live.root / "commitlog" / f"{place // LOG_FILE_BYTES * LOG_FILE_BYTES:020d}"
            with file.open("rb") as log:
                log.seek(place % LOG_FILE_BYTES)
                assert log.read(size) == headers.buffer[start : start + size].tobytes()


def test_bounds_are_those_that_topic_status_tells(live: Live) -> None:
    told = {
        (row["queueId"], row["minOffset"], row["maxOffset"])
        for row in live.broker.topic_status(NAMES.topic)
    }
    assert told == {(q.queue_id, q.low, q.high) for q in live.bounds() if q.topic == NAMES.topic}


def test_the_first_message_at_a_time_is_what_a_walk_over_all_finds(live: Live) -> None:
    queues = [queue for queue in live.bounds() if queue.topic in {NAMES.topic, NAMES.batch}]
    rows = by_queue(full_rows(live.pulled(queues)))
    asked: list[tuple[LiveBounds, int, int]] = []
    for queue in queues:
        stored = [row["storeTimestamp"] // 1000 for row in rows[queue.topic, queue.queue_id]]
        moments = {*stored[::15], stored[-1], stored[0] - 1, stored[-1] + 1}
        for moment in sorted(moments | {ms + 1 for ms in stored[::20]}):
            slow = next((i for i, ms in enumerate(stored) if ms >= moment), len(stored))
            asked.append((queue, moment, queue.low + slow))
    assert len(asked) > 80
    found = first_at(live.cluster, [a[0] for a in asked], [a[1] for a in asked])
    assert found == [a[2] for a in asked]


def test_tags_give_what_the_broker_gives_its_own_consumer(live: Live) -> None:
    queues = [queue for queue in live.bounds() if queue.topic == NAMES.topic]
    tag = NAMES.tags[0]
    every = full_rows(live.pulled(queues, with_tags_codes=True))
    expected = [(r["queueId"], r["queueOffset"]) for r in every if r["tags"] == tag]
    chosen = full_rows(live.pulled(queues, tags=f"{tag} || nobody"))
    assert [(row["queueId"], row["queueOffset"]) for row in chosen] == expected
    assert 50 < len(expected) < len(every) / 2


def test_tag_codes_of_queues_are_those_of_their_messages(live: Live) -> None:
    queues = [queue for queue in live.bounds() if queue.topic == NAMES.topic]
    every = full_rows(live.pulled(queues, with_tags_codes=True))
    codes = np.concatenate([part[2] for _, part in entries(live.cluster, slices(queues))])
    assert codes.tolist() == [row["tagsCode"] for row in every]


def test_a_weight_is_near_what_the_records_have(live: Live) -> None:
    queues = [queue for queue in live.bounds() if queue.topic == NAMES.batch]
    exact = sum(int(np.sum(part.headers.sizes)) for part in live.pulled(queues))
    assert 0.7 * exact < sum(weigh(live.cluster, slices(queues))) < 1.4 * exact


def test_groups_are_where_consumer_progress_says(live: Live) -> None:
    by_topic = committed(live.cluster, [BROKER_NAME])[BROKER_NAME]
    queues = live.bounds()
    for group in (NAMES.push_group, NAMES.pull_group):
        ours = {
            (queue.topic, queue.queue_id): (
                queue.high,
                by_topic[queue.topic, group].get(queue.queue_id, 0),
            )
            for queue in queues
            if (queue.topic, group) in by_topic
        }
        told = {
            (row["topic"], row["queueId"]): (row["brokerOffset"], row["consumerOffset"])
            for row in live.broker.consumer_progress(group)
        }
        assert ours.items() <= told.items()
        assert {topic for topic, _ in ours} >= {topic for topic, _ in told if topic[0] != "%"}


def test_keys_and_ids_lead_to_the_messages_that_the_client_finds(live: Live) -> None:
    routes = [live.cluster.known_route(NAMES.topic)]
    row = next(r for r in full_rows(live.pulled(live.bounds())) if r["keys"] == "key1")
    asked = [("key", NAMES.topic, "key1"), ("uniqKey", NAMES.topic, row["msgId"])]
    by_their_key, _ = live.broker.lookup(asked)
    found = by_key(live.cluster, routes, ["key1"])
    assert {(piece.queue_id, piece.start) for piece in found} == {
        (message["queueId"], message["queueOffset"]) for message in by_their_key
    }
    place = LiveSlice(BROKER_NAME, row["topic"], row["queueId"], row["queueOffset"], 0)
    routes = [live.cluster.known_route(row["topic"])]
    for msg_id in (row["msgId"], row["offsetMsgId"].lower()):
        (piece,) = by_id(live.cluster, routes, [msg_id])
        assert (piece.topic, piece.queue_id, piece.start) == (
            place.topic,
            place.queue_id,
            place.start,
        )
    *digits, last = row["offsetMsgId"]
    beside = "".join([*digits, "3" if last != "3" else "4"])
    assert by_id(live.cluster, routes, [beside, "nobody"]) == []


def test_a_broker_says_what_it_is(live: Live) -> None:
    (info,) = broker_infos(live.cluster, [BROKER_NAME])
    assert info.version == live.broker.version
    assert info.low < info.high
    assert info.low < info.dispatched <= info.high
    assert reading_settings(live.cluster, BROKER_NAME)["maxTransferCountOnMessageInMemory"] == "32"
    check_readable(live.cluster, live.routes())
    with pytest.raises(UnknownTopicError, match=NAMES.topic):
        live.cluster.known_route(NAMES.topic + "x")


def test_reading_changes_nothing_on_a_broker(live: Live) -> None:
    before = live.state()
    queues = live.bounds()
    live.pulled(queues)
    first_at(live.cluster, queues, [0] * len(queues))
    by_key(live.cluster, live.routes(), ["key1"])
    assert live.state() == before


def test_a_frozen_a_killed_and_a_restarted_broker(live: Live) -> None:
    queues = [queue for queue in live.bounds() if queue.topic == NAMES.topic]
    expected = [(r["queueId"], r["queueOffset"]) for r in full_rows(live.pulled(queues))]
    os.kill(live.broker.pid, signal.SIGSTOP)
    try:
        with _impatient(live) as client, pytest.raises(BrokerTimeoutError, match="requestTimeout"):
            list(read(PullReader(client, slices(queues)), PullSettings()))
    finally:
        os.kill(live.broker.pid, signal.SIGCONT)
    settings = ClusterSettings(name_servers=live.name_servers, retry_timeout_ms=60_000)
    with Cluster(settings) as patient:
        reader = read(PullReader(patient, slices(queues)), PullSettings(first_rows=20))
        rows = full_rows([next(reader)])
        with _impatient(live) as client:
            client.master(BROKER_NAME)
            live.kill()
            before = time.monotonic()
            # Name servers forget a broker as soon as their connection to it breaks.
            with pytest.raises((BrokerUnavailableError, NoMasterError), match=BROKER_NAME):
                list(read(PullReader(client, slices(queues)), PullSettings()))
            assert time.monotonic() - before < 50
        live.start()
        rows += full_rows(list(reader))
    assert [(row["queueId"], row["queueOffset"]) for row in rows] == expected


def _impatient(live: Live) -> Cluster:
    limits = Limits(connect_timeout_ms=500, request_timeout_ms=500)
    names = live.name_servers
    return Cluster(ClusterSettings(name_servers=names, limits=limits, retry_timeout_ms=1_000))


def read_guarded(guard: Guarded, credentials: Credentials | None, tls: Tls | None) -> list[bytes]:
    settings = ClusterSettings(
        name_servers=(guard.name_server,),
        credentials=credentials,
        tls=tls,
        limits=READING,
        retry_timeout_ms=500,
    )
    with Cluster(settings) as client:
        queues = bounds(client, [client.known_route(TOPIC)])
        parts = read(PullReader(client, slices(queues)), PullSettings())
        rows = [row for part in parts for row in full_rows([part])]
    return [row["body"] for row in rows]


@pytest.mark.parametrize("who", [READER, ADMIN], ids=["reader", "admin"])
def test_who_may_read_reads(guard: Guarded, who: Credentials) -> None:
    expected = [b"body %d" % number for number in range(MESSAGES)]
    assert read_guarded(guard, who, TRUSTED) == expected
    unnamed = Tls(TRUSTED.ca_file, verify_host_name=False)
    assert read_guarded(guard, who, unnamed) == expected


def test_who_may_read_one_topic_reads_it_among_all_and_the_rest_is_left_out(
    guard: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ClusterSettings(
        name_servers=(guard.name_server,),
        credentials=READER,
        tls=TRUSTED,
        limits=READING,
        retry_timeout_ms=5_000,
    )
    with closing(open_all(Selection(roots=(), include_system_topics=True), [settings])) as stores:
        parts = [piece for snapshot in stores.snapshots for piece in slices_of(snapshot)]
        found = [body for b in scan(parts, ScanSettings(("body",))) for body in b["body"]]
        assert [body.as_py() for body in found] == [b"body %d" % n for n in range(MESSAGES)]
        held = stores.held_of(lambda _: True)
        assert plan_all(stores.sources, held, BacklogRequest()) == []
    told = [one.getMessage() for one in caplog.records if "for want of rights" in one.getMessage()]
    assert told
    assert TOPIC not in "".join(one.partition(". [")[0] for one in told)
    named = Selection(roots=(), subscribe=(TOPIC, "BenchmarkTest"))
    with closing(open_all(named, [settings])) as stores, pytest.raises(AccessDeniedError):
        assert stores.snapshots


@pytest.mark.parametrize(
    "who",
    [None, STRANGER, Credentials(READER.access_key, Secret("reader-secret-wrong"))],
    ids=["nobody", "stranger", "wrong secret"],
)
def test_nobody_else_does_and_the_error_has_no_secret(
    guard: Guarded, who: Credentials | None
) -> None:
    with pytest.raises(AccessDeniedError, match="accessKey and secretKey") as caught:
        read_guarded(guard, who, TRUSTED)
    assert "secret-" not in str(caught.value)
    assert "secret-" not in repr(caught.value)


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        (None, "tls=true"),
        (Tls(), "not trusted"),
        (Tls(str(FILES / "stranger.pem"), verify_host_name=False), "not trusted"),
    ],
    ids=["plain", "the system's CAs", "another CA"],
)
def test_without_tls_or_trust_nothing_is_read_and_the_error_says_what_to_set(
    guard: Guarded, tls: Tls | None, words: str
) -> None:
    with pytest.raises(BrokerUnavailableError, match=words):
        read_guarded(guard, READER, tls)
