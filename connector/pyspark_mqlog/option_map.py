"""Spark's map of options: which of its keys are options of ours, and which are paths.

Spark hands keys over in lower case, and adds some of its own.
"""

import json
from collections.abc import Mapping
from typing import Final

from mqstore.errors import InvalidOptionError
from mqstore.options import grammar, store_paths

_PATH_KEYS: Final = frozenset({"path", "paths"})
_SINK_KEYS: Final = frozenset({"checkpointlocation", "queryname"})


def texts_of(own: Mapping[str, str], refused: Mapping[str, object]) -> dict[str, str]:
    """Return the options without paths, and without what Spark adds for a stream's sink.

    The latter stay where they are among the ``refused``.
    """
    added = _PATH_KEYS | {key for key in _SINK_KEYS if key not in refused}
    return {key: text for key, text in own.items() if key not in added}


def own_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options a user set, keys in lower case, without what CREATE TABLE adds.

    CREATE TABLE passes each option twice, plainly and as ``option.<key>``, and adds provider,
    owner, location and the table's properties, which are no options. See
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
