"""Bodies of Avro to a struct array: framing, a walk over the bytes, and fastavro for the values.

A framed body that is read as a bare datum is another datum without an error, so a body is good
only where its datum ends with it.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from mqstore.bodies import framing
from mqstore.bodies.avro_columns import AvroColumns
from mqstore.bodies.avro_schemas import AvroSchemas, AvroWriter
from mqstore.bodies.avro_walk import Walk
from mqstore.bodies.decoded import DecodedBodies, by_pieces
from mqstore.bodies.json_values import ENCODING
from mqstore.bodies.libraries import avro_library
from mqstore.errors import shown

AMBIGUOUS: Final = "AMBIGUOUS_FRAMING"
RESOLUTION: Final = "SCHEMA_RESOLUTION"


class AvroBodies:
    """Reads bodies of Avro, batch by batch."""

    def __init__(self, schemas: AvroSchemas, framed: str) -> None:
        self._schemas = schemas
        self._framed = framed
        self._columns = AvroColumns(schemas.reader.type)
        self._walks = {id(writer): Walk(writer.type) for writer in schemas.by_id.values()}
        self._read = avro_library().schemaless_reader

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """Return the values of bodies, and the reasons of those that are bad."""
        return by_pieces(bodies, self._one, self._columns.array, self._schemas.reader.type.arrow)

    def _one(self, _row: int, body: bytes) -> Any:
        """Return the value of a body as fastavro gives it; raises ValueError with the reason."""
        if self._framed == framing.NO_FRAMING:
            return self._datum(body, self._schemas.reader, 0)
        if self._framed == framing.CONFLUENT:
            writer = self._schemas.of_id(framing.confluent_id(body))
            return self._datum(body, writer, framing.CONFLUENT_BYTES)
        if self._framed == framing.SINGLE:
            writer = self._schemas.of_fingerprint(framing.single_fingerprint(body))
            return self._datum(body, writer, framing.SINGLE_BYTES)
        return self._found(body)

    def _found(self, body: bytes) -> Any:
        """Return the value by the framing that a body has."""
        read, reason = [], None
        for writer, start in self._candidates(body):
            try:
                read.append(self._datum(body, writer, start))
            except ValueError as error:
                reason = reason or str(error)
        if not read:
            raise ValueError(reason)
        if any(repr(other) != repr(read[0]) for other in read[1:]):
            raise ValueError(f"{AMBIGUOUS}: the body can be read with its framing and without")
        return read[0]

    def _candidates(self, body: bytes) -> Iterator[tuple[AvroWriter, int]]:
        schemas = self._schemas
        try:
            if framing.has_confluent(body):
                yield schemas.of_id(framing.confluent_id(body)), framing.CONFLUENT_BYTES
            elif framing.has_single(body):
                fingerprint = framing.single_fingerprint(body)
                yield schemas.of_fingerprint(fingerprint), framing.SINGLE_BYTES
        except ValueError:
            pass  # Of no schema that is known: a bare datum may begin so.
        yield schemas.reader, 0

    def _datum(self, body: bytes, writer: AvroWriter, start: int) -> Any:
        try:
            self._walks[id(writer)].check(body, start)
        except ValueError as error:
            if framing.is_object_file(body):
                raise ValueError(
                    f"{framing.FRAMING}: the body is a file of Avro with a schema of its own"
                ) from None
            raise ValueError(str(error)) from None
        reader = None if writer is self._schemas.reader else self._schemas.reader.plain
        try:
            return self._read(BytesIO(memoryview(body)[start:]), writer.plain, reader)
        except UnicodeDecodeError:
            raise ValueError(f"{ENCODING}: a string is no UTF-8") from None
        except Exception as error:
            if not type(error).__module__.startswith("fastavro"):
                raise
            raise ValueError(f"{RESOLUTION}: {shown(error)}") from None
