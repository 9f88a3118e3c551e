"""Spark on real brokers: rows are those of the broker's directory, each once.

`make test` takes brokers of one version, `make soak` of both.
test_reads_of_brokers, which is about the layers below Spark, takes both always.
"""

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker.harness import BROKER_NAME, Cluster
from broker.toolchain import VERSIONS
from live.real import NAMES, Live
from live.secure import ADMIN, FILES, MESSAGES, READER, STRANGER, TOPIC, WITHOUT_GET, Guarded
from live.sending import create_topic, send
from mqstore.format.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from mqstore.live.remoting.credentials import Credentials
from support import soak

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.parametrize(
        "cluster", soak.sample(VERSIONS, check=1, test=1), indirect=True, scope="session"
    ),
]

SECONDS = 120
ORDER = ("topic", "queueId", "queueOffset")
Queue = tuple[str, int]


def load(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return spark.read.format("mqlog").options(**options).load(path)


def of_disk(spark: SparkSession, live: Live, **options: Any) -> DataFrame:
    return load(spark, str(live.root), brokerName=BROKER_NAME, **options)


def test_every_field_of_every_row_is_what_the_brokers_directory_gives(
    spark: SparkSession, live: Live
) -> None:
    all_of_it = {"columns": "full", "includeSystemTopics": True}
    ours = load(spark, live.address, **all_of_it)
    theirs = of_disk(spark, live, **all_of_it)
    assert ours.schema == theirs.schema
    # A broker of 4.9 has no route for half messages before its first check of transactions.
    hidden = {HALF_TOPIC, OP_HALF_TOPIC} - {row[0] for row in ours.select("topic").collect()}
    expected = [row for row in theirs.orderBy(*ORDER).collect() if row.topic not in hidden]
    rows = ours.orderBy(*ORDER).collect()
    assert len(rows) == len(expected) > 1_000
    for mine, row in zip(rows, expected, strict=True):
        # The ConsumeQueue of delayed messages has times of delivery; answers do not tell it.
        of_queue = mine.tagsCode if row.topic == SCHEDULE_TOPIC else row.tagsCode
        assert mine.asDict() == row.asDict() | {"tagsCode": of_queue}


def test_options_choose_the_rows_that_they_choose_of_a_directory(
    spark: SparkSession, live: Live
) -> None:
    moment = of_disk(spark, live, subscribe=NAMES.topic).selectExpr(
        "percentile_approx(unix_millis(storeTimestamp), 0.5)"
    )
    chosen: list[dict[str, Any]] = [
        {"tags": f"{NAMES.tags[0]} || nobody", "minPartitions": 5},
        {"keys": "key1", "onCorrupt": "skip"},
        {"startingTimestamp": moment.first()[0]},  # type: ignore[index]
        {"startingGroup": NAMES.push_group, "maxRecordsPerPartition": 50},
        {"startingOffsets": f'{{"{NAMES.topic}":{{"0":7,"1":-2}}}}', "endingOffsets": "latest"},
    ]
    found = set()
    for options in chosen:
        rows = [
            [(row.topic, row.queueId, row.queueOffset, row.msgId) for row in frame.collect()]
            for frame in (
                load(spark, f"{live.address}/{NAMES.topic}", **options),
                of_disk(spark, live, subscribe=NAMES.topic, **options),
            )
        ]
        assert sorted(rows[0]) == sorted(rows[1]), options
        found.add(len(rows[0]))
    assert len(found) == len(chosen)
    assert 0 not in found


def test_nothing_of_a_broker_changes_but_the_group_that_is_asked_for(
    spark: SparkSession, live: Live, tmp_path: Path
) -> None:
    before = live.state()
    path = f"{live.address}/{NAMES.topic},{NAMES.batch}"
    options = [{}, {"keys": "key1"}, {"tags": NAMES.tags[0]}, {"startingTimestamp": 1}]
    for more in options:
        load(spark, path, **more).collect()
    count = load(spark, path).count()
    assert len(follow(spark, path, tmp_path / "silent")) == count
    assert live.state() == before
    group = "CG_spark"
    assert len(follow(spark, path, tmp_path / "told", commitGroup=group)) == count
    groups, *ends_and_topics, offsets = live.state()
    told = {pair: at for pair, at in offsets[BROKER_NAME].items() if pair[1] == group}
    others = {pair: at for pair, at in offsets[BROKER_NAME].items() if pair[1] != group}
    assert {name: entry for name, entry in groups.items() if name != group} == before[0]
    assert ends_and_topics == list(before[1:-1])
    assert others == before[-1][BROKER_NAME]
    ends = {(q.topic, q.queue_id): q.high for q in live.bounds()}
    assert set(told) == {(NAMES.topic, group), (NAMES.batch, group)}
    assert {(t, q): at for (t, _), each in told.items() for q, at in each.items() if at} == {
        queue: high
        for queue, high in ends.items()
        if queue[0] in {NAMES.topic, NAMES.batch} and high
    }


def follow(spark: SparkSession, path: str, folder: Path, **options: Any) -> list[Any]:
    """Return the rows of a stream that reads all that is there."""
    seen: list[Any] = []

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend(batch.select("brokerName", *ORDER).collect())

    reader = spark.readStream.format("mqlog").options(startingOffsets="earliest", **options)
    writer = reader.load(path).writeStream.foreachBatch(keep)
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS)
    return seen


def credentials(who: Credentials, **more: str) -> dict[str, str]:
    keys = {"accessKey": who.access_key.reveal(), "secretKey": who.secret_key.reveal()}
    return {"retryTimeout": "0s", **keys, **more}


def test_who_may_read_reads_by_tls_and_others_are_told_what_to_set(
    spark: SparkSession, guard: Guarded, capfd: pytest.CaptureFixture[str]
) -> None:
    tls = {"tlsCaFile": str(FILES / "ca.pem")}
    secure, plain = (
        f"{scheme}://{guard.name_server}/{TOPIC}" for scheme in ("rocketmqs", "rocketmq")
    )
    for who in (READER, ADMIN):
        rows = load(spark, secure, **credentials(who), **tls).orderBy("queueOffset").collect()
        assert [bytes(row.body) for row in rows] == [b"body %d" % n for n in range(MESSAGES)]
    wrong = credentials(READER, secretKey="reader-secret-wrong")
    refused: list[tuple[str, dict[str, str], str]] = [
        (secure, {"retryTimeout": "0s", **tls}, "MQLOG_ACCESS_DENIED.*accessKey and secretKey"),
        (secure, wrong | tls, "MQLOG_ACCESS_DENIED.*accessKey and secretKey"),
        (secure, credentials(STRANGER) | tls, "MQLOG_ACCESS_DENIED.*accessKey and secretKey"),
        (secure, credentials(READER), "MQLOG_BROKER_UNAVAILABLE.*not trusted.*tlsCaFile"),
        (plain, credentials(READER), "MQLOG_BROKER_UNAVAILABLE.*set tls=true"),
    ]
    if not guard.version.startswith("4"):
        refused.append((secure, credentials(WITHOUT_GET) | tls, f"Topic:Get on {TOPIC}"))
    shown = []
    for path, options, words in refused:
        with pytest.raises(PySparkException, match=f"(?s){words}") as caught:
            load(spark, path, **options).collect()
        shown += [str(caught.value), repr(caught.value)]
    shown += capfd.readouterr()
    assert not [text for text in shown if "-secret-" in text]


@pytest.fixture
def second(
    cluster: Cluster, live: Live, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    """Another broker of the same cluster."""
    root = tmp_path_factory.mktemp("second-") / "broker" / "store"
    found = Live(cluster, root, {"brokerName": "broker-b"})
    try:
        yield found
    finally:
        found.close()
        live.broker.connect()


BROKERS = (BROKER_NAME, "broker-b")
TWO = "OfTwoBrokers"
QUEUES = 2
PIECE = 1_000


def grow(live: Live, brokers: tuple[str, ...] = BROKERS, count: int = PIECE) -> None:
    """Send 1 KiB messages to both queues of each broker."""
    for broker in brokers:
        for queue_id in range(QUEUES):
            send(live.cluster, broker, (TWO, queue_id), [os.urandom(1_024)] * count)


def by_queue(rows: list[Any]) -> dict[Queue, list[int]]:
    """Queue offsets in the order in which rows came, by broker and queueId."""
    found: dict[Queue, list[int]] = defaultdict(list)
    for row in rows:
        found[row.brokerName, row.queueId].append(row.queueOffset)
    return dict(found)


def test_a_batch_and_a_stream_of_two_brokers_go_on_where_a_killed_one_stopped(
    spark: SparkSession, live: Live, second: Live, tmp_path: Path
) -> None:
    for broker in BROKERS:
        create_topic(live.cluster, broker, TWO, QUEUES)
    grow(live)
    path = f"{live.address}/{TWO}"
    held, go_on = tmp_path / "held", tmp_path / "go on"
    held.mkdir()

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            deadline = time.monotonic() + SECONDS
            (held / str(os.getpid())).touch()
            while number == 0 and not go_on.exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield batch

    frame = load(spark, path, batchRows=32, minPartitions=2).select(
        "brokerName", "queueId", "queueOffset", "body"
    )
    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(frame.mapInArrow(hold, frame.schema).collect)
        wait_until(lambda: len(list(held.iterdir())) == 2 or rows.done())  # A task a broker.
        second.kill()
        go_on.touch()
        second.start()
        whole = {(b, q): list(range(PIECE)) for b in BROKERS for q in range(QUEUES)}
        assert by_queue(rows.result(SECONDS)) == whole

    batches: dict[int, list[Any]] = {}
    with stream(spark, path, batches, tmp_path) as count:
        wait_until(lambda: count() > PIECE)
        second.kill()
        grow(live, BROKERS[:1])
        second.start()
        grow(live)
        wait_until(lambda: count() > 6 * PIECE)
    with stream(spark, path, batches, tmp_path) as count:  # Restarted, within a batch.
        wait_until(lambda: count() >= 10 * PIECE)
    rows_of_all = [row for number in sorted(batches) for row in batches[number]]
    ends = {(b, q): PIECE * (3 if b == BROKER_NAME else 2) for b in BROKERS for q in range(QUEUES)}
    assert by_queue(rows_of_all) == {queue: list(range(end)) for queue, end in ends.items()}


@contextmanager
def stream(
    spark: SparkSession, path: str, batches: dict[int, list[Any]], folder: Path
) -> Iterator[Any]:
    """Follow the path, a batch after the other; gives what tells how many rows came so far."""

    def keep(batch: DataFrame, number: int) -> None:
        batches[number] = batch.select("brokerName", "queueId", "queueOffset").collect()

    reader = spark.readStream.format("mqlog").option("startingOffsets", "earliest")
    writer = reader.option("maxOffsetsPerTrigger", 1_500).load(path).writeStream.foreachBatch(keep)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()

    def count() -> int:
        error = query.exception()
        assert error is None, error
        return sum(map(len, list(batches.values())))

    try:
        yield count
    finally:
        query.stop()


def wait_until(is_so: Any) -> None:
    deadline, pause = time.monotonic() + SECONDS, threading.Event()
    while not is_so():
        assert time.monotonic() < deadline, "it never came"
        pause.wait(0.05)


def test_a_frozen_broker_is_a_named_error_in_time(spark: SparkSession, live: Live) -> None:
    impatient = {"requestTimeout": "500ms", "retryTimeout": "1s"}
    path = f"{live.address}/{NAMES.topic}"
    planned = load(spark, path, **impatient)
    os.kill(live.broker.pid, signal.SIGSTOP)
    try:
        before = time.monotonic()
        for read in (planned.collect, lambda: load(spark, path, **impatient)):
            with pytest.raises(PySparkException, match=r"UNAVAILABLE\.TIMEOUT.*requestTimeout"):
                read()
        assert time.monotonic() - before < 100
    finally:
        os.kill(live.broker.pid, signal.SIGCONT)
    assert planned.count() > 0
