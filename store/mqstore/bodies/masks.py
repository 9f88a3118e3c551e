"""The option bodyMask: values of bodies that nobody downstream may see, hidden in the read."""

import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from mqstore.bodies.ddl import type_ddl
from mqstore.bodies.decoded import BodyDecoder, DecodedBodies
from mqstore.errors import InvalidOptionError
from mqstore.options.secret import Secret

BODY_MASK: Final = "bodyMask"
HASH, LAST_4, DROP = "hash", "last4", "drop"
_ACTIONS: Final = (HASH, LAST_4, DROP)
_STARS: Final = "****"
_LAST_SIGNS: Final = 4
_SHORTEST_TEXT: Final = 8
"""A text with fewer characters is hidden whole: four of them would be most of it."""
_PART: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`.=,\s]+))\s*")
_MASK_EXPECTED: Final = "must be PATH=hash|last4|drop, ...: customer.phone=last4, `a.b`=drop"
_HIDDEN_REASON: Final = "hidden, as bodyMask is set"
FieldPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BodyMasks:
    """Fields of bodies, each by its path, and what the read does to its values.

    A path goes through lists and through the values of maps, as Spark's ``body.items.sku`` does.
    """

    actions: tuple[tuple[FieldPath, str], ...]
    text: str


def body_masks(name: str, text: str) -> BodyMasks:
    """Return the masks of an option's text; raises InvalidOptionError."""
    actions: dict[FieldPath, str] = {}
    position = 0
    while True:
        path, position = _path(name, text, position)
        action, comma, position = _action(name, text, position)
        if path in actions:
            raise InvalidOptionError(name, text, f"names {'.'.join(path)} twice")
        actions[path] = action
        if not comma:
            break
    for path in actions:
        if any(path[:length] in actions for length in range(1, len(path))):
            raise InvalidOptionError(name, text, f"names {'.'.join(path)} and a field around it")
    return BodyMasks(tuple(actions.items()), text)


def _path(name: str, text: str, position: int) -> tuple[FieldPath, int]:
    parts = []
    while True:
        part = _PART.match(text, position)
        if part is None:
            raise InvalidOptionError(name, text, _MASK_EXPECTED)
        parts.append(part[1].replace("``", "`") if part[1] else part[2])
        position = part.end()
        if text[position : position + 1] != ".":
            return tuple(parts), position
        position += 1


def _action(name: str, text: str, position: int) -> tuple[str, bool, int]:
    rest, comma, _ = text[position:].partition(",")
    equals, action = rest.strip()[:1], rest.strip()[1:].strip().lower()
    if equals != "=" or action not in _ACTIONS:
        raise InvalidOptionError(name, text, _MASK_EXPECTED)
    return action, bool(comma), position + len(rest) + len(comma)


class MaskedBodies:
    """Decodes bodies as another decoder does, and hides the values of masked fields.

    The reasons of bad bodies keep their condition alone: what follows it may quote a value.
    """

    def __init__(
        self, decoder: BodyDecoder, masks: BodyMasks, kind: pa.DataType, secret: Secret | None
    ) -> None:
        self._decoder = decoder
        self._tree = _tree(masks)
        masked_type(masks, kind, secret)  # Raises.
        self._key = b"" if secret is None else secret.reveal().encode()

    def decode(self, bodies: pa.BinaryArray) -> DecodedBodies:
        """Return the values of bodies without what is masked."""
        decoded = self._decoder.decode(bodies)
        reasons = {row: _condition(reason) for row, reason in decoded.reasons.items()}
        return DecodedBodies(_masked(decoded.values, self._tree, self._key), reasons)


def masked_type(masks: BodyMasks, kind: pa.DataType, secret: Secret | None) -> pa.DataType:
    """Return the type of masked bodies.

    Raises InvalidOptionError for a field that the schema has not, for a type that an action does
    not take, for bodies without a field that is left, and for ``hash`` without a secret.
    """
    if secret is None and any(action == HASH for _, action in masks.actions):
        expected = f"is needed by {HASH}: a hash without a secret is found by trying all numbers"
        raise InvalidOptionError("bodyMaskSecret", "", expected)
    masked = kind
    for path, action in masks.actions:
        masked = _typed(masks, masked, path, path, action)
    if not masked.num_fields:
        raise InvalidOptionError(BODY_MASK, masks.text, "drops all fields")
    return masked


def _typed(
    masks: BodyMasks, kind: pa.DataType, path: FieldPath, rest: FieldPath, action: str
) -> pa.DataType:
    if pa.types.is_list(kind):
        element = kind.value_field
        return pa.list_(element.with_type(_typed(masks, element.type, path, rest, action)))
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(kind.key_type, item.with_type(_typed(masks, item.type, path, rest, action)))
    if not rest:
        return _leaf(masks, kind, path, action)
    places = kind.get_all_field_indices(rest[0]) if pa.types.is_struct(kind) else []
    if not places:
        raise InvalidOptionError(BODY_MASK, masks.text, f"{'.'.join(path)} is not in the schema")
    if action == DROP and len(rest) == 1:
        return pa.struct([field for field in kind if field.name != rest[0]])
    fields = [
        f.with_type(_typed(masks, f.type, path, rest[1:], action)) if f.name == rest[0] else f
        for f in kind
    ]
    return pa.struct(fields)


def _leaf(masks: BodyMasks, kind: pa.DataType, path: FieldPath, action: str) -> pa.DataType:
    is_text = pa.types.is_string(kind)
    takes = is_text or (
        action == HASH
        and (pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_binary(kind))
    )
    if not takes:
        types = "STRING" if action == LAST_4 else "STRING, BINARY, whole numbers and DECIMAL"
        expected = f"{'.'.join(path)} is {type_ddl(kind)}: {action} takes {types}"
        raise InvalidOptionError(BODY_MASK, masks.text, expected)
    return pa.string()


_Tree = Mapping[str, Any]
"""By the name of a field: an action, or the tree of its own fields."""


def _tree(masks: BodyMasks) -> _Tree:
    root: dict[str, Any] = {}
    for path, action in masks.actions:
        branch = root
        for name in path[:-1]:
            branch = branch.setdefault(name, {})
        branch[path[-1]] = action
    return root


def _masked(values: pa.Array, tree: "_Tree | str", key: bytes) -> pa.Array:
    """Return an array of any type with its masked fields hidden; nulls stay null."""
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _of_entries(values, tree, key)
    if isinstance(tree, str):
        return _last_4(values) if tree == LAST_4 else _hashed(values, key)
    fields, children = [], []
    for place, field in enumerate(kind):
        branch = tree.get(field.name)
        if branch == DROP:
            continue
        child = values.field(place)
        child = child if branch is None else _masked(child, branch, key)
        fields.append(field.with_type(child.type))
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())


def _of_entries(values: pa.Array, tree: "_Tree | str", key: bytes) -> pa.Array:
    """Return lists or maps whose elements are masked: ``values`` may be a slice of a buffer."""
    bounds = values.offsets.to_numpy(zero_copy_only=False).astype(np.int32)
    first, last = int(bounds[0]), int(bounds[-1])
    own_offsets = pa.array(bounds - first, pa.int32())
    mask = values.is_null() if values.null_count else None
    if pa.types.is_list(values.type):
        masked = _masked(values.values.slice(first, last - first), tree, key)
        element = values.type.value_field.with_type(masked.type)
        return pa.ListArray.from_arrays(own_offsets, masked, pa.list_(element), mask=mask)
    keys = values.keys.slice(first, last - first)
    masked = _masked(values.items.slice(first, last - first), tree, key)
    kind = pa.map_(values.type.key_type, values.type.item_field.with_type(masked.type))
    return pa.MapArray.from_arrays(own_offsets, keys, masked, kind, mask=mask)


def _last_4(texts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc  # noqa: PLC0415 - reads start without it

    shown = pc.binary_join_element_wise(
        _STARS, pc.utf8_slice_codeunits(texts, start=-_LAST_SIGNS), ""
    )
    is_long = pc.greater_equal(pc.utf8_length(texts), _SHORTEST_TEXT)
    return pc.if_else(is_long, shown, _STARS)


def _hashed(values: pa.Array, key: bytes) -> pa.Array:
    texts = map(_bytes_of(values.type), values.to_pylist())
    hashes = [None if text is None else hmac.digest(key, text, "sha256").hex() for text in texts]
    return pa.array(hashes, pa.string())


def _bytes_of(kind: pa.DataType) -> Callable[[Any], bytes | None]:
    if pa.types.is_binary(kind):
        return lambda value: value
    if pa.types.is_decimal(kind):
        return lambda value: None if value is None else format(value, "f").encode()
    return lambda value: None if value is None else str(value).encode()


def _condition(reason: str) -> str:
    return f"{re.split('[: ]', reason, maxsplit=1)[0]}: {_HIDDEN_REASON}"
