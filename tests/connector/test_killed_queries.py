"""A query that writes a store and one that follows it, both killed with -9 again and again.

Each goes on from its checkpoint. In the end every row is in the store once, in the order of its
queue, and once in what the other copied.

The size stream_kills says how often one of them is killed, the seed at which moments.
"""

import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector import chaotic
from mqstore.check import check
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.txn import intent, ledger
from support import soak
from support.contract import assert_contract
from support.victim import Victim, begun, done
from support.writing import held

pytestmark = [pytest.mark.spark, pytest.mark.soak]
KILLS = soak.size("stream_kills", check=0, test=2, whole=40)
SEED = soak.SEED
# Queries that do not wait are busy all the time that the other takes to start again.
EVERY_S, KILLED_WITHIN_S = (0, 2.0) if soak.WHOLE else (2, 0.5)
LAST_S = 300
INDEX = (int(chaotic.STORE["maxHashSlotNum"]), int(chaotic.STORE["maxIndexNum"]))


class Query(Victim):
    """One of the two."""

    def __init__(self, what: str, store: Path, target: Path) -> None:
        command = [sys.executable, chaotic.__file__, what, store, target, EVERY_S]
        super().__init__(command, target.with_name(f"{what}.log"))
        self.target = target
        self._before = 0

    def start(self) -> None:
        self._before = done(self.target)
        super().start()

    def until_it_works(self) -> None:
        self.until(lambda: done(self.target) > self._before)

    def until_a_batch_begins(self) -> None:
        """Wait until a batch is planned that is not done."""
        self.until(lambda: begun(self.target) > done(self.target))


def test_two_queries_that_are_killed_again_and_again_lose_and_repeat_nothing(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "broker-a" / "store"
    writer = Query("write", store, tmp_path / "writer")
    tail = Query("tail", store, tmp_path / "tail")
    began = time.monotonic()
    try:
        writer.start()
        writer.until_it_works()
        tail.start()
        states = _kill_both(writer, tail, store)
    finally:
        writer.kill()
        tail.kill()
    last = chaotic.written(spark, str(writer.target)).trigger(availableNow=True).start(str(store))
    assert last.awaitTermination(LAST_S)
    copied = chaotic.tailed(spark, str(store), str(tail.target)).trigger(availableNow=True).start()
    assert copied.awaitTermination(LAST_S)
    count = _judge(store, done(writer.target))
    rows = spark.read.parquet(str(tail.target / "rows")).collect()
    assert sorted((r.queueId, r.queueOffset, int(r.body)) for r in rows) == sorted(
        (number % 2, number // 2, number) for number in range(count)
    ), f"{soak.header()}"
    with capsys.disabled():
        if soak.WHOLE:
            took = time.monotonic() - began
            told = f"{KILLS} kills in {took:.0f} s, {count} rows once: {dict(states)}"
            sys.stdout.write(f"\n{told}\n")


def _kill_both(writer: Query, tail: Query, store: Path) -> Counter[str]:
    """Kill one and the other; return what a kill of the writer met."""
    moments = random.Random(SEED)
    met: Counter[str] = Counter()
    # In turn, more or less: while one starts again the other works, until it is killed.
    pairs = [moments.sample((writer, tail), 2) for _ in range(-(-KILLS // 2))]
    for victim in [victim for pair in pairs for victim in pair][:KILLS]:
        victim.until_it_works()
        if not soak.WHOLE:
            victim.until_a_batch_begins()
        victim.pause(moments.uniform(0, KILLED_WITHIN_S))
        victim.kill()
        if victim is writer:
            found = intent.load(StoreDir.at(store))
            met[found.state if found else "no commit"] += 1
        victim.start()
    for query in (writer, tail):
        query.until_it_works()
    return met


def _judge(store: Path, batches: int) -> int:
    """Check the store, and that it has every number of the batches once; return how many."""
    count = batches * chaotic.ROWS
    messages = assert_contract(store, index=INDEX)
    for queue_id in (0, 1):
        found = [int(m.body) for m in messages if m.queue_id == queue_id]
        assert found == list(range(queue_id, count, 2)), f"queue {queue_id}; {soak.header()}"
    assert len(held(store)) == count
    assert [finding for finding in check(store) if finding.severity == "error"] == []
    versions = [entry.version for entry in ledger.entries(StoreDir.at(store))]
    assert versions == list(range(batches))[-len(versions) :]
    # One that is killed before it says whose its folder is leaves it for a day.
    assert list((store / ".mqlog" / "staging").glob("*/OWNER")) == []
    return count
