"""Filters of messages: by tag expression (``A || B`` or ``*``), SQL92, key, message id.

A message passes in two steps, as on its way from a broker to a consumer: the broker compares
the hash in the ConsumeQueue unit, the client the tag itself, because hashes collide (``Aa``
and ``BB`` have the same). A message without TAGS passes ``*`` only; one whose TAGS is
literally ``a||b`` too.

Reference: org.apache.rocketmq.common.filter.FilterAPI#buildSubscriptionData,
DefaultMessageFilter#isMatchedByConsumeQueue, PullAPIWrapper#processPullResult.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqstore.errors import InvalidOptionError
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.hashing import java_hash
from mqstore.format.names import SCHEDULE_TOPIC
from mqstore.format.properties import KEY_SEPARATOR
from mqstore.read.settings import ScanSettings
from mqstore.read.sql.conversions import TRIMMED
from mqstore.read.sql.filter import SqlFilter, parse_sql

SUB_ALL: Final = "*"
SEPARATOR: Final = "||"
# String#trim takes off what is at or below the space, and nothing else.
_INT32: Final = np.iinfo(np.int32)
_FEW_CODES: Final = 16
_SINGLE_BAR: Final = re.compile(r"(?<!\|)\|(?:\|\|)*(?!\|)")
_SQL92: Final = re.compile(r"[<>=]|\s(?:and|or|between|in|is|not)\s", re.IGNORECASE)
_IDS: Final = ("msgId", "offsetMsgId")


@dataclass(frozen=True, slots=True)
class TagFilter:
    """The tags of an expression, and their hashes. Pickles; ``*`` is no filter but None."""

    tags: frozenset[str]
    codes: frozenset[int]

    def matches_hash(self, tags_codes: Int64s) -> Mask:
        """Tell for each tagsCode (native int64[n]) whether the message may pass: bool[n].

        A code that is no hash but an address in consumequeue_ext, or the delivery time of a
        delayed message, may be any tag's: only the tag can tell.
        """
        found = ~are_hashes(tags_codes)
        if len(self.codes) > _FEW_CODES:
            return found | np.isin(tags_codes, np.fromiter(self.codes, np.int64))
        for code in self.codes:
            found |= tags_codes == code
        return found

    def may_match(self, topic: str, tags_codes: Int64s) -> Mask:
        """As ``matches_hash``, for the queue of ``topic``: the schedule topic has no hashes."""
        if topic == SCHEDULE_TOPIC:
            return np.ones(len(tags_codes), np.bool_)
        return self.matches_hash(tags_codes)

    def matches(self, tags: pa.Array) -> Mask:
        """Tell for each TAGS property (a string array, null for none) whether it passes."""
        wanted = pa.array(sorted(self.tags), tags.type)
        found: Mask = pc.is_in(tags, value_set=wanted).to_numpy(zero_copy_only=False)
        return found


def are_hashes(tags_codes: Int64s) -> Mask:
    """Tell which tagsCodes may be hashes of tags: those within 32 bits, as String#hashCode is."""
    hashes: Mask = (tags_codes >= _INT32.min) & (tags_codes <= _INT32.max)
    return hashes


def parse_tags(expression: str | None, *, option: str = "tags") -> TagFilter | None:
    """Return the filter of ``expression``, or None for all messages (null, empty or ``*``).

    ``option`` is named by the InvalidOptionError raised for an expression without a tag.

    As the broker does: ``*`` inside a list is a tag of that name, a single ``|`` part of one.
    Differs from the broker: ``" || "`` subscribes to nothing at all there; here it is refused
    as ``||`` is.
    """
    if expression is None or expression in ("", SUB_ALL):
        return None
    trimmed = (tag.strip(TRIMMED) for tag in expression.split(SEPARATOR))
    tags = frozenset(tag for tag in trimmed if tag)
    if not tags:
        accepted = "an expression with at least one tag, such as A || B, or * for all messages"
        raise InvalidOptionError(option, expression, accepted)
    return TagFilter(tags, frozenset(map(java_hash, tags)))


def check_tags(expression: str, *, option: str = "tags") -> None:
    """Raise InvalidOptionError for tags that match nothing, or that ``parse_tags`` refuses.

    A broker takes any text between ``||`` for a tag, also SQL92 or a text with a single ``|``, and
    then no message matches. Reference: FilterAPI#buildSubscriptionData.
    """
    parse_tags(expression, option=option)
    if _SINGLE_BAR.search(expression):
        raise InvalidOptionError(option, expression, "a single | is no separator: write A || B")
    if _SQL92.search(expression):
        advice = (
            "looks like SQL92, and tags are names: write A || B here, and filter by properties "
            "with the option sql"
        )
        raise InvalidOptionError(option, expression, advice)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A message passes if its tag and its properties do, and it has any of the keys, of the ids.

    Ids are upper-case hex and may be given in lower case; keys and tags are taken as they are.
    Reference: MQAdminImpl#queryMessage (keys), #viewMessage (ids).
    """

    tags: TagFilter | None
    sql: SqlFilter | None
    keys: frozenset[str]
    msg_ids: frozenset[str]

    @classmethod
    def of(cls, settings: ScanSettings) -> "RowFilter":
        """Return the filter of a scan; raises InvalidOptionError for an expression."""
        ids = frozenset((*settings.msg_ids, *(text.upper() for text in settings.msg_ids)))
        sql = parse_sql(settings.sql)
        return cls(parse_tags(settings.tags), sql, frozenset(settings.keys), ids)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that ``matches`` looks at."""
        looked_at = {"tags": self.tags is not None, "keys": bool(self.keys)}
        looked_at["properties"] = self.sql is not None
        looked_at |= dict.fromkeys(_IDS, bool(self.msg_ids))
        return tuple(name for name, used in looked_at.items() if used)

    def matches(self, column: Callable[[str], pa.Array]) -> Mask | None:
        """Return which of n messages pass, given their columns by name; None if all do."""
        masks = []
        if self.tags is not None:
            masks.append(self.tags.matches(column("tags")))
        if self.sql is not None:
            masks.append(self.sql.matches(column("properties")))
        if self.keys:
            masks.append(self._has_key(column("keys")))
        if self.msg_ids:
            masks.append(self._has_id([column(name) for name in _IDS]))
        if not masks:
            return None
        passed: Mask = np.logical_and.reduce(masks)
        return None if passed.all() else passed

    def _has_key(self, keys: pa.StringArray) -> Mask:
        # Substrings first, which is vectorised and leaves few; then the words of those.
        may = np.zeros(len(keys), np.bool_)
        for key in self.keys:
            may |= pc.match_substring(keys, key).fill_null(False).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(may).tolist():
            may[row] = not self.keys.isdisjoint(keys[row].as_py().split(KEY_SEPARATOR))
        return may

    def _has_id(self, ids: Sequence[pa.StringArray]) -> Mask:
        wanted = pa.array(sorted(self.msg_ids), pa.string())
        found = np.zeros(len(ids[0]), np.bool_)
        for column in ids:
            found |= pc.is_in(column, value_set=wanted).to_numpy(zero_copy_only=False)
        return found
