"""Bodies of Avro with every type, and what Apache's own library says of a body."""

import io
import json
import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import avro.io
import avro.schema
import fastavro

RECORD: Final = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "pieces", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {
            "name": "fee",
            "type": {
                "type": "fixed", "name": "Fee", "size": 6,
                "logicalType": "decimal", "precision": 12, "scale": 3,
            },
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "exact", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "what",
            "type": [
                "null", "string", "double",
                {"type": "record", "name": "Gift", "fields": [{"name": "text", "type": "string"}]},
            ],
        },
        {"name": "number", "type": ["int", "long"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record", "name": "Line",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "due", "type": ["null", {"type": "int", "logicalType": "date"}]},
                        {"name": "gift", "type": ["null", "shop.Gift"]},
                    ],
                },
            },
        },
        {"name": "tags", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 3}},
        {"name": "data", "type": "bytes"},
        {"name": "paid", "type": "boolean"},
        {"name": "weight", "type": "float"},
    ],
}  # fmt: skip
SCHEMA: Final = json.dumps(RECORD)
FASTAVRO: Final = fastavro.parse_schema(json.loads(SCHEMA))
_READER: Final = avro.io.DatumReader(avro.schema.parse(SCHEMA))
_DAY_0: Final = datetime(1, 1, 1, tzinfo=UTC)


def order(rng: random.Random, number: int) -> dict[str, Any]:
    """Return a record with values of every size, as fastavro writes it."""
    what: Any = rng.choice([None, "订单", 1.25, ("shop.Gift", {"text": "x" * rng.randrange(80)})])
    seconds = rng.randrange(300_000_000_000)
    return {
        "id": number * rng.choice([1, -1, 2**40]),
        "pieces": rng.randrange(-(2**31), 2**31),
        "note": rng.choice([None, "", "naïve", "a" * 200]),
        "price": Decimal(rng.randrange(-(10**9) + 1, 10**9)).scaleb(-2),
        "fee": Decimal(rng.randrange(-(10**12) + 1, 10**12)).scaleb(-3),
        "day": date.fromordinal(rng.randrange(1, 3_650_000)),
        "at": rng.choice(
            [None, _DAY_0 + timedelta(seconds=seconds, milliseconds=rng.randrange(1_000))]
        ),
        "exact": _DAY_0 + timedelta(seconds=seconds, microseconds=rng.randrange(1_000_000)),
        "what": what,
        "number": rng.choice([1, 2**60]),
        "state": rng.choice(["NEW", "PAID"]),
        "lines": [
            {
                "sku": f"s{n}",
                "due": rng.choice([None, date(2026, 11, 28)]),
                "gift": rng.choice([None, {"text": "g"}]),
            }
            for n in range(rng.randrange(4))
        ],
        "tags": {f"k{n}": rng.choice([None, n]) for n in range(rng.randrange(3))},
        "raw": bytes(rng.randrange(256) for _ in range(3)),
        "data": bytes(rng.randrange(256) for _ in range(rng.randrange(200))),
        "paid": rng.random() < 0.5,
        "weight": rng.choice([0.5, -1.25, 3.0]),
    }


def written(value: Any, schema: Any = FASTAVRO) -> bytes:
    """Return a datum as fastavro writes it."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, value)
    return buffer.getvalue()


def apache(body: bytes) -> dict[str, Any] | None:
    """Return what Apache's library reads; None where it raises, or bytes are left behind."""
    buffer = io.BytesIO(body)
    try:
        found: Any = _READER.read(avro.io.BinaryDecoder(buffer))
    except Exception:  # noqa: BLE001 - it raises what comes: struct.error, TypeError, its own
        return None
    return found if buffer.tell() == len(body) else None


def plain(value: Any) -> Any:
    """Return a value of ours as Apache's library has it: the member of a union, a map as dict."""
    if isinstance(value, dict):
        if value.keys() >= {"member0"}:
            members = [one for one in value.values() if one is not None]
            return plain(members[0]) if members else None
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return {name: plain(inner) for name, inner in value}
        return [plain(inner) for inner in value]
    return value


def same(given: Any, right: Any) -> bool:
    """Whether two values are equal, with the maps of Apache's library and its members of unions."""
    if isinstance(right, dict) and isinstance(given, list) and not given:
        return right == {}
    if isinstance(right, dict) and isinstance(given, dict):
        return given.keys() == right.keys() and all(same(given[n], right[n]) for n in right)
    if isinstance(right, list) and isinstance(given, list):
        return len(given) == len(right) and all(map(same, given, right))
    if isinstance(right, float) and math.isnan(right):
        return isinstance(given, float) and math.isnan(given)
    return bool(given == right)
