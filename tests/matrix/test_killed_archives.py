"""An archive that is killed with -9 at any moment while messages are stored, and started again.

Each message is in the table once. The size archive_kills says how often it is killed, the seed
at which moments. A second archive of one checkpoint is refused while the first goes on, by the
job's hold of the checkpoint, and past that by the rules of Spark and of the table.
"""

import random
import re
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import mqlog
from matrix import lakes
from matrix.environments import LINES
from matrix.lake_steps import ID, Id
from mqlog_jobs.spark.lake.packages import PACKAGES
from support import soak
from support.victim import LATE_S, Victim, begun, done

pytestmark = [pytest.mark.spark, pytest.mark.soak]
KILLS = soak.size("archive_kills", check=0, test=2, whole=100)
SEED = soak.SEED
JUDGED_EACH = 10
KILLED_WITHIN_S = 1.0
LOOK_S = 0.02
APPENDED = 20
TOPICS = ("ORDERS", "RETURNS")
REST = ("iceberg", "parquet")
LOG_OF = {"delta": "_delta_log/*.json", "iceberg": "metadata/v*.metadata.json"}
"""The files that each transaction of a table adds."""


class Archive:
    """A store that grows, and the archive of it on the oldest Spark that its format fits."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.line = min(PACKAGES[kind].tried) if kind in PACKAGES else LINES[0]
        self.store = folder / "broker-a" / "store"
        self.target = folder / "lake" / "messages"
        self.progress = folder / "lake" / "progress"
        self._folder = folder
        self._starts = 0
        self._jars = lakes.jars(kind, self.line) if kind in PACKAGES else ""
        self._count = 0

    @property
    def checkpoint(self) -> Path:
        """The directory of the progress."""
        return self.progress / "checkpoint"

    def started(self, trigger: str = "1ms") -> Victim:
        """Start an archive."""
        places = ("--from", self.store, "--to", f"{self.kind}:{self.target}")
        arguments = (*places, "--checkpoint", self.checkpoint, "--trigger", trigger)
        command, variables = lakes.submitted(self.line, self._jars, *arguments)
        self._starts += 1
        log = self._folder / f"archive-{self._starts}.log"
        victim = Victim(command, log, variables)
        victim.start()
        return victim

    def append(self) -> None:
        """Store some messages more, as a broker does meanwhile."""
        topic = TOPICS[self._count // APPENDED % len(TOPICS)]
        rows = pa.table({"body": [b"%d" % (self._count + i) for i in range(APPENDED)]})
        mqlog.write(rows, self.store, topic=topic, create_store=True, queue_nums=2)
        self._count += APPENDED

    def wait(self, victim: Victim, wanted: int) -> None:
        """Store messages until so many micro-batches are begun."""
        while (before := begun(self.progress)) < wanted:
            self.append()
            victim.until(lambda now=before: begun(self.progress) > now, LOOK_S)

    def until_more(self, victim: Victim, pattern: str) -> None:
        """Wait until the table has more files of that pattern."""
        before = self._files(pattern)
        victim.until(lambda: self._files(pattern) > before, LOOK_S)

    def stop_in_micro_batch(self, victim: Victim) -> None:
        """Stop an archive in the middle of a micro-batch, until it gets SIGCONT."""
        stopped = False
        while not stopped:
            self.append()
            victim.until(lambda: begun(self.progress) > done(self.progress))
            victim.send(signal.SIGSTOP)
            stopped = begun(self.progress) > done(self.progress)
            if not stopped:
                victim.send(signal.SIGCONT)

    def lose_the_lock(self) -> None:
        """Let the archive that is stopped hold another directory, as on another host."""
        aside = self.checkpoint.rename(self.progress / "aside")
        self.checkpoint.mkdir()
        for path in aside.iterdir():
            path.rename(self.checkpoint / path.name)
        aside.rmdir()

    def _files(self, pattern: str) -> int:
        return sum(1 for _ in self.target.glob(pattern))

    def judge(self) -> None:
        """Archive the rest, audit the table, and compare its rows with what the store has."""
        more = ("judged", self.store, self.checkpoint)
        told = lakes.run_steps(self.kind, self.line, self.target, *more, seconds=LATE_S)
        *_, audited = (line for line in told.splitlines() if ": the same " in line)
        assert f": the same {self._count:,} messages, " in audited, soak.header()
        stored = mqlog.open(self.store).scan(columns=list(ID)).to_table()
        wanted = sorted(zip(*(stored[name].to_pylist() for name in ID), strict=True))
        assert len(wanted) == self._count
        assert _ids(told.partition(audited)[2]) == wanted, soak.header()


def _ids(text: str) -> list[Id]:
    rows = (line.split() for line in text.split("\n")[1:-1])
    return [(topic, int(queue), int(offset), own) for topic, queue, offset, own in rows]


@pytest.fixture(params=["delta", "iceberg"])
def archive(request: pytest.FixtureRequest, on_disk: Path) -> Archive:
    made = Archive(request.param, on_disk)
    made.append()
    return made


def test_an_archive_that_is_killed_again_and_again_has_each_message_once(
    archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once a micro-batch has begun, or wrote a file, or is in the table: soon after that."""
    moments = random.Random(f"{SEED} {archive.kind}")
    began, unfinished = time.monotonic(), 0
    for kill in range(1, KILLS + 1):
        wanted = begun(archive.progress) + 1
        with closing(archive.started()) as victim:
            archive.wait(victim, wanted)
            sign = moments.choice(("", "**/*.parquet", LOG_OF[archive.kind]))
            if sign:
                archive.until_more(victim, sign)
            victim.pause(moments.uniform(0, KILLED_WITHIN_S))
        unfinished += begun(archive.progress) > done(archive.progress)
        if kill % JUDGED_EACH and kill < KILLS:
            continue
        archive.judge()
        with capsys.disabled():
            told = f"{archive.kind}: {kill} kills in {time.monotonic() - began:.0f} s, "
            sys.stdout.write(f"{told}{unfinished} of them in a micro-batch; each message once\n")
            sys.stdout.flush()


@pytest.mark.parametrize("archive", ["iceberg"], indirect=True)
def test_a_second_archive_of_one_checkpoint_is_refused(archive: Archive) -> None:
    with closing(archive.started()) as first:
        archive.wait(first, 2)
        second = archive.started("availableNow")
        assert second.end() == 2, second.told()
        assert re.search(r"--checkpoint=.*another archive works with it", second.told())
        archive.wait(first, begun(archive.progress) + 1)
    archive.judge()


@pytest.mark.parametrize(
    "archive", ["delta", *(pytest.param(k, marks=soak.only_whole) for k in REST)], indirect=True
)
def test_past_the_lock_the_second_to_end_a_micro_batch_is_refused(archive: Archive) -> None:
    """As of two hosts. Both work on one micro-batch; what the refused one wrote does not count."""
    with closing(archive.started()) as first:
        archive.wait(first, 2)
        archive.stop_in_micro_batch(first)
        archive.lose_the_lock()
        with closing(archive.started()) as second:
            both = begun(archive.progress)
            archive.wait(second, both + 1)
            second.until(lambda: done(archive.progress) > both)
            first.send(signal.SIGCONT)
            assert first.end() == 2, first.told()
            assert re.search(r"--checkpoint=.*another archive works with it", first.told())
            archive.wait(second, begun(archive.progress) + 1)
    archive.judge()
