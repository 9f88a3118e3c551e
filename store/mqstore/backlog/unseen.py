"""Groups that consume although their broker knows no consumer: how many there are is unknown.

A broker knows the clients that are connected to it. Those of a proxy in cluster mode are not, nor
are streams that commit for a group. So a group counts as one without consumers only where no other
server may know some, and where nothing that it popped is in flight.
"""

import logging
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from mqstore.backlog.items import BacklogItem
from mqstore.errors import shown
from mqstore.format.names import is_broadcast_group, is_system_group

_LOG = logging.getLogger(__name__)
_NAMED: Final = 5


def without_popping(items: Sequence[BacklogItem]) -> list[BacklogItem]:
    """Return the items, with ``consumers`` None in place of 0 of groups with pops in flight."""
    popping = {item.group for item in items if item.popped and item.popped.inflight}
    return [
        replace(item, consumers=None) if item.consumers == 0 and item.group in popping else item
        for item in items
    ]


def warn_of_hidden(items: Sequence[BacklogItem], reason: str) -> None:
    """Warn of groups with messages that wait and consumers that may be elsewhere, for a reason."""
    groups = {
        item.group
        for item in items
        if item.consumers is None
        and item.lag
        and not (item.topic_gone or is_system_group(item.group) or is_broadcast_group(item.group))
    }
    if groups:
        _warn(reason, tuple(sorted(groups)))


def warn_of_unseen(groups: Iterable[str], online: Container[str], reason: str) -> None:
    """Warn of groups without consumers that may be elsewhere, for a reason; "": they have none."""
    unseen = [
        group
        for group in groups
        if group not in online and not (is_system_group(group) or is_broadcast_group(group))
    ]
    if reason and unseen:
        _warn(reason, tuple(sorted(unseen)))


@lru_cache(maxsize=1024)
def _warn(reason: str, groups: tuple[str, ...]) -> None:
    """Warn, once in a process."""
    more = f" and {len(groups) - _NAMED} more" if len(groups) > _NAMED else ""
    names = f"{', '.join(map(shown, groups[:_NAMED]))}{more}"
    _LOG.warning("whether groups have consumers is not known of %s: %s", names, reason)
