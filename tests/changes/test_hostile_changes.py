"""Bytes that claim to be messages of changes: rows and bad rows account for each, nothing crashes.

Messages are recorded ones with bytes that were changed, and small ones made to harm.
"""

import json
import random
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from changes.recordings import names_of, recorded
from mqstore.changes.change import CHANGE_COLUMNS, Change, ChangeMessage, change_column
from mqstore.changes.collected import MOST_CHANGES
from mqstore.changes.decode_context import DecodeContext
from mqstore.changes.formats import CHANGE_FORMATS, decoded
from mqstore.changes.table_schemas import table_schemas

MUTATED = 2_000
FILES = {
    "canal": ("mariadb", ["canal_flat"]),
    "canalProtobuf": ("mariadb", ["canal_protobuf"]),
    "debezium": ("mariadb", names_of("mariadb", "dbz_schema_shop")),
    "debeziumFlat": ("mariadb", names_of("mariadb", "dbz_flatten_shop")),
    "auto": ("postgresql", names_of("postgresql", "pg_")),
}
ODD_VALUES = [[], {}, {"a": []}, "", -1, 1e999, True, None, [1, {}]]
SPLICES = [b"null", b"{}", b"[]", b"-1", b"1e999", b'"', b"\x00", b"\xff", b"\\ud800", b"9" * 40]


def mutated(body: bytes, chance: random.Random) -> bytes:
    """The body with one to four places changed, cut, doubled or replaced."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(body) + 1)
        way = chance.randrange(5)
        if way == 0:
            body = body[:at]
        elif way == 1:
            body = body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]
        elif way == 2:
            body = body[:at] + chance.choice(SPLICES) + body[at + chance.randrange(12) :]
        elif way == 3:
            body = body[:at] + body[at + chance.randrange(40) :]
        else:
            body = body[:at] + body[at : at + chance.randrange(60)] + body[at:]
    return body


def as_columns(changes: list[Change]) -> None:
    rows = pa.table({c.name: change_column(c.name, changes) for c in CHANGE_COLUMNS})
    rows.validate(full=True)
    assert rows.num_rows == len(changes)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value of a document, of lists the first two."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2])
    for name, part in inner if isinstance(value, dict | list) else ():
        yield from (
            places_in(part, (*path, name)) if isinstance(part, dict | list) else [(*path, name)]
        )


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = document.copy()
    changed[path[0]] = with_value(document[path[0]], path[1:], value)
    return changed


@pytest.mark.parametrize("name", [name for name in FILES if name != "canalProtobuf"])
def test_each_value_of_a_message_may_be_of_any_kind(name: str) -> None:
    folder, files = FILES[name]
    shapes = {}
    for one in recorded(folder, *files):
        document = json.loads(one.message.body)
        if isinstance(document, dict):
            payload = document.get("payload") or document
            shape = (*sorted(document), payload.get("op"), payload.get("type"))
            shapes.setdefault(str(shape), (document, one.message.keys))
    schema = table_schemas("changesSchema", "id BIGINT, at DATETIME(6), amount DECIMAL(18,4)")
    tried = 0
    for document, keys in shapes.values():
        for path in places_in(document):
            for value in ODD_VALUES:
                body = json.dumps(with_value(document, path, value)).encode()
                for context in (DecodeContext(), DecodeContext(schema)):
                    message = ChangeMessage(body, keys, {"__debezium.newkey": '{"id":[]}'})
                    as_columns(decoded(CHANGE_FORMATS[name], message, context))
                    tried += 1
    assert tried > 100 * len(ODD_VALUES)


@pytest.mark.parametrize("name", FILES)
def test_each_mutated_message_is_rows_or_one_bad_row(name: str) -> None:
    folder, files = FILES[name]
    messages = [one.message for one in recorded(folder, *files)]
    chance = random.Random(42)
    schema = table_schemas("changesSchema", "id BIGINT, at DATETIME(6), amount DECIMAL(18,4)")
    contexts = [DecodeContext(), DecodeContext(schema)]
    changes: list[Change] = []
    bad = 0
    for _ in range(MUTATED):
        message = chance.choice(messages)
        keys, properties = message.keys, message.properties
        if chance.random() < 0.2:
            keys = mutated((keys or "{}").encode(), chance).decode("utf-8", "replace")
            properties = {"__debezium.newkey": keys, "__debezium.oldkey": keys}
        one = ChangeMessage(mutated(message.body, chance), keys, properties)
        of_message = decoded(CHANGE_FORMATS[name], one, chance.choice(contexts))
        assert of_message
        is_bad = [change.op is None for change in of_message]
        assert is_bad == [True] or not any(is_bad)
        bad += is_bad[0]
        assert not is_bad[0] or of_message[0].reason
        changes += of_message
    as_columns(changes)
    assert 0 < bad < MUTATED


def bad_reason(name: str, body: bytes) -> str | None:
    started = time.process_time()
    tracemalloc.start()
    changes = decoded(CHANGE_FORMATS[name], ChangeMessage(body, None, {}), DecodeContext())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 600 << 20
    assert time.process_time() - started < 120
    return changes[0].reason if changes[0].op is None else None


def flat(rows: str, types: str = "{}", keys: str = '["a"]') -> bytes:
    return (
        f'{{"type":"INSERT","table":"t","isDdl":false,"data":[{rows}],"mysqlType":{types},'
        f'"pkNames":{keys}}}'
    ).encode()


def test_a_small_message_cannot_make_rows_without_end() -> None:
    row = '{"a":"1"}'
    many = ",".join([row] * (MOST_CHANGES + 1))
    assert "rows in a message" in (bad_reason("canal", flat(many)) or "")
    label = "x" * 100_000
    labels = flat(",".join([row] * 20_000), f'{{"a":"enum(\'{label}\')"}}')
    assert "characters" in (bad_reason("canal", labels) or "")  # Of types, in each row.
    keys = json.dumps(["k" * 100_000])
    assert "characters" in (bad_reason("canal", flat(",".join([row] * 20_000), keys=keys)) or "")


def test_a_type_cannot_make_a_value_of_any_size() -> None:
    [change] = decoded(
        CHANGE_FORMATS["canal"],
        ChangeMessage(flat('{"a":"x"}', '{"a":"binary(2000000000)"}'), None, {}),
        DecodeContext(),
    )
    assert change.row == {"a": "eA=="}
    value = '{"scale":2000000000,"value":"AQ=="}'
    body = f'{{"op":"c","source":{{"db":"d","table":"t"}},"after":{{"n":{value}}}}}'
    [change] = decoded(
        CHANGE_FORMATS["debezium"], ChangeMessage(body.encode(), None, {}), DecodeContext()
    )
    assert change.row is not None
    assert [problem.column for problem in change.problems] == ["n"]
    number = "9" * 5_000
    schema = table_schemas("changesSchema", "n BIGINT UNSIGNED, d DATE")
    body = f'{{"op":"c","source":{{"table":"t"}},"after":{{"n":{number},"d":{number}}}}}'
    [change] = decoded(
        CHANGE_FORMATS["debezium"], ChangeMessage(body.encode(), None, {}), DecodeContext(schema)
    )
    assert change.row == {"n": number, "d": number}
    assert [problem.column for problem in change.problems] == ["n", "d"]


@pytest.mark.parametrize("name", sorted(CHANGE_FORMATS))
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b'{"op":' * 100_000,
        b"{" + b'"a":1,' * 100_000 + b'"a":1}',
        b"\x10\x01\x18\x07\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x10\x01\x18\x07\x2a\x02\x12\x00",
        b"\x80" * 1_000,
        b'{"op":"c","source":{"db":1,"table":[]},"after":{"a":{"b":[1,{"c":null}]}},"before":3}',
        b'{"type":"UPDATE","data":[{"a":"1"}],"old":[{"a":"2"},{}],"table":"t","isDdl":false}',
        b'{"type":"UPDATE","data":[null],"old":[null],"table":"t","isDdl":false}',
        b'{"type":"INSERT","data":[[]],"table":"t","isDdl":false}',
        b'{"__op":{},"__deleted":[],"a":1}',
        b'{"schema":{"fields":[1,{"field":"after","fields":{"a":1}}]},"payload":{"op":"c"}}',
    ],
)
def test_a_body_made_to_harm_is_a_row_of_its_own(name: str, body: bytes) -> None:
    changes = decoded(CHANGE_FORMATS[name], ChangeMessage(body, None, {}), DecodeContext())
    assert len(changes) == 1
    as_columns(changes)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        *((name, b"") for name in ("canal", "debezium", "debeziumFlat", "auto")),
        *((name, b" null ") for name in ("canal", "debezium", "debeziumFlat", "auto")),
        ("debezium", b'{"schema":null,"payload":null}'),
        ("auto", b'{"schema":null,"payload":null}'),
    ],
)
def test_a_tombstone_or_an_empty_body_is_no_change(name: str, body: bytes) -> None:
    [change] = decoded(CHANGE_FORMATS[name], ChangeMessage(body, '{"id":1}', {}), DecodeContext())
    assert change.op == "other"
