"""An archive that is killed with -9 at any moment while messages are stored, and started again.

Each message is in the table once. The size archive_kills says how often it is killed, the seed
at which moments. A second archive of one checkpoint is refused while the first goes on.
"""

import random
import re
import sys
import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import mqlog
from matrix import lakes
from matrix.lake_steps import ID, Id
from mqlog_jobs.spark.lake.packages import PACKAGES
from support import soak
from support.victim import LATE_S, Victim, begun, done

pytestmark = [pytest.mark.spark, pytest.mark.soak]
KILLS = soak.size("archive_kills", check=0, test=2, whole=100)
SEED = soak.SEED
KILLED_WITHIN_S = 2.0
APPENDED = 20
TOPICS = ("ORDERS", "RETURNS")


class Archive:
    """A store that grows, and the archive of it on the oldest Spark that its format fits."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.line = min(PACKAGES[kind].tried)
        self.store = folder / "broker-a" / "store"
        self.target = folder / "lake" / "messages"
        self.progress = folder / "lake" / "progress"
        self._folder = folder
        self._starts = 0
        self._jars = lakes.jars(kind, self.line)
        self._count = 0

    def started(self, trigger: str = "1ms") -> Victim:
        """Start an archive."""
        places = ("--from", self.store, "--to", f"{self.kind}:{self.target}")
        checkpoint = ("--checkpoint", self.progress / "checkpoint")
        arguments = (*places, *checkpoint, "--trigger", trigger)
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
            victim.until(lambda now=before: begun(self.progress) > now, 0.05)

    def judge(self) -> None:
        """Compare what the table has with what the store has."""
        stored = mqlog.open(self.store).scan(columns=list(ID)).to_table()
        wanted = sorted(zip(*(stored[name].to_pylist() for name in ID), strict=True))
        assert len(wanted) == self._count
        assert self._archived() == wanted, soak.header()

    def _archived(self) -> list[Id]:
        told = lakes.run_steps(self.kind, self.line, self.target, "ids", seconds=LATE_S)
        rows = (line.split() for line in told.splitlines())
        return [(topic, int(queue), int(offset), own) for topic, queue, offset, own in rows]


@pytest.fixture(params=["delta", "iceberg"])
def archive(request: pytest.FixtureRequest, on_disk: Path) -> Archive:
    made = Archive(request.param, on_disk)
    made.append()
    return made


def test_an_archive_that_is_killed_again_and_again_has_each_message_once(
    archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = random.Random(f"{SEED} {archive.kind}")
    began, unfinished = time.monotonic(), 0
    for _ in range(KILLS):
        wanted = begun(archive.progress) + moments.randint(1, 2)
        with closing(archive.started()) as victim:
            archive.wait(victim, wanted)
            victim.pause(moments.uniform(0, KILLED_WITHIN_S))
        unfinished += begun(archive.progress) > done(archive.progress)
    last = archive.started("availableNow")
    assert last.end() == 0, last.told()
    archive.judge()
    with capsys.disabled():
        told = f"{archive.kind}: {KILLS} kills in {time.monotonic() - began:.0f} s, "
        sys.stdout.write(f"{told}{unfinished} of them in a micro-batch; each message once\n")


@pytest.mark.parametrize("archive", ["iceberg"], indirect=True)
def test_a_second_archive_of_one_checkpoint_is_refused(archive: Archive) -> None:
    with closing(archive.started()) as first:
        archive.wait(first, 2)
        second = archive.started("availableNow")
        assert second.end() == 2, second.told()
        assert re.search(r"--checkpoint=.*another archive works with it", second.told())
        archive.wait(first, begun(archive.progress) + 1)
    last = archive.started("availableNow")
    assert last.end() == 0, last.told()
    archive.judge()
