"""A disk that is full while mqlog record writes: no sample is lost, and the next one is whole."""

import errno
import shutil
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from crash.disk import standing_in
from crash.faults import Faulty
from mqstore.errors import NoSpaceError
from mqstore.tables import samples
from mqstore.tables.samples import SAMPLE_SCHEMA, Recording, read_samples
from support import soak

FIRST_MS = 1_700_000_000_000
SINGLE = 4
"""So many files of one sample become one: the last sample that is added here makes them so."""


def sample(number: int) -> pa.Table:
    at = datetime.fromtimestamp((FIRST_MS + number) / 1000, UTC)
    row = (at, "broker-a", "g", "T", 0, 0, 10 * number, number, 9 * number, None, None, None)
    arrays = [pa.array([one], of.type) for one, of in zip(row, SAMPLE_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SAMPLE_SCHEMA)


def add(folder: Path, number: int) -> None:
    with closing(Recording(str(folder), 1 << 30)) as recording:
        recording.add(sample(number), FIRST_MS + number)


def offsets_in(folder: Path) -> list[int]:
    found = read_samples(str(folder), (0, 2 * FIRST_MS), 1000, lambda _: True)
    return [row for table in found for row in table["consumerOffset"].to_pylist()]


@pytest.mark.soak
def test_a_full_disk_at_any_call_of_record_costs_no_sample_and_the_next_try_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "_MOST_SINGLE", SINGLE)
    ready = tmp_path / "ready"
    for number in range(SINGLE - 1):
        add(ready, number)
    before = list(range(SINGLE - 1))

    def run(folder: Path, k: int) -> tuple[Faulty, bool]:
        shutil.copytree(ready, folder)
        faulty, failed = Faulty(folder, at=k, error=errno.ENOSPC), False
        with standing_in(faulty):
            try:
                add(folder, SINGLE - 1)
            except (NoSpaceError, OSError) as error:
                failed = "No space left" in str(error)
        return faulty, failed

    every = run(tmp_path / "once", -1)[0].calls
    failures = 0
    for k in soak.sample(range(every), check=2, test=12):
        folder = tmp_path / f"full-{k}"
        _, failed = run(folder, k)
        failures += failed
        found = offsets_in(folder)
        assert found in (before, [*before, SINGLE - 1])
        assert failed or found == [*before, SINGLE - 1]
        if found == before:
            add(folder, SINGLE - 1)
        add(folder, SINGLE)
        assert offsets_in(folder) == list(range(SINGLE + 1))
        assert not (folder / ".samples.new").exists()
    assert failures
    soak.tell(f"record: {every} calls, {failures} failed")
