"""What differs in two messages: hashes of their fields, by name."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from mqstore.audit.found import ALTERED, Difference, MessagePlace
from mqstore.audit.rows import AuditRule
from mqstore.audit.sides import Side
from mqstore.codec.message_digest import OF_CONTENT


@dataclass(frozen=True, slots=True)
class Content:
    """The message id, and the hash of each field of a message that counts, by name. Pickles."""

    message_id: str | None
    fields: Mapping[str, bytes]
    properties: Mapping[str, bytes]

    @classmethod
    def of(cls, row: Mapping[str, Any], rule: AuditRule) -> "Content":
        """Return that of a row with the columns of ``content_columns``."""
        fields = {"flag": str(row["flag"]).encode(), "body": row["body"] or b""}
        named = {name: value.encode() for name, value in row["properties"]}
        kept = {name: value for name, value in named.items() if name not in rule.left_out}
        return cls(row.get("msgId"), _hashed(fields), _hashed(kept))

    def differing(self, other: "Content") -> tuple[str, ...]:
        """Return the fields that differ: flag, body, then names of properties, sorted."""
        fields = [name for name, known in self.fields.items() if other.fields[name] != known]
        names = sorted(self.properties.keys() | other.properties.keys())
        differ = [n for n in names if self.properties.get(n) != other.properties.get(n)]
        return (*fields, *differ)


Contents: TypeAlias = Mapping[MessagePlace, Content]
Lookup: TypeAlias = Callable[[Sequence[MessagePlace]], Contents]
"""Returns the messages at places; what has expired meanwhile is not among them."""


def content_columns(rule: AuditRule) -> tuple[str, ...]:
    """Return the columns of which contents are made."""
    return (*OF_CONTENT, "msgId") if rule.by == "id" else OF_CONTENT


def contents_at(side: Side, rule: AuditRule, places: Sequence[MessagePlace]) -> Contents:
    """Return the messages of a side at places. Raises as ``scan``."""
    if not places:
        return {}
    found = side.rows_at(places, content_columns(rule))
    return {place: Content.of(row, rule) for place, row in found}


def described(
    found: Sequence[Difference], lookups: tuple[Lookup, Lookup], rule: AuditRule, step: int
) -> Iterator[Difference]:
    """Yield differences with the message ids, by id, and the fields that differ.

    ``step`` of them are looked up at a time.
    """
    for first in range(0, len(found), step):
        some = found[first : first + step]
        wanted = [one for one in some if rule.by == "id" or one.kind == ALTERED]
        here = lookups[0]([one.first for one in wanted if one.first])
        there = lookups[1]([one.second for one in wanted if one.second])
        for one in some:
            both = (
                here.get(one.first) if one.first else None,
                there.get(one.second) if one.second else None,
            )
            message_id = next((its.message_id for its in both if its is not None), None)
            fields: tuple[str, ...] = ()
            if both[0] is not None and both[1] is not None:
                fields = both[0].differing(both[1])
            yield replace(one, message_id=message_id if rule.by == "id" else None, fields=fields)


def _hashed(fields: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: hashlib.blake2b(one, digest_size=16).digest() for name, one in fields.items()}
