"""Texts of options by name, parsed by the declarations of options.

A name that is not declared is an option of another operation (refused with the reason), or
unknown (refused with the nearest option's name). Case is not significant.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from mqstore.errors import InvalidOptionError
from mqstore.options import grammar
from mqstore.options.option import Option
from mqstore.options.secret import HIDDEN

_BROKER_KEYS: Final = frozenset(
    {
        "nameserver",
        "nameserveraddress",
        "namesrvaddr",
        "bootstrap.servers",
        "brokeraddr",
        "endpoints",
        "service.url",
        "admin.url",
    }
)
# Names that people make of other options' names: the nearest by letters is another one.
_MEANT: Final = {
    "maxrecordspertrigger": "maxOffsetsPerTrigger",
    "maxrowspertrigger": "maxOffsetsPerTrigger",
    "maxmessagespertrigger": "maxOffsetsPerTrigger",
}
_BROKER_PREFIXES: Final = ("kafka.", "pulsar.", "rocketmq.")
_NEAREST_NAMES: Final = 6
_FILE_SYSTEM: Final = "fs."  # Any option of a file system may be a key.
_SECRET: Final = re.compile("secret|password|token|access.?key", re.IGNORECASE)


def refusals(names: Iterable[str], reason: str) -> dict[str, tuple[str, str]]:
    """Return the entries of ``parse``'s ``refused`` for names refused for one reason."""
    return {name.lower(): (name, reason) for name in names}


def parse(
    options: Mapping[str, str],
    declarations: Mapping[str, Option],
    refused: Mapping[str, tuple[str, str]],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of the options that are set, by field, and their texts, by option name.

    ``options`` has lower-case keys; ``refused`` gives the name and the reason of keys that are
    known and yet not accepted. Raises InvalidOptionError.
    """
    known: dict[str, tuple[str, str, Option]] = {}
    for field, option in declarations.items():
        known |= {n.lower(): (field, n, option) for n in (option.name, option.alias) if n}
    values: dict[str, Any] = {}
    given = {}
    for key, text in options.items():
        prefixed = _prefixed(key, declarations)
        if prefixed is not None:
            field, option = prefixed
            values[field] = {**values.get(field, {}), key: option.value(text, key)}
            given[key] = HIDDEN
            continue
        if key not in known:
            raise _not_accepted(key, text, declarations, refused)
        field, name, option = known[key]
        if field in values:
            expected = f"{option.name} and {option.alias} are the same option: set one of them"
            raise InvalidOptionError(name, text, expected)
        values[field] = option.value(text, name)
        given[option.name] = _shown(key, text)
    return values, given


def _prefixed(key: str, declarations: Mapping[str, Option]) -> tuple[str, Option] | None:
    """Return the field and the option whose name is ``PREFIX.*``, where ``key`` begins so."""
    for field, option in declarations.items():
        prefix, star, _ = option.name.partition("*")
        if star and key.startswith(prefix) and key != prefix:
            return field, option
    return None


def _shown(key: str, text: str) -> str:
    """Return the text of an option for errors: not what is, or may be meant for, a secret."""
    return HIDDEN if _SECRET.search(key) or key.startswith(_FILE_SYSTEM) else text


def _not_accepted(
    key: str,
    text: str,
    declarations: Mapping[str, Option],
    refused: Mapping[str, tuple[str, str]],
) -> InvalidOptionError:
    text = _shown(key, text)
    if key in _BROKER_KEYS or key.startswith(_BROKER_PREFIXES):
        reason = "a cluster is named by the path rocketmq://HOST:9876/TOPIC or by nameServers"
        return InvalidOptionError(key, text, reason)
    if key in refused:
        name, reason = refused[key]
        return InvalidOptionError(name, text, reason)
    names = ["path", *(option.name for option in declarations.values())]
    others = {name: reason for name, reason in refused.values() if name not in names}
    known = [*names, *others]
    meant = _MEANT.get(key)
    close = meant if meant in known else grammar.nearest(key, known)
    if close is None:
        by_key = {name.lower(): name for name in names}
        near = get_close_matches(key, by_key, _NEAREST_NAMES, cutoff=0.0)
        advice = f"the nearest of {len(names)} are {', '.join(by_key[name] for name in near)}"
    else:
        why = f" {close} {others[close]}" if close in others else ""
        advice = f"did you mean {close}?{why}"
    return InvalidOptionError(key, text, f"unknown option; {advice}")
