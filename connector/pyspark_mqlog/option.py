"""One option, and how Spark's string map becomes values by such declarations.

A key that is no option of ours is one of three things: Spark's own (Spark adds it), known but
not for here (refused with the reason), or unknown (refused with the nearest option). None is
ignored because it was not understood.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, get_type_hints

from mqstore.errors import InvalidOptionError
from mqstore.options import grammar, store_paths

MESSAGES: Final = frozenset({"messages"})

_PATH_KEYS: Final = frozenset({"path", "paths"})
_SINK_KEYS: Final = frozenset({"checkpointlocation", "queryname"})
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
_BROKER_PREFIXES: Final = ("kafka.", "pulsar.", "rocketmq.")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, how its text is read, its default as text (None: none)."""

    name: str
    parse: Callable[[str, str], Any]
    default: str | None = None
    alias: str | None = None
    tables: frozenset[str] = MESSAGES


def any_text(_name: str, text: str) -> str:
    """Return the text of an option that takes any."""
    return text


def one_of(*words: str) -> Callable[[str, str], str]:
    """Return the parser of an option that is one of ``words``."""
    return partial(grammar.choice, words=words)


def declared(kind: type) -> dict[str, Option]:
    """Return the options among the fields of a dataclass, by field name."""
    hints = get_type_hints(kind, include_extras=True)
    found = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
    return {name: option for name, option in found.items() if isinstance(option, Option)}


def refusals(names: Iterable[str], reason: str) -> dict[str, tuple[str, str]]:
    """Return the entries of ``parse``'s ``refused`` for names refused for one reason."""
    return {name.lower(): (name, reason) for name in names}


def parse(
    options: Mapping[str, str],
    declarations: Mapping[str, Option],
    refused: Mapping[str, tuple[str, str]],
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the value of each declared field, and the options that are set, as typed.

    ``options`` has lower-case keys; ``refused`` gives the name and the reason of keys that are
    known and yet not accepted. Raises InvalidOptionError.
    """
    known: dict[str, tuple[str, str, Option]] = {}
    for field, option in declarations.items():
        known |= {n.lower(): (field, n, option) for n in (option.name, option.alias) if n}
    values: dict[str, Any] = {}
    given = {}
    for key, text in options.items():
        if key in _PATH_KEYS or (key in _SINK_KEYS and key not in refused):
            continue
        if key not in known:
            raise _not_accepted(key, text, declarations, refused)
        field, name, option = known[key]
        if any("\ud800" <= c <= "\udfff" for c in text):
            raise InvalidOptionError(name, text, "is no text: it has half of a surrogate pair")
        if field in values:
            raise InvalidOptionError(name, text, f"{option.name} and {option.alias} are the same")
        values[field] = option.parse(name, text)
        given[option.name] = text
    for field, option in declarations.items():
        if field not in values:
            default = option.default
            values[field] = None if default is None else option.parse(option.name, default)
    return values, given


def own_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options a user set, keys in lower case, without what CREATE TABLE adds.

    There each option stands twice, plainly and as ``option.<key>``, beside provider, owner,
    location and the table's properties, which are nobody's options. See
    CatalogV2Util#convertTableProperties.
    """
    own = {key.lower(): text for key, text in options.items()}
    if "provider" not in own:
        return own
    return {k: text for k, text in own.items() if f"option.{k}" in own or k == "path"}


def named_paths(own: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    """Return the paths without their ``#table``, and the table that they name, if any.

    ``load("p")`` comes as ``path``, ``load(["p", "q"])`` as a JSON array in ``paths``.
    """
    paths = [own["path"]] if "path" in own else []
    if "paths" in own:
        paths += grammar.names("paths", own["paths"]) if own["paths"] != "[]" else ()
    split = [store_paths.split_table(path) for path in paths]
    tables = {table for _, table in split if table is not None}
    if len(tables) > 1:
        raise InvalidOptionError("path", json.dumps(paths), "paths name more than one #table")
    return tuple(path for path, _ in split), next(iter(tables), None)


def _not_accepted(
    key: str,
    text: str,
    declarations: Mapping[str, Option],
    refused: Mapping[str, tuple[str, str]],
) -> InvalidOptionError:
    if key in _BROKER_KEYS or key.startswith(_BROKER_PREFIXES):
        reason = "mqlog reads store files, not brokers; give the store path"
        return InvalidOptionError(key, text, reason)
    if key in refused:
        name, reason = refused[key]
        return InvalidOptionError(name, text, reason)
    names = ["path", *(option.name for option in declarations.values())]
    close = grammar.nearest(key, names)
    advice = f"did you mean {close}?" if close else f"the options are {', '.join(names)}"
    return InvalidOptionError(key, text, f"unknown option; {advice}")
