"""Groups of real brokers that drain a backlog: etaZero says when, within its spread.

Producers and consumers follow plans, in which is the chance of single messages, and make up for
what they are late. So the rates stay what they are on any machine, and what a loaded one changes
is told apart: where a look is of an older moment than the spread allows for, the run has no
verdict; where the end is not as planned, any time from the planned to the measured one is true.
"""

import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from broker.harness import Cluster
from broker.test_forecast_of_loss import record
from broker.test_why import table
from mqstore.tables import forecast, looks
from mqstore.verdicts import rates
from support import soak

pytestmark = [pytest.mark.broker, pytest.mark.soak]
RUNS = soak.size("forecasts_of_zero", check=1, test=2, whole=20)
OLD_MS = rates.COMMIT_MS if soak.WHOLE else 500
"""Half of how old a committed offset may be; smaller where less time is to pass."""
COMMIT_MS = rates.COMMIT_MS if soak.WHOLE else 200
"""So often consumers commit."""
LOOKS, EVERY_MS, AHEAD_MS = (20, 4_700, 30_000) if soak.WHOLE else (10, 570, 3_000)
TOPIC = "Zero"
GROUPS = "/CG_Z[0-9]+/"
TIMES = ("etaZero", "etaZeroEarliest", "etaZeroLatest")


@dataclass(frozen=True, slots=True)
class Run:
    """A group, and the messages of its backlog.

    And when it commits first, others are stored, and all are consumed (ms).
    """

    queue_id: int
    backlog: int
    commits: int
    stored: list[int]
    consumed: list[int]

    @classmethod
    def drawn(cls, number: int) -> "Run":
        rng = random.Random(f"{soak.SEED}:{number}")
        stored = 5 * 8 ** rng.random()  # A second.
        consumed = stored * rng.uniform(2, 4)
        over_ms = LOOKS * EVERY_MS + AHEAD_MS * rng.uniform(1, 2)
        backlog = round((consumed - stored) * over_ms / 1_000)
        most_ms = 3 * over_ms
        return cls(
            number,
            backlog,
            rng.randrange(COMMIT_MS),
            list(drawn_times(rng, stored, most_ms)),
            list(drawn_times(rng, consumed, most_ms)),
        )

    @property
    def plan(self) -> tuple[object, ...]:
        times = (",".join(map(str, every)) for every in (self.stored, self.consumed))
        return TOPIC, self.queue_id, self.group, self.backlog, self.commits, *times

    @property
    def group(self) -> str:
        return f"CG_Z{self.queue_id}"

    def is_of(self, row: dict[str, Any]) -> bool:
        return (row["group"], row["queueId"]) == (self.group, self.queue_id)

    @property
    def zero_ms(self) -> int:
        """When nothing waits, by the plan."""
        return next(
            at for done, at in enumerate(self.consumed, 1)
            if done == self.backlog + bisect_right(self.stored, at)
        )  # fmt: skip

    def is_held(self, at_ms: int, row: dict[str, Any]) -> bool:
        """Tell whether a look is of the plan, and no older than the spread allows for."""
        since_ms = at_ms - 2 * OLD_MS
        offsets = bisect_right(self.consumed, since_ms), bisect_right(self.consumed, at_ms)
        ends = tuple(self.backlog + bisect_right(self.stored, ms) for ms in (since_ms, at_ms))
        return (
            ends[0] - offsets[1] <= row["lag"] <= ends[1] - offsets[0]
            and offsets[0] <= row.get("consumerOffset", offsets[0]) <= offsets[1]
            and ends[0] <= row.get("brokerOffset", ends[0]) <= ends[1]
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was foreseen of a run, and when nothing waited: by the plan, and as measured (ms)."""

    at_ms: int
    eta_ms: int | None
    earliest_ms: int | None
    latest_ms: int | None
    planned_ms: int
    measured_ms: int

    @classmethod
    def of(cls, row: dict[str, Any], begin_ms: int, planned_ms: int, measured_ms: int) -> "Outcome":
        times = (None if row[name] is None else row[name] // 1_000 - begin_ms for name in TIMES)
        return cls(row["asOf"] // 1_000 - begin_ms, *times, planned_ms, measured_ms)

    @property
    def is_within(self) -> bool:
        return (
            self.eta_ms is not None
            and self.earliest_ms is not None
            and self.earliest_ms <= max(self.planned_ms, self.measured_ms)
            and (self.latest_ms is None or min(self.planned_ms, self.measured_ms) <= self.latest_ms)
        )

    def __str__(self) -> str:
        names = ("eta_ms", "earliest_ms", "latest_ms", "planned_ms", "measured_ms")
        ahead = {name.removesuffix("_ms"): getattr(self, name) for name in names}
        return ", ".join(
            f"{name} {'never' if ms is None else f'{(ms - self.at_ms) / 1_000:.1f} s'}"
            for name, ms in ahead.items()
        )


def drawn_times(rng: random.Random, a_second: float, most_ms: float) -> Iterator[int]:
    at = 0.0
    while at < most_ms:
        at += rng.expovariate(a_second / 1_000)
        yield round(at)


def test_nothing_waits_when_the_forecast_says_within_its_spread(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (looks, forecast):
        monkeypatch.setattr(module, "COMMIT_MS", OLD_MS)
    samples, every = tmp_path / "samples.parquet", ("--every", f"{EVERY_MS}ms")
    runs = [Run.drawn(number) for number in range(RUNS)]
    with cluster.broker(tmp_path / "store") as broker:
        place = f"rocketmq://{cluster.name_server}"
        where, queues = ("-n", cluster.name_server, "-b", broker.address), str(RUNS)
        broker.mqadmin("updateTopic", *where, "-t", TOPIC, "-r", queues, "-w", queues)
        begin_ms = broker.pace([run.plan for run in runs], COMMIT_MS)
        try:
            record(place, samples, monkeypatch, *every, "-g", GROUPS, count=LOOKS)
            found = table(place, "forecast", samples=str(samples), groups=GROUPS)
        finally:
            zeros = broker.paced()
        left = table(place, "backlog", groups=GROUPS)
    assert [row["lag"] for run in runs for row in left if run.is_of(row)] == [0] * RUNS
    looked = pq.read_table(samples).to_pylist()
    judged: list[Outcome] = []
    for run in runs:
        (row,) = filter(run.is_of, found)
        zero_ms = zeros[run.group] - begin_ms
        outcome = Outcome.of(row, begin_ms, run.zero_ms, zero_ms)
        is_held = outcome.at_ms < zero_ms and run.is_held(outcome.at_ms, row)
        for one in filter(run.is_of, looked):
            is_held &= run.is_held(round(one["asOf"].timestamp() * 1_000) - begin_ms, one)
        told = outcome if is_held else "no verdict: the machine did not keep its rates"
        soak.tell(f"{cluster.version} {run.group}: {told}")
        judged += [outcome] if is_held else []
    if not judged:
        pytest.skip("the machine did not keep the rates of any run")
    missed = [one for one in judged if not one.is_within]
    soak.tell(f"{cluster.version}: {len(judged) - len(missed)} of {len(judged)} within the spread")
    assert len(missed) <= len(judged) // 20
