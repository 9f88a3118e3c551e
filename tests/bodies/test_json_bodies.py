"""Bodies of JSON as columns, beside a decoder of the test's own, row by row."""

import json
import math
import random
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from bodies.odd import ANY_TEXT, DDL, GOOD, ODD, UnjudgedError, good, mutated, reference
from mqstore.bodies.ddl import parse_ddl
from mqstore.bodies.decoded import DecodedBodies
from mqstore.bodies.json_bodies import JsonBodies
from mqstore.bodies.json_values import JsonValues
from mqstore.bodies.times import Times
from support import soak

KIND = parse_ddl(DDL)
BODIES = soak.size("mutated_bodies", check=400, test=2_000, whole=200_000)
MANY = 5_000
UTC = Times("UTC", "s")


def decoded(bodies: list[bytes], ddl: str = DDL, times: Times = UTC) -> DecodedBodies:
    found = JsonBodies(parse_ddl(ddl), times).decode(pa.array(bodies, pa.binary()))
    found.values.validate(full=True)
    assert len(found.values) == len(bodies)
    return found


def one(body: bytes, ddl: str, times: Times = UTC) -> tuple[Any, str | None]:
    """The value of the only field, and the reason, between two good neighbours."""
    found = decoded([GOOD, body, GOOD], ddl, times)
    assert not {0, 2} & found.reasons.keys() or "i BIGINT" not in ddl
    value = found.values[1].as_py()
    return (None if value is None else next(iter(value.values()))), found.reasons.get(1)


def same(given: Any, right: Any) -> bool:
    """Whether two values are equal, NaN to NaN, and the text of an object to its value."""
    if isinstance(right, str) and right.startswith(ANY_TEXT) and isinstance(given, str):
        written = json.loads(given, parse_int=str, parse_float=str, parse_constant=str)
        return bool(written == json.loads(right.removeprefix(ANY_TEXT)))
    if isinstance(right, dict) and isinstance(given, dict):
        return given.keys() == right.keys() and all(same(given[k], right[k]) for k in right)
    if isinstance(right, float) and math.isnan(right):
        return isinstance(given, float) and math.isnan(given)
    return bool(given == right)


def wrong_rows(bodies: list[bytes], found: DecodedBodies) -> list[tuple[bytes, Any, Any]]:
    wrong = []
    for row, body in enumerate(bodies):
        try:
            right, is_bad = reference(body)
        except UnjudgedError:
            continue
        given = found.values[row].as_py()
        if (row in found.reasons) != is_bad or not same(given, right):
            wrong.append((body, given, (right, is_bad, found.reasons.get(row))))
    return wrong


@pytest.mark.parametrize("name", list(ODD))
def test_an_odd_body_is_read_as_an_exact_decoder_reads_it_and_no_neighbour_changes(
    name: str,
) -> None:
    bodies = [GOOD, ODD[name], GOOD, *([GOOD] * 20), ODD[name], GOOD]
    found = decoded(bodies)
    assert wrong_rows(bodies, found) == []
    assert found.values[0].as_py()["i"] == found.values[len(bodies) - 1].as_py()["i"] == 1


def test_all_odd_bodies_together_are_read_as_one_by_one() -> None:
    bodies = [body for odd in ODD.values() for body in (odd, GOOD)]
    assert wrong_rows(bodies, decoded(bodies)) == []


@pytest.mark.soak
@pytest.mark.parametrize("share", [0.02, 0.5])
def test_mutated_bodies_are_read_as_an_exact_decoder_reads_them(share: float) -> None:
    rng = random.Random(f"{soak.SEED} {share}")
    decoder = JsonBodies(KIND, UTC)
    number, wrong = 0, []
    while number < BODIES:
        some = rng.choice([1, 2, 7, 60, 700])
        bodies = [good(rng, number + place) for place in range(some)]
        bodies = [mutated(rng, body) if rng.random() < share else body for body in bodies]
        # Apostrophes make the slow way look for single quotes, which json does not know.
        bodies = [body for body in bodies if b"'" not in body]
        wrong += wrong_rows(bodies, decoder.decode(pa.array(bodies, pa.binary())))
        number += some
    assert wrong[:5] == []


@pytest.mark.parametrize(
    "kind",
    [
        lambda n: ODD["int as text"],
        lambda n: b'{"i": %d}' % (10**19 + n),
        lambda n: b'{"n": %d.5}' % n,
        lambda n: b'{"m": "%d.1"}' % (10**20 + n),
        lambda n: b'{"day": "2026-13-%02d"}' % (n % 28),
        lambda n: good(random.Random(n), n)[:-9],
        lambda n: ODD["a key twice"],
        lambda n: list(ODD.values())[n % len(ODD)],
    ],
    ids=["text", "large", "fraction", "decimal", "date", "cut", "twice", "all"],
)
@pytest.mark.parametrize("more", [b"", b', "unknown": 1}'], ids=["", "with a field more"])
def test_one_odd_body_in_a_hundred_leaves_the_others_to_the_fast_way(
    kind: Callable[[int], bytes], more: bytes
) -> None:
    rng = random.Random(1)
    decoder = JsonBodies(KIND, UTC)
    asked: list[bytes] = []
    slow = JsonValues(KIND, UTC)
    decoder._slow.read = lambda body: (asked.append(body), slow.read(body))[1]  # type: ignore[method-assign, func-returns-value]
    bodies = [good(rng, 61 * number + 1) for number in range(MANY)]
    bodies = [body[:-1] + more if more else body for body in bodies]
    for place in range(50, MANY, 100):
        bodies[place] = kind(place)
    found = decoder.decode(pa.array(bodies, pa.binary()))
    assert len(asked) < MANY // 100 * 4
    near = [row for row in range(MANY) if row % 100 in {49, 50, 51}]
    reasons = {n: found.reasons[row] for n, row in enumerate(near) if row in found.reasons}
    values = found.values.take(pa.array(near))
    assert wrong_rows([bodies[row] for row in near], DecodedBodies(values, reasons)) == []
    assert set(found.reasons) <= set(near)


def test_a_topic_whose_times_are_numbers_is_read_by_the_fast_way() -> None:
    decoder = JsonBodies(parse_ddl("t TIMESTAMP"), Times("UTC", "ms"))
    decoder._slow.read = None  # type: ignore[method-assign, assignment]
    bodies = [b'{"t": %d}' % (1_700_000_000_123 + n) for n in range(100)]
    found = decoder.decode(pa.array(bodies, pa.binary()))
    assert found.values.field("t").cast(pa.int64())[1].as_py() == 1_700_000_000_124_000


@pytest.mark.parametrize(
    ("body", "value", "reason"),
    [
        (b"{'i': 1, \"j\": 'it\\'s \"x\"'}", 1, None),
        (b"null", None, "NOT_AN_OBJECT: null"),
        (b"[1]", None, "NOT_AN_OBJECT: a list"),
        (b'{"i": "7"}', None, 'CANNOT_PARSE_VALUE at i: "7" is no BIGINT'),
        (b'{"i": 1} x', None, "MALFORMED_JSON: Extra data: line 1 column 10 (char 9)"),
        (b'{"i": "\xff"}', None, "INVALID_ENCODING: byte 7 is no UTF-8"),
        (b'{"zz": ' + b"[" * 100_000, None, "MALFORMED_JSON: nested too deeply"),
    ],
)
def test_the_reason_names_condition_place_and_value(
    body: bytes, value: object, reason: str | None
) -> None:
    assert one(body, "i BIGINT") == (value, reason)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"s": 1.50}', "1.50"),
        (b'{"s": 1E5}', "1E5"),
        (b'{"s": {"b" : [1, 2.0]}, "x": 1}', '{"b" : [1, 2.0]}'),
        (b'{"x": {"s": 3}, "s": 1, "s": [ {"s": 2} ]}', '[ {"s": 2} ]'),
        (b'{"s": false}', "false"),
        ('{"a": "订单", "s": ["单"]}'.encode(), '["单"]'),
    ],
)
def test_a_value_for_text_is_the_text_as_written(body: bytes, text: str) -> None:
    assert one(body, "s STRING") == (text, None)


@pytest.mark.parametrize(
    ("text", "zone", "right"),
    [
        ("2024-01-02T03:04:05.1234567Z", "UTC", "2024-01-02T03:04:05.123456"),
        ("2024-1-2", "UTC", "2024-01-02T00:00:00"),
        ("2024-03-31T02:30:00", "Europe/Berlin", "2024-03-31T01:30:00"),
        ("2024-10-27T02:30:00", "Europe/Berlin", "2024-10-27T00:30:00"),
        ("2024-01-02 03:04", "+08:00", "2024-01-01T19:04:00"),
        ("2024-01-02 03:04:05 Asia/Shanghai", "UTC", "2024-01-01T19:04:05"),
        ("0000-00-00 00:00:00", "UTC", None),
        ("10000-01-01", "UTC", None),
        ("٢٠٢٤-01-01", "UTC", None),
    ],
)
def test_texts_of_times_are_read_as_spark_reads_them(
    text: str, zone: str, right: str | None
) -> None:
    body = json.dumps({"t": text}).encode()
    value, reason = one(body, "t TIMESTAMP", Times(zone, "s"))
    shown = None if value is None else value.replace(tzinfo=None).isoformat()
    assert (shown, reason is None) == (right, right is not None)


def test_a_time_that_lies_too_far_names_the_option_of_its_unit() -> None:
    _, reason = one(b'{"t": 1700000000123}', "t TIMESTAMP")
    assert reason is not None
    assert "bodyTimestampUnit=s" in reason


def test_patterns_of_java_read_dates_and_times() -> None:
    times = Times("Asia/Shanghai", "s", "dd/MM/yyyy HH:mm:ss.SSS", "yyyyMMdd")
    body = b'{"t": "02/01/2024 03:04:05.678", "day": "20240229"}'
    found = decoded([body] * 3, "t TIMESTAMP, day DATE", times).values[1].as_py()
    assert found["t"].isoformat() == "2024-01-01T19:04:05.678000+00:00"
    assert found["day"].isoformat() == "2024-02-29"


def test_maps_binary_and_small_numbers_are_read() -> None:
    ddl = "m MAP<STRING, STRUCT<x: INT>>, v BINARY, t TINYINT, f FLOAT"
    bodies = [b'{"m": {"k": {"x": 1}}, "v": "YWJj", "t": 127, "f": 16777217}', b'{"t": 128}']
    found = decoded(bodies, ddl)
    assert found.values[0].as_py() == {"m": [("k", {"x": 1})], "v": b"abc", "t": 127, "f": 2.0**24}
    assert found.values[1].as_py()["t"] is None
    assert list(found.reasons) == [1]


def test_large_bodies_and_a_million_brackets_take_bounded_memory_and_time() -> None:
    wide = json.dumps({"i": 1, "zz": "x" * (4 << 20)}).encode()
    deep = b'{"zz":' + b"[" * 500_000 + b"]" * 500_000 + b"}"
    before, clock = pa.total_allocated_bytes(), time.process_time()
    tracemalloc.start()
    found = decoded([wide, deep, b'{"zz":' + b"[" * 1_000_000, wide] * 3, "i BIGINT")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20
    assert pa.default_memory_pool().max_memory() - before < 200 << 20
    assert time.process_time() - clock < 20
    assert found.values[0].as_py() == {"i": 1}
    assert [row for row in found.reasons if row % 3 == 2] == [2, 5, 8] or len(found.reasons) >= 3


def test_the_values_of_slow_bodies_are_made_columns_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = json.dumps({"m": {f"k{n}": n for n in range(500)}}).encode()
    bodies = pa.array([body] * 40, pa.binary())
    peaks = []
    for size in (1, 1 << 30):
        monkeypatch.setattr("mqstore.bodies.json_bodies._ONE_BY_ONE_BYTES", size)
        tracemalloc.start()
        found = JsonBodies(parse_ddl("m MAP<STRING, BIGINT>"), UTC).decode(bodies)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert [len(value["m"]) for value in found.values.to_pylist()] == [500] * 40
    assert peaks[0] < peaks[1] / 4


def test_rows_out_are_bodies_in_however_they_are_cut_into_batches() -> None:
    rng = random.Random(3)
    bodies = [mutated(rng, good(rng, n)) if n % 5 == 0 else good(rng, n) for n in range(300)]
    whole = decoded(bodies)
    decoder = JsonBodies(KIND, UTC)
    for size in (1, 13, 100):
        parts = [decoder.decode(pa.array(bodies[n : n + size], pa.binary()))
                 for n in range(0, len(bodies), size)]  # fmt: skip
        together = pa.concat_arrays([part.values for part in parts])
        assert str(together.to_pylist()) == str(whole.values.to_pylist())
