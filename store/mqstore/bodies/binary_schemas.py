"""The option bodySchema for bodies of Avro and Protobuf."""

from typing import Any

import pyarrow as pa

from mqstore.bodies.avro_schemas import AvroSchemas, avro_schemas
from mqstore.bodies.protobuf_types import message_class, message_type
from mqstore.bodies.schema_text import SCHEMA, BodySchema
from mqstore.errors import InvalidOptionError


def avro_schemas_of(schema: BodySchema) -> AvroSchemas:
    """Return the schemas of bodies of Avro; raises InvalidOptionError."""
    texts: tuple[tuple[int | None, str], ...] = schema.files or ((None, schema.text),)
    try:
        return avro_schemas(texts)
    except ValueError as error:
        raise InvalidOptionError(SCHEMA, schema.source, f"is no schema: {error}") from None


def protobuf_message(schema: BodySchema, name: str | None) -> tuple[Any, pa.DataType]:
    """Return the class of the message of bodies of Protobuf, and its type.

    Raises InvalidOptionError.
    """
    try:
        message = message_class(schema.data or schema.text.encode(), name)
        return message, message_type(message.DESCRIPTOR)
    except ValueError as error:
        raise InvalidOptionError(SCHEMA, schema.source, str(error)) from None
