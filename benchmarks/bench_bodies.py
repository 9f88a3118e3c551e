"""Typed bodies beside the decoders that they are made of, and beside Spark's ``from_json``.

    python -m benchmarks bodies

A store of messages whose bodies have ten columns, as JSON, Avro and Protobuf; the page cache is
warm. ``untyped`` reads the column ``body`` as bytes, ``typed`` as a struct; ``library`` is the
decoder alone on the same bodies in memory: Arrow's reader with the bodies in one buffer, fastavro,
Google's protobuf without columns. ``json bad`` has one body in a hundred that does not fit, of
five kinds. In ``spark json`` ``from_json`` parses the text in the JVM. What a typed read adds over
the untyped one is to be compared with twice ``library``, and with half of what ``from_json`` adds.
"""

import datetime as dt
import io
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.json
from google.protobuf import descriptor_pb2
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import mqlog
from benchmarks.rounds import Side, compare
from benchmarks.spark import spark_session, to_noop
from mqstore.bodies.protobuf_types import message_class
from support import oracle
from support.oracle import Message
from support.stores import lay_out

TOPIC = "BODIES"
QUEUES = 4
PARTS = 20_000
DDL = (
    "id BIGINT, customer STRING, city STRING, article STRING, note STRING, price DECIMAL(12,2), "
    "pieces INT, paid BOOLEAN, weight DOUBLE, at TIMESTAMP"
)
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        *({"name": n, "type": "string"} for n in ("customer", "city", "article", "note")),
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        },
        {"name": "pieces", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "weight", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
PROTOBUF = (3, 9, 9, 9, 9, 9, 5, 8, 1, 3)
"""Types of the ten columns: the decimal is a text, the time a number."""
NAMES = [field.split()[0] for field in DDL.split(", ")]
BAD = (
    lambda n: b'{"id": "x%d"}' % n,
    lambda n: b'{"id": %d}' % (10**19 + n),
    lambda n: b'{"pieces": %d.5}' % n,
    lambda n: b'{"customer": %d}' % n,
    lambda n: b'{"id": %d, "customer": "cut' % n,
)
FIRST = dt.datetime(2026, 11, 28, tzinfo=dt.UTC)


def main(count: int) -> None:
    """Measure each format, without Spark and with it."""
    rows = [_row(number) for number in range(count)]
    schema = fastavro.parse_schema(AVRO)
    message = message_class(_descriptor_set(), None)
    texts = [_json(row) for row in rows]
    rng = random.Random(1)
    bad = [rng.choice(BAD)(n) if rng.random() < 0.01 else text for n, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        descriptors = root / "order.desc"
        descriptors.write_bytes(_descriptor_set())
        avro = {"body": "avro", "body_schema": json.dumps(AVRO)}
        protobuf = {"body": "protobuf", "body_schema": str(descriptors)}
        typed_json = {"body": "json", "body_schema": DDL}
        _compare(root, "json", texts, typed_json, partial(_arrow, texts))
        _compare(root, "json bad", bad, typed_json, partial(_arrow, texts))
        bodies = [_avro(schema, row) for row in rows]
        _compare(root, "avro", bodies, avro, partial(_fastavro, schema, bodies))
        bodies = [message(**_of_protobuf(row)).SerializeToString() for row in rows]
        _compare(root, "protobuf", bodies, protobuf, partial(_upb, message, bodies))
        with spark_session() as spark:
            for case, bodies in (("spark json", texts), ("spark json bad", bad)):
                _compare_in_spark(spark, root, case, bodies)


def _row(number: int) -> dict[str, Any]:
    return {
        "id": number * 1_000_003,
        "customer": f"customer-{number:08}",
        "city": "Shanghai Pudong",
        "article": f"article {number % 977} of a shop",
        "note": "left at the door, as it was asked for by telephone",
        "price": Decimal(number % 1_000_000).scaleb(-2),
        "pieces": number % 97,
        "paid": number % 2 == 0,
        "weight": number / 7,
        "at": FIRST + dt.timedelta(milliseconds=number),
    }


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps({**row, "price": str(row["price"]), "at": row["at"].isoformat()}).encode()


def _avro(schema: Any, row: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, row)
    return buffer.getvalue()


def _of_protobuf(row: dict[str, Any]) -> dict[str, Any]:
    micros = (row["at"] - FIRST) // dt.timedelta(microseconds=1)
    return {**row, "price": str(row["price"]), "at": micros}


def _descriptor_set() -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="order.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(zip(NAMES, PROTOBUF, strict=True), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    return bytes(files.SerializeToString())


def _laid_out(root: Path, bodies: Sequence[bytes]) -> Path:
    store = root / "store"
    shutil.rmtree(store, ignore_errors=True)
    messages = [
        Message(
            topic=TOPIC,
            queue_id=number % QUEUES,
            body=body,
            properties=oracle.join_properties({"KEYS": f"k{number}"}),
        )
        for number, body in enumerate(bodies)
    ]
    return lay_out(store, messages).root


def _compare(
    root: Path,
    case: str,
    bodies: Sequence[bytes],
    options: dict[str, str],
    library: Callable[[], int],
) -> None:
    store = mqlog.open(_laid_out(root, bodies))

    def read(**options: Any) -> int:
        reader = store.scan(TOPIC, columns="body", **options).to_reader()
        return sum(batch.num_rows for batch in reader)

    sides = [
        Side("untyped", read, len(bodies)),
        Side("typed", partial(read, **options), len(bodies)),
        Side("library", library, len(bodies)),
    ]
    of_body = sum(map(len, bodies)) // len(bodies)
    compare("bodies", case, sides, bodyBytes=of_body, cores=os.cpu_count())


def _arrow(bodies: Sequence[bytes]) -> int:
    kinds = {
        "id": pa.int64(), "price": pa.decimal128(12, 2), "pieces": pa.int32(), "paid": pa.bool_(),
        "weight": pa.float64(), "at": pa.timestamp("us", tz="UTC"),
    }  # fmt: skip
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in NAMES])
    rows = 0
    for start in range(0, len(bodies), PARTS):
        data = b"\n".join(bodies[start : start + PARTS])
        rows += pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema),
        ).num_rows
    return rows


def _fastavro(schema: Any, bodies: Sequence[bytes]) -> int:
    for body in bodies:
        fastavro.schemaless_reader(io.BytesIO(body), schema, None)
    return len(bodies)


def _upb(message: Any, bodies: Sequence[bytes]) -> int:
    for body in bodies:
        parsed = message.FromString(body)
        [getattr(parsed, name) for name in NAMES]
    return len(bodies)


def _compare_in_spark(spark: SparkSession, root: Path, case: str, bodies: Sequence[bytes]) -> None:
    store = str(_laid_out(root, bodies))
    columns = spark.read.format("mqlog").option("columns", "body")

    def untyped() -> int:
        to_noop(columns.load(store))
        return len(bodies)

    def from_json() -> int:
        text = F.col("body").cast("string")
        to_noop(columns.load(store).select(F.from_json(text, DDL).alias("body")))
        return len(bodies)

    def typed() -> int:
        reader = spark.read.format("mqlog").option("columns", "body")
        to_noop(reader.options(body="json", bodySchema=DDL).load(store))
        return len(bodies)

    made = {"untyped": untyped, "from_json": from_json, "typed": typed}
    for side in made.values():
        side()
    sides = [Side(name, side, len(bodies)) for name, side in made.items()]
    compare("bodies", case, sides, cores=os.cpu_count())


if __name__ == "__main__":
    main(int(sys.argv[1]))
