"""A message of a descriptor set of Protobuf as the Arrow type of a struct, as Spark has it.

Reference: org.apache.spark.sql.protobuf.utils.SchemaConverters#structFieldFor.
"""

import base64
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from mqstore.bodies.ddl import MOST_DEPTH, MOST_FIELDS, UTC, list_of, struct_of
from mqstore.bodies.libraries import protobuf_library

UNSIGNED_64: Final = pa.decimal128(20, 0)
TIMESTAMP_MESSAGE: Final = "google.protobuf.Timestamp"
_WELL_KNOWN: Final = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
_BY_CPP_TYPE: Final = {
    "INT32": pa.int32(), "INT64": pa.int64(), "UINT32": pa.int64(), "UINT64": UNSIGNED_64,
    "DOUBLE": pa.float64(), "FLOAT": pa.float32(), "BOOL": pa.bool_(), "ENUM": pa.string(),
}  # fmt: skip


@lru_cache(maxsize=16)
def message_class(data: bytes, name: str | None) -> Any:
    """Return the class of a message of a descriptor set, by its full name or the end of it.

    ``data`` are the bytes of a FileDescriptorSet, or these in base64. Nothing but the set and the
    messages of Protobuf's own is looked at. Raises ValueError with the reason.
    """
    module = protobuf_library("descriptor_pb2")
    try:
        files = module.FileDescriptorSet.FromString(_set_bytes(data)).file
    except protobuf_library("message").DecodeError:
        files = []
    if not files:
        raise ValueError(
            "is no descriptor set: protoc --include_imports --descriptor_set_out=FILE makes one"
        )
    pool = protobuf_library("descriptor_pool").DescriptorPool()
    _add(pool, {file.name: file for file in files})
    messages = {n: None for file in files for n in _names(file.message_type, file.package)}
    descriptor = pool.FindMessageTypeByName(_chosen(list(messages), name))
    return protobuf_library("message_factory").GetMessageClass(descriptor)


def _set_bytes(data: bytes) -> bytes:
    text = data.strip()
    try:
        return base64.b64decode(text, validate=True) if text else data
    except ValueError:
        return data


def _add(pool: Any, files: dict[str, Any]) -> None:
    """Add files to a pool, each behind those that it imports."""
    added: set[str] = set()

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in added:
            return
        if name in above or len(above) > 1_000:
            raise ValueError(f"{name} imports itself")
        file = files.get(name) or _own_file(name)
        for imported in file.dependency:
            add(imported, (*above, name))
        try:
            pool.Add(file)
            pool.FindFileByName(name)
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from None
        added.add(name)

    for name in files:
        add(name, ())


def _own_file(name: str) -> Any:
    for word in _WELL_KNOWN:
        if name == f"google/protobuf/{word}.proto":
            file = protobuf_library("descriptor_pb2").FileDescriptorProto()
            protobuf_library(f"{word}_pb2").DESCRIPTOR.CopyToProto(file)
            return file
    raise ValueError(f"lacks {name}, which it imports: protoc --include_imports adds it")


def _names(messages: Any, package: str) -> list[str]:
    full_names = []
    for message in messages:
        full = f"{package}.{message.name}" if package else message.name
        full_names.append(full)
        if not message.options.map_entry:
            inner = [m for m in message.nested_type if not m.options.map_entry]
            full_names += _names(inner, full)
    return full_names


def _chosen(names: list[str], name: str | None) -> str:
    of_users = [full for full in names if not full.startswith("google.protobuf.")]
    fitting = (
        of_users if name is None else [n for n in names if n == name or n.endswith(f".{name}")]
    )
    if name in names:
        return str(name)
    if len(fitting) == 1:
        return fitting[0]
    some = ", ".join(of_users[:10])
    raise ValueError(f"set bodyMessage to one of its messages: {some}")


def message_type(descriptor: Any) -> pa.DataType:
    """Return the struct of a message; raises ValueError for one that lies within itself."""
    return _MessageTypes().message(descriptor, ())


class _MessageTypes:
    def __init__(self) -> None:
        self._count = 0

    def message(self, descriptor: Any, above: tuple[str, ...]) -> pa.DataType:
        name = descriptor.full_name
        if name == TIMESTAMP_MESSAGE and above:
            return UTC
        if name in above:
            raise ValueError(f"{name} is recursive: it lies within itself")
        if len(above) > MOST_DEPTH:
            raise ValueError(f"types lie more than {MOST_DEPTH} deep")
        inner = [pa.field(f.name, self._field(f, (*above, name))) for f in descriptor.fields]
        if not inner:
            raise ValueError(f"{name} has no field")
        return struct_of(inner)

    def _field(self, field: Any, above: tuple[str, ...]) -> pa.DataType:
        self._count += 1
        if self._count > MOST_FIELDS:
            raise ValueError(f"more than {MOST_FIELDS:,} fields, each use counted")
        if is_map(field):
            entry = field.message_type.fields_by_name
            return pa.map_(self._value(entry["key"], above), self._value(entry["value"], above))
        kind = self._value(field, above)
        return list_of(kind) if is_repeated(field) else kind

    def _value(self, field: Any, above: tuple[str, ...]) -> pa.DataType:
        if field.message_type is not None:
            return self.message(field.message_type, above)
        if field.cpp_type == field.CPPTYPE_STRING:
            return pa.binary() if field.type == field.TYPE_BYTES else pa.string()
        words = (
            word for word in _BY_CPP_TYPE if field.cpp_type == getattr(field, f"CPPTYPE_{word}")
        )
        return _BY_CPP_TYPE[next(words)]


def is_repeated(field: Any) -> bool:
    """Tell whether a field is a list, or a map."""
    is_repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if is_repeated is None else is_repeated)


def is_map(field: Any) -> bool:
    """Tell whether a field is a map."""
    message = field.message_type
    return message is not None and is_repeated(field) and message.GetOptions().map_entry
