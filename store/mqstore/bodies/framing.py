"""What stands before a datum in a body: the marks of a registry of schemas, of a single object.

Reference: io.confluent.kafka.serializers.AbstractKafkaSchemaSerDe;
https://avro.apache.org/docs/1.12.0/specification#single-object-encoding.
"""

from typing import Final

NO_FRAMING: Final = "none"
AUTO_FRAMING: Final = "auto"
CONFLUENT: Final = "confluent"
SINGLE: Final = "single"
FRAMING: Final = "INVALID_FRAMING"
UNKNOWN_SCHEMA: Final = "UNKNOWN_SCHEMA"
CONFLUENT_BYTES: Final = 5
SINGLE_BYTES: Final = 10
_CONFLUENT_MARK: Final = 0
_SINGLE_MARK: Final = b"\xc3\x01"
_OBJECT_FILE: Final = b"Obj\x01"


def has_confluent(body: bytes) -> bool:
    """Tell whether a body begins as one of a registry does."""
    return len(body) >= CONFLUENT_BYTES and body[0] == _CONFLUENT_MARK


def has_single(body: bytes) -> bool:
    """Tell whether a body begins as a single object of Avro does."""
    return len(body) >= SINGLE_BYTES and body[:2] == _SINGLE_MARK


def is_object_file(body: bytes) -> bool:
    """Tell whether a body is a file of Avro, with a schema of its own."""
    return body.startswith(_OBJECT_FILE)


def confluent_id(body: bytes) -> int:
    """Return the number of the schema; raises ValueError where the body does not begin so."""
    if not has_confluent(body):
        raise ValueError(f"{FRAMING}: does not begin with byte 0 and the 4 bytes of an id")
    return int.from_bytes(body[1:CONFLUENT_BYTES], "big")


def single_fingerprint(body: bytes) -> bytes:
    """Return the fingerprint of the schema; raises ValueError where the body has none."""
    if not has_single(body):
        raise ValueError(f"{FRAMING}: does not begin with c3 01 and the 8 bytes of a fingerprint")
    return body[2:SINGLE_BYTES]
