"""The address of a store in an object store, and the options of reading it.

s3://bucket/broker-a/store                   Amazon S3 and what speaks like it; s3a:// is the same
gs://bucket/store                            Google Cloud Storage
abfs://container@account.dfs.core.windows.net/store    Azure
hdfs://namenode:8020/store                   HDFS

Whatever else pyarrow.fs.FileSystem.from_uri knows is passed to it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from mqstore.errors import InvalidOptionError
from mqstore.options import grammar
from mqstore.options.option import option, options_of
from mqstore.options.secret import HIDDEN, Secret, parse_secret

FILE_SYSTEM: Final = "fs."
REQUESTS_IN_FLIGHT: Final = "requestsInFlight"
ALLOW_UNCLEAN: Final = "allowUnclean"
MAX_OBJECTS: Final = "maxObjects"
MOST_SECONDS: Final = 1e6

_OF_MQLOG: Final = frozenset({REQUESTS_IN_FLIGHT, ALLOW_UNCLEAN, MAX_OBJECTS})
_OBJECT_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)((?:/.*)?)", re.DOTALL)
_NOT_OBJECTS: Final = frozenset({"file", "rocketmq", "rocketmqs"})
_ALIASES: Final = {"s3a": "s3"}
_WITH_PORTS: Final = frozenset({"hdfs", "viewfs"})
_MOST_IN_FLIGHT: Final = 64
_EXPECTED: Final = "write s3://BUCKET/FOLDER of the store"


def _seconds(text: str) -> float:
    found = float(text)
    if not 0 <= found <= MOST_SECONDS:  # Not for nan either.
        raise ValueError
    return found


IN_NUMBERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "request_timeout": _seconds,
    "connect_timeout": _seconds,
    "load_frequency": int,
    "port": int,
    "replication": int,
    "buffer_size": int,
    "default_block_size": int,
    "retry_time_limit": lambda text: timedelta(seconds=_seconds(text)),
}
"""How texts of options become the values that pyarrow.fs takes, where these are no texts."""
PLAIN: Final = frozenset({"region", "scheme", "endpoint_override", "anonymous", *IN_NUMBERS})
"""Options whose values are no secrets and may stand in the text of an error."""


_in_flight = partial(grammar.count, high=_MOST_IN_FLIGHT)


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A store's address, and how it is read. Pickles into tasks; see Secret.

    ``file_system`` are keyword arguments of the pyarrow.fs class of the scheme.
    """

    address: str
    file_system: tuple[tuple[str, Secret], ...] = option(f"{FILE_SYSTEM}*", parse_secret, ())
    requests_in_flight: int = option(REQUESTS_IN_FLIGHT, _in_flight, 8)
    allow_unclean: bool = option(ALLOW_UNCLEAN, grammar.boolean, False)
    max_objects: int = option(MAX_OBJECTS, grammar.count, 1_000_000)

    @property
    def scheme(self) -> str:
        """What stands before ``://``."""
        return self.address.partition("://")[0]


OBJECT_OPTIONS: Final = options_of(ObjectStore)
"""The options of object stores, by the field of ObjectStore that each is."""


def is_object_store(path: str) -> bool:
    """Tell whether a path is the address of a store in an object store."""
    match = _OBJECT_ADDRESS.match(path)
    return match is not None and match[1].lower() not in _NOT_OBJECTS


def is_object_option(name: str) -> bool:
    """Tell whether an option is one of object stores."""
    return name.startswith(FILE_SYSTEM) or name in _OF_MQLOG


def parse_object_store(path: str, texts: Mapping[str, str]) -> ObjectStore:
    """Return the store that ``path`` names, read with the options ``texts``; connects to nothing.

    Raises InvalidOptionError, which never shows the value of an option fs.…, nor a path that has
    a password in it.
    """
    options = {name: text for name, text in texts.items() if is_object_option(name)}
    values: dict[str, Any] = {"file_system": ()}
    for name, text in sorted(options.items()):
        if name.startswith(FILE_SYSTEM):
            secret = OBJECT_OPTIONS["file_system"].value(text, name)
            values["file_system"] += ((name.removeprefix(FILE_SYSTEM), secret),)
    for field, declared in OBJECT_OPTIONS.items():
        if declared.name in options:
            values[field] = declared.value(options[declared.name])
    return ObjectStore(_address(path), **values)


def _address(path: str) -> str:
    match = _OBJECT_ADDRESS.fullmatch(path)
    assert match is not None
    scheme, authority, below = match.groups()
    scheme = _ALIASES.get(scheme.lower(), scheme.lower())
    before_at = authority.rpartition("@")[0]
    # A secret may have slashes in it: behind the first of them the address looks like a path.
    has_password = ":" in (authority if scheme not in _WITH_PORTS and "@" in below else before_at)
    if has_password:
        expected = "has a password in it: give keys as options (fs.access_key, fs.secret_key)"
        raise InvalidOptionError("path", f"{scheme}://{HIDDEN}", expected)
    if "?" in path:
        expected = f"options stand beside the path, as {FILE_SYSTEM}NAME: leave out ?…"
        raise InvalidOptionError("path", path.partition("?")[0], expected)
    if "*" in path:
        raise InvalidOptionError("path", path, "globs are for directories: name stores one by one")
    if any(ord(c) < 0x20 or "\ud800" <= c <= "\udfff" for c in path):
        raise InvalidOptionError("path", path, f"has a control character in it: {_EXPECTED}")
    parts = below.strip("/").split("/") if below.strip("/") else []
    if {"", ".", ".."} & set(parts):
        raise InvalidOptionError("path", path, f"has an empty name, . or .. in it: {_EXPECTED}")
    if not authority and not parts:
        raise InvalidOptionError("path", path, f"names no bucket: {_EXPECTED}")
    return "/".join((f"{scheme}://{authority}", *parts))
