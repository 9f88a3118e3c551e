"""Fields of bodies that a read hides, beside masks of the test's own on values of Python."""

import hashlib
import hmac
import json
import random
from typing import Any

import pyarrow as pa
import pytest

from mqstore.bodies.ddl import parse_ddl
from mqstore.bodies.decoded import DecodedBodies
from mqstore.bodies.masks import MaskedBodies, body_masks, masked_type
from mqstore.bodies.schema_text import BodySchema
from mqstore.bodies.settings import BodyOptions, body_type, decoder_of
from mqstore.errors import InvalidOptionError
from mqstore.options.secret import Secret
from support import soak

SECRET = "pepper"
DDL = (
    "id BIGINT, name STRING, phone STRING, price DECIMAL(12,2), raw BINARY, "
    "lines ARRAY<STRUCT<sku: STRING, note: STRING>>, extra MAP<STRING, STRING>, "
    "deep STRUCT<deeper: STRUCT<token: STRING, kept: INT>>"
)
MASKS = (
    "id=hash, phone=last4, price=hash, raw=hash, lines.sku=hash, lines.note=drop, extra=last4, "
    "deep.deeper.token=last4"
)
DROPPED = object()


def hashed(value: Any) -> str | None:
    data = value if isinstance(value, bytes) else str(value).encode()
    return None if value is None else hmac.new(SECRET.encode(), data, hashlib.sha256).hexdigest()


def last_4(value: str | None) -> str | None:
    return None if value is None else "****" + (value[-4:] if len(value) >= 8 else "")


def masked(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """The row as it may be seen."""
    if row is None:
        return None
    lines = row["lines"] and [one and {"sku": hashed(one["sku"])} for one in row["lines"]]
    extra = row["extra"] and [(key, last_4(value)) for key, value in row["extra"]]
    deep = row["deep"]
    if deep and deep["deeper"]:
        deep = {"deeper": deep["deeper"] | {"token": last_4(deep["deeper"]["token"])}}
    return row | {
        "id": hashed(row["id"]), "phone": last_4(row["phone"]), "price": hashed(row["price"]),
        "raw": hashed(row["raw"]), "lines": lines, "extra": extra, "deep": deep,
    }  # fmt: skip


def body(choose: random.Random) -> bytes:
    """A body with some of the fields, some of them null, and now and then one that is bad."""

    def maybe(value: Any) -> Any:
        return choose.choice([value, value, value, None])

    text = maybe("".join(choose.choices("aé中😀7", k=choose.randrange(12))))
    lines = [maybe({"sku": text, "note": "hidden"}) for _ in range(choose.randrange(3))]
    document = {
        "id": maybe(choose.choice([7, -(2**63), "no number"])),
        "name": text,
        "phone": maybe(choose.choice(["13812345678", "1234567", "", text])),
        "price": maybe(choose.choice([1.5, "0.01", 12345678901])),
        "raw": maybe("AAEC"),
        "lines": maybe(lines),
        "extra": maybe(dict.fromkeys(choose.sample("xyz", choose.randrange(4)), text)),
        "deep": maybe({"deeper": maybe({"token": "secret-token", "kept": 1})}),
    }
    names = choose.sample(sorted(document), choose.randrange(1, len(document) + 1))
    data = json.dumps({name: document[name] for name in names}).encode()
    return choose.choice([data] * 9 + [data[:-1]])


def options(masks: str | None, secret: str | None = SECRET) -> BodyOptions:
    return BodyOptions(
        body="json",
        body_schema=BodySchema(DDL, DDL),
        body_mask=None if masks is None else body_masks("bodyMask", masks),
        body_mask_secret=None if secret is None or masks is None else Secret(secret),
    )


def decode(bodies: list[bytes], masks: str | None) -> DecodedBodies:
    decoded = decoder_of(options(masks)).decode(pa.array(bodies, pa.binary()))
    decoded.values.validate(full=True)
    return decoded


def test_masked_fields_are_hidden_and_others_are_as_they_were() -> None:
    choose = random.Random(soak.SEED)
    bodies = [body(choose) for _ in range(2_000)]
    plain, hidden = decode(bodies, None), decode(bodies, MASKS)
    assert hidden.values.type == body_type(options(MASKS))
    assert hidden.values.to_pylist() == [masked(row) for row in plain.values.to_pylist()]
    assert hidden.reasons.keys() == plain.reasons.keys()
    assert len(plain.reasons) > 100


def test_the_reason_of_a_bad_body_quotes_no_value() -> None:
    decoded = decode(
        [b'{"id": "13812345678"}', b"13812345678", b'{"extra":{"13812345678":[]}}'], MASKS
    )
    assert [decoded.reasons[row].partition(":")[0] for row in (0, 1)] == [
        "CANNOT_PARSE_VALUE",
        "NOT_AN_OBJECT",
    ]
    assert not any("138" in reason for reason in decoded.reasons.values())


class _Sliced:
    """A decoder whose array is a part of a longer one, with other values before and behind it."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def decode(self, _: pa.BinaryArray) -> DecodedBodies:
        return DecodedBodies(self._values, {})


def test_a_part_of_a_longer_array_is_masked_as_that_part() -> None:
    choose = random.Random(soak.SEED)
    values = decode([body(choose) for _ in range(300)], None).values
    masks = body_masks("bodyMask", MASKS)
    for start, length in ((0, 300), (1, 10), (37, 0), (290, 10)):
        piece = values.slice(start, length)
        decoder = MaskedBodies(_Sliced(piece), masks, values.type, Secret(SECRET))
        decoded = decoder.decode(pa.array([], pa.binary()))
        decoded.values.validate(full=True)
        assert decoded.values.to_pylist() == [masked(row) for row in piece.to_pylist()]


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("a=hash", {("a",): "hash"}),
        (" a . b = LAST4 ,`c.d`= drop", {("a", "b"): "last4", ("c.d",): "drop"}),
        ("`a``b`.`, =`=drop", {("a`b", ", ="): "drop"}),
        ("订单.电话=last4", {("订单", "电话"): "last4"}),
    ],
)
def test_paths_are_names_with_points_between_them_quoted_where_needed(
    text: str, actions: dict[tuple[str, ...], str]
) -> None:
    assert dict(body_masks("bodyMask", text).actions) == actions


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be PATH=hash|last4|drop"),
        ("a", "must be PATH"),
        ("a=", "must be PATH"),
        ("a=first4", "must be PATH"),
        ("a=hash,", "must be PATH"),
        ("a=hash b=drop", "must be PATH"),
        ("a..b=hash", "must be PATH"),
        ("`a=hash", "must be PATH"),
        ("a=hash, a=drop", "names a twice"),
        ("a.b=hash, a=drop", "names a.b and a field around it"),
    ],
)
def test_a_text_that_is_no_mask_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        body_masks("bodyMask", text)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("masks", "reason"),
    [
        ("fone=last4", "fone is not in the schema"),
        ("deep.deeper.tokens=drop", "deep.deeper.tokens is not in the schema"),
        ("name.first=drop", "name.first is not in the schema"),
        ("id=last4", "id is BIGINT: last4 takes STRING"),
        ("deep=hash", "hash takes STRING, BINARY, whole numbers and DECIMAL"),
        (", ".join(f"{field.name}=drop" for field in parse_ddl(DDL)), "drops all fields"),
    ],
)
def test_a_field_that_cannot_be_hidden_is_an_error_and_never_shown(masks: str, reason: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        body_type(options(masks))
    assert reason in str(refused.value)


def test_a_hash_needs_a_secret() -> None:
    with pytest.raises(InvalidOptionError, match="bodyMaskSecret"):
        masked_type(body_masks("bodyMask", "id=hash"), pa.struct([("id", pa.int64())]), None)
