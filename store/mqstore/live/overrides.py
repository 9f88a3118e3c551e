"""The option ``brokerAddresses``: its names are those of registered brokers, or lead nowhere."""

import logging
from collections.abc import Iterable
from functools import cache

from mqstore.errors import shown
from mqstore.read.selection import instead

_LOG = logging.getLogger(__name__)


def warn_of_strangers(named: Iterable[str], registered: Iterable[str]) -> None:
    """Warn, once in a process, of each name that no registered broker has.

    No error: a broker that is away is not registered, and its address may be right.
    """
    known = frozenset(registered)
    for name in sorted(set(named) - known):
        _warn(name, known)


@cache
def _warn(name: str, known: frozenset[str]) -> None:
    advice = instead("broker", name, known)
    _LOG.warning("option brokerAddresses: no broker %s is registered; %s", shown(name), advice)
