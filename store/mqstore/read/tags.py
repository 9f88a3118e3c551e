"""Filters of messages by tag expression: ``A || B`` or ``*``.

A message passes in two steps, as on its way from a broker to a consumer: the broker compares
the hash in the ConsumeQueue unit, the client the tag itself, because hashes collide (``Aa``
and ``BB`` have the same). A message without TAGS passes ``*`` only; one whose TAGS is
literally ``a||b`` too.

Reference: org.apache.rocketmq.common.filter.FilterAPI#buildSubscriptionData,
DefaultMessageFilter#isMatchedByConsumeQueue, PullAPIWrapper#processPullResult.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.errors import InvalidOptionError
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.hashing import java_hash
from mqstore.format.names import SCHEDULE_TOPIC
from mqstore.read.sql.conversions import TRIMMED

SUB_ALL: Final = "*"
SEPARATOR: Final = "||"
# String#trim takes off what is at or below the space, and nothing else.
_INT32: Final = np.iinfo(np.int32)
_FEW_CODES: Final = 16
_SINGLE_BAR: Final = re.compile(r"(?<!\|)\|(?:\|\|)*(?!\|)")
_SQL92: Final = re.compile(r"[<>=]|\s(?:and|or|between|in|is|not)\s", re.IGNORECASE)


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
