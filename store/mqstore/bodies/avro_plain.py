"""A schema of Avro as fastavro is to read it: bare values, and unions as records with one member.

A record is its fields on the wire, so a branch within a record of one field is the same bytes; the
value then says which branch it is.
"""

from collections.abc import Mapping
from typing import Any, Final

from mqstore.bodies.avro_types import AvroType
from mqstore.bodies.libraries import avro_library

_OF_LOGICAL: Final = ("logicalType", "precision", "scale")
_ONE_COLUMN: Final = ({"int", "long"}, {"float", "double"})


def plain_schema(parsed: Any) -> Any:
    """Return a parsed schema without logical types, its unions told apart; parsed again."""
    return avro_library().parse_schema(_plain(parsed, "body"))


def _plain(schema: Any, path: str) -> Any:
    if isinstance(schema, list):
        return _union(schema, path)
    if not isinstance(schema, Mapping):
        return schema
    own = {
        name: value
        for name, value in schema.items()
        if name not in _OF_LOGICAL and name[:2] != "__"
    }
    if isinstance(own["type"], list | Mapping):
        return _plain(own["type"], path)
    for name in ("items", "values"):
        if name in own:
            own[name] = _plain(own[name], path)
    if "fields" in own:
        within = own["name"].replace(".", "_")
        own["fields"] = [_field(field, f"{within}_{field['name']}") for field in own["fields"]]
    return own


def _field(field: Mapping[str, Any], path: str) -> dict[str, Any]:
    own = {**field, "type": _plain(field["type"], path)}
    is_wrapped = isinstance(field["type"], list) and _has_members(field["type"])
    if is_wrapped and own.get("default") is not None:
        own["default"] = {"member0": own["default"]}
    return own


def _union(branches: list[Any], path: str) -> list[Any]:
    plain = [_plain(branch, f"{path}_{n}") for n, branch in enumerate(branches)]
    if not _has_members(branches):
        return plain
    told: list[Any] = []
    for branch in plain:
        if branch == "null":
            told.append(branch)
            continue
        member = f"member{len(told) - told.count('null')}"
        word = _word(branch).replace(".", "_")
        fields = [{"name": member, "type": branch}]
        told.append({"type": "record", "name": f"{path}_{member}_{word}", "fields": fields})
    return told


def _has_members(branches: list[Any]) -> bool:
    filled = [branch for branch in branches if branch != "null"]
    is_one = {_word(branch) for branch in filled} in _ONE_COLUMN and not any(
        isinstance(branch, Mapping) and "logicalType" in branch for branch in filled
    )
    return len(filled) > 1 and not is_one


def _word(branch: Any) -> str:
    if not isinstance(branch, Mapping):
        return str(branch)
    return str(branch.get("name") or branch["type"])


def check_resolves(writer: AvroType, reader: AvroType, path: str = "") -> None:
    """Raise ValueError where the values of a writer would be others for a reader.

    Avro's own rules of resolution know no logical types: milliseconds would become microseconds.
    """
    writer, reader = _only_branch(writer), _only_branch(reader)
    if (writer.logical, reader.logical) != (None, None) and (
        writer.logical != reader.logical or writer.arrow != reader.arrow
    ):
        words = [one.logical or one.written for one in (writer, reader)]
        raise ValueError(f"{path} is {words[0]} in one and {words[1]} in the other")
    if writer.written == reader.written == "record":
        of_reader = dict(reader.inner)
        for name, inner in writer.inner:
            if name in of_reader:
                check_resolves(inner, of_reader[name], f"{path}.{name}".removeprefix("."))
    elif writer.written == reader.written and writer.inner:
        for (_, one), (_, other) in zip(writer.inner, reader.inner, strict=False):
            check_resolves(one, other, path)


def _only_branch(kind: AvroType) -> AvroType:
    while kind.written == "union" and len(kind.branches) == 1:
        kind = kind.branches[0]
    return kind
