"""Errors and warnings of clusters that say what to do."""

import logging
from collections.abc import Iterable, Sequence
from functools import cache

from mqstore.errors import StoreError, shown
from mqstore.live.remoting.errors import BrokerUnavailableError
from mqstore.read.known_names import instead, near_names

_LOG = logging.getLogger(__name__)
_SILENT: set[tuple[str, str]] = set()
"""Servers that were warned of in this process."""


def absence(broker: str, topic: str) -> str:
    """Return the sentence about a topic that name servers show on a broker which lacks it."""
    return (
        f"name servers show topic {shown(topic)} on {shown(broker)}, which does not have it, as "
        "after a deletion that ended half-way; createTopic=true of a write or mqadmin updateTopic "
        "makes it there again, and name servers forget it when the broker is started again"
    )


def located(broker: str, error: BrokerUnavailableError) -> BrokerUnavailableError:
    """Return the error with the broker's name and what to do where its address is not ours."""
    reason = error.reason
    if reason.startswith("no connection"):
        reason = (
            f"{reason.rstrip('.')}. The broker registered this address at the name server; where "
            f'it cannot be reached from here, set brokerAddresses={{"{broker}":"host:port"}}'
        )
    return type(error)(f"{broker} at {error.address}", reason)


def all_failed(failures: Sequence[BrokerUnavailableError]) -> BrokerUnavailableError:
    """Return the error for name servers none of which answered: of one kind if all have that."""
    if len(failures) == 1:
        return failures[0]
    reasons = "; ".join(f"{e.address}: {e.reason}" for e in failures)
    kinds = {type(failure) for failure in failures}
    kind = kinds.pop() if len(kinds) == 1 else BrokerUnavailableError
    return kind("no name server answered", reasons)


def no_topic(topic: str, option: str, names: Sequence[str]) -> str:
    """Return the sentence about a topic that nobody knows, with the nearest of ``names``."""
    close = near_names("topic", topic, names)
    advice = f"; did you mean {', '.join(map(shown, close))}?" if close else ""
    return f"option {option}: no broker has a topic {shown(topic)}{advice}"


def warn_of_strangers(named: Iterable[str], registered: Iterable[str]) -> None:
    """Warn, once in a process, of each name in ``brokerAddresses`` that no registered broker has.

    No error: a broker that is away is not registered, and its address may be right.
    """
    known = frozenset(registered)
    for name in sorted(set(named) - known):
        _warn(name, known)


@cache
def _warn(name: str, known: frozenset[str]) -> None:
    advice = instead("broker", name, known)
    _LOG.warning(
        "option brokerAddresses: no broker %s is registered, and a read leaves it out; %s",
        shown(name),
        advice,
    )


def warn_of_silence(address: str, error: StoreError | None, *, is_proxy: bool) -> None:
    """Warn, once in a process, of a name server or a proxy that does not answer as others do.

    ``error`` None: it is late.
    """
    kind = "proxy" if is_proxy else "name server"
    reason = "it is late" if error is None else str(error)
    if (address, kind) not in _SILENT:
        _SILENT.add((address, kind))
        _LOG.warning(
            "%s %s is passed over, and a broker that it alone knows is left out: %s",
            kind,
            address,
            reason,
        )


@cache
def warn_of_unregistered(broker: str, why: str) -> None:
    """Warn, once in a process, that a broker which something names is registered nowhere."""
    _LOG.warning(
        "broker %s is not registered at any name server that answers, and its messages are left "
        "out: %s names it. Start it, and wait until it is registered",
        shown(broker),
        why,
    )
