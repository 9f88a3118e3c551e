"""When a broker deletes a message: by age and hour, by the room on its disk, and never."""

from dataclasses import replace
from datetime import UTC
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mqstore.read.retention import DiskUse, LogState, RetentionPolicy
from mqstore.verdicts.loss import Loss, Retention, StoredAt, loss_of
from mqstore.verdicts.rates import Drift

NOW = 1_800_000_000_000  # 08:00 UTC
HOUR = 3_600_000
FILE = 1_000
ALL_DAY = frozenset(range(24))
ANY_HOUR = RetentionPolicy(kept_ms=10 * HOUR, hours=ALL_DAY)
LOG = LogState(0, 50_000, FILE, 50_000, is_here=True)


def steady(per_ms: float) -> Drift:
    return Drift(per_ms, 1_000, 0.0, 2.0)


def broker(policy: RetentionPolicy = ANY_HOUR, log: LogState = LOG, **more: Any) -> Retention:
    values: dict[str, Any] = {"zone": UTC}
    return Retention(policy, log, **(values | more))


def told(message: StoredAt, of: Retention) -> Loss:
    found = loss_of(message, of, NOW)
    assert found is not None
    return found


def test_a_file_goes_when_it_has_expired_at_an_hour_of_the_broker_s_day() -> None:
    old = StoredAt(5_500, NOW - 9 * HOUR, NOW - 8 * HOUR)
    found = told(old, broker())
    assert (found.at_ms, found.by) == (NOW + 2 * HOUR, "TIME")
    assert found.earliest_ms == found.at_ms
    night = replace(ANY_HOUR, hours=frozenset({4}))
    assert told(old, broker(night)).at_ms == NOW + 20 * HOUR
    assert told(old, broker(replace(night, kept_ms=0))).at_ms == NOW + 20 * HOUR
    assert told(old, broker(replace(ANY_HOUR, kept_ms=0))).at_ms == NOW
    # Hours of a cluster are of a zone that is not known: a day holds them.
    far = told(old, broker(night, zone=None))
    assert far.earliest_ms == NOW + 2 * HOUR
    assert far.latest_ms == NOW + 2 * HOUR + 23 * HOUR


def test_a_disk_that_is_fuller_than_its_ratio_deletes_what_expired_at_any_hour() -> None:
    night = replace(ANY_HOUR, hours=frozenset({4}))
    message = StoredAt(5_500, NOW - 9 * HOUR, NOW - 8 * HOUR)
    full = replace(LOG, disk=DiskUse(1_000_000, 760_000))
    assert told(message, broker(night, full)).at_ms == NOW + 2 * HOUR
    fills = replace(LOG, disk=DiskUse(1_000_000, 740_000))
    grows = steady(10_000 / (5 * HOUR))
    assert told(message, broker(night, fills, disk_drift=grows)).at_ms == NOW + 5 * HOUR
    assert told(message, broker(night, fills)).at_ms == NOW + 20 * HOUR


def test_a_disk_that_fills_deletes_ten_files_at_a_time_the_first_ones() -> None:
    disk = replace(LOG, disk=DiskUse(1_000_000, 840_000))
    grows = broker(log=disk, log_drift=steady(1.0))

    def ahead(physical_offset: int) -> int:
        found = told(StoredAt(physical_offset, NOW, NOW), grows)
        assert found.by == "DISK"
        return found.at_ms - NOW

    assert [ahead(at) for at in (0, 9_999, 10_000, 25_000)] == [10_000, 10_000, 20_000, 30_000]
    # The file that is written is never deleted: a next one must be there first.
    assert ahead(50_000) >= 60_000
    never = replace(ANY_HOUR, forced_above=None)
    assert told(StoredAt(0, NOW, NOW), broker(never, disk, log_drift=steady(1.0))).by == "TIME"
    # Rates are not known.
    assert told(StoredAt(0, NOW, NOW), broker(log=disk)).by == "TIME"


def test_a_disk_that_is_full_deletes_ten_files_every_ten_seconds() -> None:
    full = broker(log=replace(LOG, disk=DiskUse(1_000_000, 900_000)))
    found = [told(StoredAt(at, NOW, NOW), full).at_ms - NOW for at in (0, 10_000, 20_000)]
    assert found == [10_000, 20_000, 30_000]


def test_of_the_file_that_is_written_it_is_foreseen_when_it_is_full() -> None:
    last = StoredAt(50_100, NOW - 1_000)
    assert loss_of(last, broker(), NOW) is None
    cluster = LogState(0, 50_400, FILE, 50_000)
    found = told(last, broker(log=cluster, log_drift=steady(0.001), zone=None))
    assert found.at_ms == NOW + 600_000 + 10 * HOUR
    # A full file whose time is not told was full when that many bytes more had come, or later.
    before = StoredAt(49_000, NOW - HOUR)
    found = told(before, broker(log=cluster, log_drift=steady(0.001), zone=None))
    assert found.at_ms == NOW - HOUR + 1_000_000 + 10 * HOUR
    unknown = told(before, broker(log=cluster, zone=None))
    assert (unknown.at_ms, unknown.earliest_ms) == (NOW + 9 * HOUR, NOW + 9 * HOUR)
    assert unknown.latest_ms == NOW + 10 * HOUR


def test_settings_are_the_broker_s_with_its_defaults_and_bounds() -> None:
    assert RetentionPolicy.of({}) == RetentionPolicy()
    assert RetentionPolicy().kept_ms == 72 * HOUR
    found = RetentionPolicy.of({
        "fileReservedTime": "48",
        "deleteWhen": "04;05; 6;99;x",
        "diskMaxUsedSpaceRatio": "5",
        "diskSpaceCleanForciblyRatio": "95",
    })  # fmt: skip
    assert found == RetentionPolicy(48 * HOUR, frozenset({4, 5}), 0.10, 0.85)
    assert RetentionPolicy.of({"cleanFileForciblyEnable": "false"}).forced_above is None


@given(
    message=st.builds(
        StoredAt,
        st.integers(0, 60_000),
        st.integers(-(2**62), NOW),
        st.none() | st.integers(-(2**62), 2**62),
    ),
    kept=st.integers(0, 10**9),
    used=st.integers(0, 10**6),
    rate=st.none() | st.floats(0, 1e6),
    zone=st.sampled_from([None, UTC]),
)
def test_whatever_a_place_tells_the_times_are_in_order(
    message: StoredAt, kept: int, used: int, rate: float | None, zone: Any
) -> None:
    log = replace(LOG, disk=DiskUse(10**6, used))
    policy = RetentionPolicy(kept * HOUR, frozenset({4}))
    of = Retention(policy, log, None if rate is None else steady(rate), zone=zone)
    found = loss_of(message, of, NOW)
    if found is not None:
        assert NOW <= found.earliest_ms <= found.at_ms
        assert found.latest_ms is None or found.latest_ms >= found.earliest_ms
