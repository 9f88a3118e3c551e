"""Bodies of Avro as columns, beside Apache's own library, body by body."""

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from bodies.avro_shop import FASTAVRO, RECORD, SCHEMA, apache, order, plain, same, written
from mqstore.bodies.avro_schemas import AvroSchemas
from mqstore.bodies.decoded import DecodedBodies
from mqstore.bodies.schema_text import BodySchema, body_schema
from mqstore.bodies.settings import BodyOptions, body_type, decoder_of
from mqstore.errors import InvalidOptionError
from support import soak

BODIES = soak.size("mutated_avro_bodies", check=400, test=2_000, whole=100_000)
STRICTER = (
    "branch -", "symbol -", "a number of more than 64 bits", "a boolean of", "below 0", "is no INT",
    "is no DECIMAL",
)  # fmt: skip
"""What Apache's library takes: counted from the end of a list, cut, or beyond the type."""


def options(schema: Any, framing: str = "none") -> BodyOptions:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    given = text if isinstance(schema, BodySchema) else BodySchema(text, text)
    return BodyOptions(body="avro", body_schema=given, body_framing=framing)


def decoded(bodies: list[bytes], schema: Any = SCHEMA, framing: str = "none") -> DecodedBodies:
    found = decoder_of(options(schema, framing)).decode(pa.array(bodies, pa.binary()))
    found.values.validate(full=True)
    assert len(found.values) == len(bodies)
    return found


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}


def one(body: bytes, kind: Any) -> tuple[Any, str | None]:
    """The value of the only field, and the reason."""
    found = decoded([body], record(kind))
    value = found.values[0].as_py()
    return (None if value is None else value["f"]), found.reasons.get(0)


def number(value: int) -> bytes:
    return written({"f": value}, fastavro.parse_schema(record("long")))


def test_every_type_is_read_as_apache_reads_it() -> None:
    rng = random.Random(1)
    bodies = [written(order(rng, n)) for n in range(300)]
    found = decoded(bodies)
    assert found.reasons == {}
    for body, value in zip(bodies, found.values.to_pylist(), strict=True):
        assert same(plain(value), apache(body))


def test_mutated_bodies_are_good_only_where_apache_reads_the_same() -> None:
    rng = random.Random(soak.SEED)
    bodies = []
    for place in range(BODIES):
        body = bytearray(written(order(rng, place)))
        for _ in range(rng.choice([0, 1, 1, 3])):
            kind, at = rng.randrange(4), rng.randrange(len(body))
            if kind == 0:
                body[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del body[at]
            elif kind == 2:
                body.insert(at, rng.randrange(256))
            else:
                del body[at:]
            if not body:
                break
        bodies.append(bytes(body))
    found = decoded(bodies)
    good = 0
    for row, value in enumerate(found.values.to_pylist()):
        right, reason = apache(bodies[row]), found.reasons.get(row)
        if reason is None:
            assert same(plain(value), right), bodies[row]
            good += 1
        elif right is not None:
            assert any(word in reason for word in STRICTER), (bodies[row], reason)
    assert BODIES // 10 < good < BODIES


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (["null", "string"], number(-1) + number(1) + b"x", "branch -1 of 2 at byte 0"),
        (["null", "string"], number(2), "branch 2 of 2"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, number(-1), "symbol -1 of 2"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, number(2), "symbol 2 of 2"),
        ("boolean", b"\x02", "a boolean of 2 at byte 0"),
        ("long", b"\xff" * 9 + b"\x02", "a number of more than 64 bits"),
        ("long", b"\x80" * 30 + b"\x00", "a number of more than 64 bits"),
        ("string", number(-1) + b"ab", "a length below 0 at byte 0"),
        ("string", number(2**60) + b"ab", "the body ends within a value"),
        ("string", number(2) + b"\xff\xfe", "INVALID_ENCODING"),
        ("int", number(2**35), "CANNOT_PARSE_VALUE at f: 34359738368 is no INT"),
        ("long", number(1) + b"\x00", "1 bytes lie behind the last value"),
        ({"type": "int", "logicalType": "date"}, number(3_000_000), "is no DATE"),
        ({"type": "long", "logicalType": "timestamp-millis"}, number(2**60), "is no TIMESTAMP"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1},
            number(2) + b"\x7f\xff",
            "CANNOT_PARSE_VALUE at f: 2 bytes is no DECIMAL(3,1)",
        ),
        ({"type": "array", "items": "int"}, number(2**62) + b"\x00", "ends within a value"),
        ({"type": "array", "items": "null"}, number(2**62) + b"\x00", "TOO_MANY_VALUES"),
        ({"type": "array", "items": "null"}, number(-(2**62)) + b"\x00\x00", "TOO_MANY_VALUES"),
        (
            {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
            number(2**62) + b"\x00",
            "TOO_MANY_VALUES",
        ),
        ("long", b"Obj\x01\x04\x14", "INVALID_FRAMING: the body is a file of Avro"),
    ],
)
def test_a_body_that_does_not_fit_has_a_reason(kind: Any, body: bytes, reason: str) -> None:
    value, told = one(body, kind)
    assert value is None
    assert reason in (told or "")


def test_a_value_that_does_not_fit_leaves_the_others_and_the_neighbours() -> None:
    rng = random.Random(2)
    good = order(rng, 1)
    schema = fastavro.parse_schema({
        **RECORD,
        "fields": [{"name": "id", "type": "long"}, {"name": "pieces", "type": "long"}],
    })  # fmt: skip
    short = record("int")
    short["fields"] = [{"name": "id", "type": "long"}, {"name": "pieces", "type": "int"}]
    bodies = [written({"id": n, "pieces": n * 2**31}, schema) for n in range(3)]
    found = decoded(bodies, short)
    assert found.values.to_pylist() == [
        {"id": 0, "pieces": 0}, {"id": 1, "pieces": None}, {"id": 2, "pieces": None},
    ]  # fmt: skip
    assert set(found.reasons) == {1, 2}
    assert decoded([written(good)]).reasons == {}


def test_the_reason_of_a_value_in_a_list_and_in_a_map_is_of_its_own_body() -> None:
    date = {"type": "int", "logicalType": "date"}
    for kind, place in (("array", "f[]"), ("map", "f{}")):
        inner = {"type": kind, "items": date, "values": date}
        wide = fastavro.parse_schema(record({"type": kind, "items": "int", "values": "int"}))
        days: list[list[int] | None] = [[], [1], [1, 9_000_000], [2, 3]]
        values = [
            {"f": list(of_body) if kind == "array" else dict(zip("ab", of_body, strict=False))}
            for of_body in days
            if of_body is not None
        ]
        found = decoded([written(value, wide) for value in values], record(inner))
        assert list(found.reasons) == [2]
        assert place in found.reasons[2]
        assert [len(value["f"]) for value in found.values.to_pylist()] == [0, 1, 2, 2]


def confluent(number: int, datum: bytes) -> bytes:
    return b"\x00" + number.to_bytes(4, "big") + datum


FINGERPRINT = bytes.fromhex("8f5c393f1ad57572")
"""Of the schema "int": 7275d51a3f395c8f in Avro's own table, the least byte first."""


def test_the_fingerprint_is_the_one_of_the_specification() -> None:
    form = fastavro.schema.to_parsing_canonical_form("int")
    assert bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO")) == FINGERPRINT
    encoder = fastavro.schema.fingerprint(
        fastavro.schema.to_parsing_canonical_form(FASTAVRO), "CRC-64-AVRO"
    )
    assert AvroSchemas([(None, SCHEMA)]).reader.fingerprint.hex() == encoder


def test_a_framed_body_is_read_with_its_framing_and_bad_without() -> None:
    rng = random.Random(3)
    datum = written(order(rng, 7))
    form = fastavro.schema.to_parsing_canonical_form(FASTAVRO)
    mark = b"\xc3\x01" + bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO"))
    right = decoded([datum]).values[0]
    for framing, body in (("confluent", confluent(7, datum)), ("single", mark + datum)):
        assert decoded([body], framing=framing).values[0] == right
        assert decoded([body], framing="auto").values[0] == right
        assert decoded([body]).reasons
    assert decoded([datum], framing="auto").values[0] == right
    found = decoded([datum, mark + datum], framing="confluent")
    assert "INVALID_FRAMING: does not begin with byte 0" in found.reasons[0]
    other = decoded([b"\xc3\x01" + bytes(8) + datum], framing="single")
    assert "fingerprint 0000000000000000 is not in bodySchema" in other.reasons[0]


def test_a_framed_body_that_is_a_bare_datum_too_is_bad_by_itself() -> None:
    schema = record("long")
    schema["fields"] += [{"name": "s", "type": "string"}]
    body = b"\x00" + number(4)[:1] + b"\x00\x00\x00" + b"\x08\x00"
    as_framed = decoded([body], schema, "confluent")
    assert as_framed.values[0].as_py() == {"f": 4, "s": ""}
    plain_body = b"\x00\x08" + b"\x00\x00\x00\x0a"[:4]
    assert decoded([plain_body], schema).values[0].as_py() == {"f": 0, "s": "\x00\x00\x00\x0a"}
    both = b"\x00\x0a\x00\x00\x00\x02\x00"  # Bare: 0 and five characters; framed: 1 and none.
    assert decoded([both], schema).values[0].as_py() == {"f": 0, "s": "\x00\x00\x00\x02\x00"}
    assert decoded([both], schema, "confluent").values[0].as_py() == {"f": 1, "s": ""}
    told = decoded(
        [both, written({"f": 3, "s": "x"}, fastavro.parse_schema(schema))], schema, "auto"
    )
    assert list(told.reasons) == [0]
    assert told.reasons[0].startswith("AMBIGUOUS_FRAMING")


def folder(path: Path, schemas: dict[int, Any]) -> BodySchema:
    path.mkdir()
    for schema_id, schema in schemas.items():
        (path / f"{schema_id}.avsc").write_text(json.dumps(schema))
    return body_schema("bodySchema", str(path))


def of_fields(**kinds: Any) -> dict[str, Any]:
    fields = [
        {"name": n, "type": k} | ({"default": None} if isinstance(k, list) else {})
        for n, k in kinds.items()
    ]
    return {"type": "record", "name": "R", "fields": fields}


def test_bodies_of_older_schemas_are_read_as_the_one_of_the_greatest_id(tmp_path: Path) -> None:
    old, new = of_fields(id="int", gone="string"), of_fields(id="long", more=["null", "string"])
    schemas = folder(tmp_path / "ids", {2: old, 10: new})
    given = BodyOptions(body="avro", body_schema=schemas, body_framing="auto")
    assert body_type(given) == pa.struct([("id", pa.int64()), ("more", pa.string())])
    bodies = [
        confluent(2, written({"id": 5, "gone": "x"}, fastavro.parse_schema(old))),
        confluent(10, written({"id": 2**40, "more": "y"}, fastavro.parse_schema(new))),
        written({"id": 6, "more": None}, fastavro.parse_schema(new)),
        confluent(3, b"\x02\x00"),
    ]
    found = decoder_of(given).decode(pa.array(bodies))
    assert found.values.to_pylist() == [
        {"id": 5, "more": None}, {"id": 2**40, "more": "y"}, {"id": 6, "more": None}, None,
    ]  # fmt: skip
    strict = decoder_of(BodyOptions(body="avro", body_schema=schemas, body_framing="confluent"))
    assert "id 3 is not in bodySchema" in strict.decode(pa.array(bodies)).reasons[3]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-micros"},
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
        ),
        ("int", {"type": "int", "logicalType": "date"}),
    ],
)
def test_schemas_whose_values_would_change_their_meaning_are_refused(
    tmp_path: Path, one: Any, other: Any
) -> None:
    schemas = folder(tmp_path / "ids", {1: of_fields(a=one), 2: of_fields(a=other)})
    with pytest.raises(InvalidOptionError, match=r"1.avsc and 2.avsc: a is "):
        body_type(BodyOptions(body="avro", body_schema=schemas))


def test_a_writer_that_cannot_be_resolved_makes_a_bad_row(tmp_path: Path) -> None:
    old, new = of_fields(id="string"), of_fields(id="long")
    schemas = folder(tmp_path / "ids", {1: old, 2: new})
    given = BodyOptions(body="avro", body_schema=schemas, body_framing="confluent")
    body = confluent(1, written({"id": "x"}, fastavro.parse_schema(old)))
    found = decoder_of(given).decode(pa.array([body, confluent(2, b"\x02")]))
    assert found.reasons[0].startswith("SCHEMA_RESOLUTION: ")
    assert found.values[1].as_py() == {"id": 1}


def nested(depth: int) -> Any:
    kind: Any = "int"
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return kind


def doubling(depth: int) -> list[dict[str, Any]]:
    """Fields of records that each hold the one before twice: 2^depth types if written out."""
    kinds: list[Any] = [{"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}]
    for n in range(1, depth):
        inner = [{"name": name, "type": f"R{n - 1}"} for name in "ab"]
        kinds.append({"type": "record", "name": f"R{n}", "fields": inner})
    return [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is no schema"),
        ("{", "is no schema"),
        ("id BIGINT", "is no schema"),
        ('"int"', "is of int: bodies are records"),
        ("[]", "is of union: bodies are records"),
        ('{"type": "record"}', "is no schema"),
        ('{"type": "record", "name": "R", "fields": []}', "a struct has no field"),
        (json.dumps(record("nope")), "nope"),
        (json.dumps(record(["null", "R"])), "R is recursive"),
        (json.dumps(record(nested(60))), "deep"),
        ("[" * 100_000, "deep"),
        (json.dumps({**record("int"), "fields": doubling(40)}), "more than 10,000 types"),
        (json.dumps({**record("int"), "fields": [{"name": "a", "type": "int"}] * 2}), "the name a"),
        (json.dumps({**record("nope"), "__fastavro_parsed": True}), "fastavro's own"),
        (
            json.dumps(
                record({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"})
            ),
            "duration is no type of a column",
        ),
        (
            json.dumps(record({"type": "bytes", "logicalType": "decimal", "precision": 60})),
            "no DECIMAL(60,0)",
        ),
        (json.dumps(record({"type": "fixed", "name": "F", "size": -1})), "a size of -1"),
    ],
)
def test_a_schema_that_cannot_be_a_column_is_refused_by_name(text: str, told: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        body_type(options(text))
    assert "bodySchema" in str(caught.value)
    assert told in str(caught.value)


def test_a_schema_names_no_file_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "Line.avsc").write_text(
        json.dumps({"type": "record", "name": "Line", "fields": []})
    )
    file = tmp_path / "Order.avsc"
    file.write_text(json.dumps(record("Line")))
    with pytest.raises(InvalidOptionError, match="Line"):
        body_type(BodyOptions(body="avro", body_schema=body_schema("bodySchema", str(file))))


def test_without_the_package_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    text = json.dumps(record({"type": "enum", "name": "Unseen", "symbols": ["A"]}))
    with pytest.raises(InvalidOptionError, match=r"needs the package fastavro: pip install 'fast"):
        body_type(options(text))


LINES = {
    "type": "array",
    "items": {"type": "record", "name": "L", "fields": [{"name": "n", "type": "int"}]},
}


def lines(count: int) -> bytes:
    return number(count) + b"\x02" * count + b"\x00"


def test_a_large_body_of_many_small_records_is_bad_before_it_is_read() -> None:
    found = decoded([lines(20_000), lines(4 << 20)], record(LINES))
    assert list(found.reasons) == [1]
    assert found.reasons[1].startswith("TOO_MANY_VALUES: more than 1,000,000 records and lists")
    assert len(found.values[0]["f"]) == 20_000


def test_the_values_of_a_batch_are_made_columns_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mqstore.bodies.decoded._DECODED_BYTES", 15_000)
    bodies = pa.array([lines(20_000)] * 12, pa.binary())
    decoder = decoder_of(options(record(LINES)))
    tracemalloc.start()
    found = decoder.decode(bodies)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.reasons == {}
    assert most < 25 << 20  # All values at once take 50 MB.
