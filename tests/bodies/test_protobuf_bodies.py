"""Bodies of Protobuf as columns, beside a decoder of the wire of the test's own."""

import base64
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2

from bodies.proto_wire import descriptor_set, order, read, tagged, varint
from mqstore.bodies.decoded import DecodedBodies
from mqstore.bodies.schema_text import BodySchema, body_schema
from mqstore.bodies.settings import BodyOptions, body_type, decoder_of
from mqstore.errors import InvalidOptionError
from support import soak

BODIES = soak.size("mutated_protobuf_bodies", check=400, test=2_000, whole=100_000)
SHOP = BodySchema("shop.desc", "", descriptor_set())


def options(schema: BodySchema = SHOP, message: str | None = "Order", **more: Any) -> BodyOptions:
    return BodyOptions(body="protobuf", body_schema=schema, body_message=message, **more)


def decoded(bodies: list[bytes], given: BodyOptions | None = None) -> DecodedBodies:
    found = decoder_of(given or options()).decode(pa.array(bodies, pa.binary()))
    found.values.validate(full=True)
    assert len(found.values) == len(bodies)
    return found


def right_of(body: bytes) -> dict[str, Any] | None:
    try:
        return read(body)
    except ValueError:
        return None


def test_bodies_are_read_as_their_wire_says() -> None:
    rng = random.Random(1)
    bodies = [order(rng) for _ in range(500)]
    found = decoded(bodies)
    assert found.reasons == {}
    assert found.values.to_pylist() == [right_of(body) for body in bodies]
    assert body_type(options()).field("big").type == pa.decimal128(20, 0)


def test_mutated_bodies_are_good_where_their_wire_is() -> None:
    rng = random.Random(soak.SEED)
    bodies = []
    for _ in range(BODIES):
        body = bytearray(order(rng) or b"\x08\x01")
        for _ in range(rng.choice([0, 1, 1, 3])):
            at = rng.randrange(len(body) + 1)
            if rng.random() < 0.5 and at < len(body):
                body[at] ^= 1 << rng.randrange(8)
            else:
                body.insert(at, rng.randrange(256))
        bodies.append(bytes(body))
    found = decoded(bodies)
    wrong, good = [], 0
    for row, value in enumerate(found.values.to_pylist()):
        right = right_of(bodies[row])
        good += right is not None
        if repr(value) != repr(right) or (right is None) != (row in found.reasons):
            wrong.append((bodies[row], value, right, found.reasons.get(row)))
    assert wrong[:3] == []
    assert BODIES // 10 < good < BODIES


def test_what_is_not_on_the_wire_is_null_or_the_default_of_the_language() -> None:
    (absent,) = decoded([b""]).values.to_pylist()
    assert {name for name, value in absent.items() if value is not None} == {
        "lines", "codes", "names",
    }  # fmt: skip
    (given,) = decoded([b""], options(emit_default_values=True)).values.to_pylist()
    assert {name for name, value in given.items() if value is None} == {"first"}
    assert (given["id"], given["state"], given["note"], given["data"]) == (0, "NEW", "", b"")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x08", "MALFORMED_PROTOBUF"),
        (b"\x00\x01", "MALFORMED_PROTOBUF"),
        (tagged(6, 2, b"\x02\xff\xfe"), "INVALID_ENCODING|MALFORMED_PROTOBUF"),
        (tagged(12, 2, varint(2**40)), "MALFORMED_PROTOBUF"),
        (tagged(99, 3, b"") * 200_000, "MALFORMED_PROTOBUF"),
    ],
)
def test_bytes_that_are_no_message_are_bad_and_their_neighbours_good(
    body: bytes, reason: str
) -> None:
    found = decoded([b"\x08\x01", body, b"\x08\x02"])
    assert list(found.reasons) == [1]
    assert any(found.reasons[1].startswith(word) for word in reason.split("|"))
    assert [None if v is None else v["id"] for v in found.values.to_pylist()] == [1, None, 2]


def framed(indexes: bytes, body: bytes) -> bytes:
    return b"\x00\x00\x00\x00\x07" + indexes + body


def test_the_indexes_of_a_registry_name_the_message() -> None:
    body = b"\x08\x05"
    order_1, line, first = b"\x02\x02", b"\x04\x02\x00", b"\x00"
    given = [framed(order_1, body), framed(first, body), framed(line, body), body, framed(b"", b"")]
    found = decoded(given, options(body_framing="confluent"))
    assert found.values[0].as_py()["id"] == 5
    assert "message [0] of its file, and shop.Order is [1]" in found.reasons[1]
    assert "message [1, 0] of its file" in found.reasons[2]
    assert "does not begin with byte 0" in found.reasons[3]
    assert "ends within the indexes" in found.reasons[4]
    auto = decoded([framed(order_1, body), body], options(body_framing="auto"))
    assert [value["id"] for value in auto.values.to_pylist()] == [5, 5]
    of_line = decoded([framed(line, b"\x0a\x01s")], options(message="Line", body_framing="auto"))
    assert of_line.values[0].as_py() == {"sku": "s", "n": None}
    of_first = decoded([framed(first, b"\x08\x02")], options(message="Other", body_framing="auto"))
    assert of_first.values[0].as_py() == {"x": 2}


def set_of(
    fields: list[dict[str, Any]], *, syntax: str = "proto3", imports: str = ""
) -> BodySchema:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="m.proto", package="p", syntax=syntax)
    if imports:
        file.dependency.append(imports)
    message = file.message_type.add(name="M")
    for field in fields:
        message.field.add(**{"label": 1, **field})
    return BodySchema("m.desc", "", files.SerializeToString())


def test_a_time_that_does_not_fit_is_of_its_own_body_behind_bodies_that_are_null() -> None:
    late = timestamp_pb2.Timestamp(seconds=2**60).SerializeToString()
    at = {"name": "at", "number": 1, "type": 11, "type_name": ".google.protobuf.Timestamp"}
    given = options(set_of([at], imports="google/protobuf/timestamp.proto"), None)
    bodies = pa.array([None, b"", None, tagged(1, 2, varint(len(late)) + late), b""], pa.binary())
    read = decoder_of(given).decode(bodies)
    assert [*read.reasons] == [3]
    assert read.values.is_valid().to_pylist() == [False, True, False, True, True]


def test_an_index_of_more_than_64_bits_is_bad_framing() -> None:
    decoded_bodies = decoded([framed(b"\xff" * 11, b"")], options(body_framing="confluent"))
    assert decoded_bodies.reasons[0] == "INVALID_FRAMING: an index of more than 64 bits"


def test_times_wrappers_and_any_are_those_of_spark() -> None:
    moment = timestamp_pb2.Timestamp(seconds=1_700_000_000, nanos=123_456_789)
    late = timestamp_pb2.Timestamp(seconds=2**60)
    at = {"name": "at", "number": 1, "type": 11, "type_name": ".google.protobuf.Timestamp"}
    given = options(set_of([at], imports="google/protobuf/timestamp.proto"), None)
    bodies = [
        tagged(1, 2, varint(len(data)) + data)
        for data in (moment.SerializeToString(), late.SerializeToString())
    ]
    found = decoded(bodies, given)
    assert found.values.field("at").cast(pa.int64()).to_pylist() == [1_700_000_000_123_456, None]
    assert "CANNOT_PARSE_VALUE at at: 1152921504606846976 s lie beyond" in found.reasons[1]
    for word, file, kind in (
        ("Int64Value", "wrappers", pa.struct([("value", pa.int64())])),
        ("Any", "any", pa.struct([("type_url", pa.string()), ("value", pa.binary())])),
    ):
        one = {"name": "f", "number": 1, "type": 11, "type_name": f".google.protobuf.{word}"}
        schema = set_of([one], imports=f"google/protobuf/{file}.proto")
        assert body_type(options(schema, None)).field("f").type == kind


def test_fields_of_proto2_have_their_defaults_and_must_be_there() -> None:
    schema = set_of(
        [
            {"name": "a", "number": 1, "type": 5, "label": 2},
            {"name": "b", "number": 2, "type": 5, "default_value": "7"},
            {"name": "c", "number": 3, "type": 5},
        ],
        syntax="proto2",
    )
    found = decoded([b"\x08\x00", b"\x10\x01"], options(schema, None))
    assert found.values[0].as_py() == {"a": 0, "b": 7, "c": None}
    assert "a required field is missing" in found.reasons[1]


def test_a_map_is_a_map() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="m.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="M")
    message.field.add(name="f", number=1, label=3, type=11, type_name=".p.M.FEntry")
    entry = message.nested_type.add(name="FEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=3)
    given = options(BodySchema("m", "", files.SerializeToString()), None)
    pair = tagged(1, 2, b"\x01k") + tagged(2, 0, b"\x05")
    found = decoded([tagged(1, 2, varint(len(pair)) + pair), b""], given)
    assert [value["f"] for value in found.values.to_pylist()] == [[("k", 5)], []]


@pytest.mark.parametrize(
    ("schema", "message", "told"),
    [
        (BodySchema("x", "id BIGINT"), None, "is no descriptor set"),
        (BodySchema("x", "", b"\xff" * 9), None, "is no descriptor set"),
        (SHOP, None, "set bodyMessage to one of its messages: shop.Other, shop.Order"),
        (SHOP, "Nope", "set bodyMessage to one of its messages"),
        (
            set_of([{"name": "m", "number": 1, "type": 11, "type_name": ".p.M"}]),
            None,
            "p.M is recursive",
        ),
        (
            set_of(
                [{"name": "s", "number": 1, "type": 11, "type_name": ".google.protobuf.Struct"}],
                imports="google/protobuf/struct.proto",
            ),
            None,
            "is recursive",
        ),
        (set_of([], imports="/etc/passwd"), None, "lacks /etc/passwd, which it imports"),
        (set_of([], imports="http://127.0.0.1/x.proto"), None, "which it imports"),
        (set_of([], imports="m.proto"), None, "imports itself"),
        (set_of([]), None, "p.M has no field"),
        (
            set_of([{"name": "m", "number": 1, "type": 11, "type_name": ".p.Nope"}]),
            None,
            "Nope",
        ),
    ],
)
def test_a_set_that_has_no_columns_is_refused_by_name(
    schema: BodySchema, message: str | None, told: str
) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        body_type(options(schema, message))
    assert "bodySchema" in str(caught.value)
    assert told in str(caught.value)


def test_a_set_may_be_a_file_or_base64(tmp_path: Path) -> None:
    file = tmp_path / "shop.desc"
    file.write_bytes(descriptor_set())
    for text in (str(file), base64.b64encode(descriptor_set()).decode()):
        schema = body_schema("bodySchema", text)
        assert body_type(options(schema)) == body_type(options())
    with pytest.raises(InvalidOptionError, match="bodySchema"):
        body_type(BodyOptions(body="json", body_schema=body_schema("bodySchema", str(file))))


def test_without_the_package_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "google.protobuf", None)
    with pytest.raises(InvalidOptionError, match="needs the package protobuf: pip install 'proto"):
        body_type(options(BodySchema("unseen", "AAAA"), "Unseen"))


def test_the_deepest_value_of_a_dynamic_message_ends_the_body_alone() -> None:
    value = struct_pb2.Value()
    inner = value
    for _ in range(90):
        inner = inner.list_value.values.add()
    data = value.SerializeToString()
    found = decoded([tagged(99, 2, varint(len(data)) + data), b"\x08\x01"])
    assert found.reasons == {}
