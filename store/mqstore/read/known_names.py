"""The advice of errors about names of topics and groups that are not there: the nearest ones."""

from collections.abc import Collection, Sequence, Set

from mqstore.errors import shown
from mqstore.format.names import REPLY_SUFFIX, is_system_group, is_system_topic
from mqstore.options.grammar import near

_SHOWN_NAMES = 5


def unknown(option: str, kind: str, name: str, known: Set[str]) -> str:
    """Return the text of an error: no topic or group of that name, but these."""
    return f"option {option}: no {kind} {shown(name)}; {instead(kind, name, known)}"


def instead(kind: str, name: str, known: Set[str]) -> str:
    """Return the advice of an error about an unknown name: the nearest ones, or those there are."""
    close = near_names(kind, name, known)
    if close:
        return f"did you mean {listed(close)}?"
    # The user's own first: a broker has a dozen others.
    ordered = sorted(known, key=lambda k: (_is_rocketmqs(kind, k, known), k))
    return f"the {kind}s are {listed(ordered)}" if known else f"there is no {kind} at all"


def near_names(kind: str, name: str, known: Collection[str]) -> list[str]:
    """Return known topics or groups like ``name``: RocketMQ's own only if ``name`` is like those.

    ``kind`` is ``topic`` or ``group``.
    """
    of_users = [one for one in known if not _is_rocketmqs(kind, one, known)]
    return near(name, known if _is_rocketmqs(kind, name, known) else of_users)


def _is_rocketmqs(kind: str, name: str, known: Collection[str]) -> bool:
    """Tell whether a name is RocketMQ's own: a cluster has a topic of its name too.

    Source: TopicConfigManager (the topics that a broker makes), MixAll#REPLY_TOPIC_POSTFIX.
    """
    if kind != "topic":
        return is_system_group(name)
    is_cluster = f"{name}{REPLY_SUFFIX}" in known
    return is_system_topic(name) or is_cluster or name.endswith(REPLY_SUFFIX)


def listed(names: Sequence[str]) -> str:
    """Return the first names, printable, and how many more there are."""
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(map(shown, names[:_SHOWN_NAMES])) + more
