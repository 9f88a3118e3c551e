"""The request for a backlog: groups, their subscriptions, and the way of counting."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.format.names import RETRY_PREFIX, is_system_group
from mqstore.options import grammar
from mqstore.options.grammar import Sql92
from mqstore.read.sql.filter import parse_sql
from mqstore.read.tags import SUB_ALL, check_tags

EXACT: Final = "exact"
HASH: Final = "hash"
OFFSET: Final = "offset"
LAG_MODES: Final = (EXACT, HASH, OFFSET)
ANY_TOPIC: Final = "*"
LATE_AFTER_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class BacklogRequest:
    """A request for a backlog. Raises InvalidOptionError for a value that is not accepted.

    groups: a comma list, or ``/regex/`` on the whole name; None for all.
    subscriptions: group → topic → tag expression, or Sql92. The topic ``*`` stands
    for all topics of the group that are not named, but its retry topic, which consumers take whole.
    lag_mode: how lagMatching is counted. ``exact``: by ConsumeQueue hash, then by the tag
    itself, SQL92 by the properties; ``hash``: by the hash only, as the broker's metrics do, for
    which every message passes SQL92; ``offset``: no expression is looked at.
    with_members: whether who is connected is asked for, and what they subscribe to. Without, no
    subscription is known but those that are given, nor how many consumers there are.
    system: whether RocketMQ's own groups are chosen too, where they are not named.
    late_after_ms: how long the first message may wait until the status is LATE.
    by_tag: one row for each tag among the unconsumed messages of a queue, read from the
    records whatever the lag_mode; one row with a null tag if there are none.
    """

    groups: str | None = None
    subscriptions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    lag_mode: str = EXACT
    by_tag: bool = False
    with_members: bool = True
    system: bool = False
    late_after_ms: int = LATE_AFTER_MS

    def __post_init__(self) -> None:
        if self.lag_mode not in LAG_MODES:
            raise InvalidOptionError("lagMode", self.lag_mode, f"accepted: {', '.join(LAG_MODES)}")
        for expressions in self.subscriptions.values():
            for expression in expressions.values():
                if isinstance(expression, Sql92):
                    parse_sql(expression, option="subscriptions")
                else:
                    check_tags(expression, option="subscriptions")
        self.group_test()

    def group_test(self) -> Callable[[str], bool]:
        """Return the test of a group's name; groups of subscriptions are named too."""
        chosen = group_test(self.groups, system=self.system)
        return lambda group: chosen(group) or (self.groups is None and group in self.subscriptions)

    @property
    def named(self) -> set[str]:
        """The groups that are named, by the option or by a subscription."""
        return named_groups(self.groups) | set(self.subscriptions)

    def subscription(self, group: str, topic: str) -> str | None:
        """Return the expression ``group`` takes ``topic`` with, or None if it is not given.

        A retry topic is taken whole by the group it belongs to.
        Reference: DefaultMQPushConsumerImpl#copySubscription.
        """
        expressions = self.subscriptions.get(group, {})
        retry = topic.startswith(RETRY_PREFIX)
        found = expressions.get(topic)
        if found is None:
            found = SUB_ALL if retry else expressions.get(ANY_TOPIC)
        return SUB_ALL if found == "" else found


def group_test(groups: str | None, *, system: bool) -> Callable[[str], bool]:
    """Return the test of the option: a name of the list, or a match of the regex.

    RocketMQ's own groups pass where they are named, else only with ``system``.
    """
    pattern = group_pattern(groups)
    names = set() if pattern else group_names(groups)
    if names:
        return names.__contains__

    def chosen(group: str) -> bool:
        visible = system or not is_system_group(group)
        return visible and (pattern is None or pattern.fullmatch(group) is not None)

    return chosen


def group_pattern(groups: str | None) -> "re.Pattern[str] | None":
    """Return the regex of ``/regex/``; None for names."""
    text = (groups or "").strip()
    if not text.startswith("/"):
        return None
    if len(text) < 3 or not text.endswith("/"):
        raise InvalidOptionError("groups", text, "a regex stands between slashes: /order-.*/")
    try:
        return re.compile(text[1:-1])
    except (re.error, OverflowError) as error:
        raise InvalidOptionError("groups", text, f"no regular expression: {error}") from error


def named_groups(groups: str | None) -> set[str]:
    """Return the names of the option; none for a regex, and for all groups."""
    return set() if group_pattern(groups) else group_names(groups)


def group_names(groups: str | None) -> set[str]:
    """Return the names of a comma list or a JSON array; none stand for all groups."""
    if groups is None:
        return set()
    if groups.lstrip().startswith("["):
        return set(grammar.names("groups", groups))
    names = {name.strip() for name in groups.split(",")} - {""}
    if not names:
        raise InvalidOptionError("groups", groups, "a comma list of names, or /regex/")
    return names
