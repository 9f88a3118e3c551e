"""The paths of stores in options: directories, ``file:`` URIs, globs, and a table after ``#``.

/data/broker-a/store         one store
~/store                      one below the home directory of who runs the driver
file:/data/broker-a/store    the same, as Spark's catalog writes it
/data/brokers/*/store        every directory that matches, sorted
/data/broker-a/store#backlog one of its tables

Options for other directories take paths and ``file:`` URIs, without globs and tables.
"""

import glob
import os
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

from mqstore.errors import InvalidOptionError, StoreNotFoundError

_TABLE_SUFFIX: Final = re.compile(r"(.+)#([A-Za-z_]+)/?")
_HOST_FORM: Final = r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])"
_PORT_FORM: Final = ":[0-9]{2,5}"
_SERVERS: Final = re.compile(
    rf"{_HOST_FORM}{_PORT_FORM}(?:[,;]{_HOST_FORM}{_PORT_FORM})*(?:/.*)?", re.ASCII
)
_WEB: Final = re.compile(
    rf"(?:http(s?)|tcp|rmq)://({_HOST_FORM}(?:{_PORT_FORM})?(?:[/,;].*)?)", re.ASCII
)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def split_table(path: str) -> tuple[str, str | None]:
    """Return the path and the table that ``path#table`` names, or the path and None."""
    match = _TABLE_SUFFIX.fullmatch(path)
    return (match[1], match[2]) if match else (path, None)


def expand(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the absolute directories that ``paths`` name, those of a glob in sorted order.

    A path with ``*``, ``?`` or ``[`` is a glob, unless those characters are in the names of
    existing folders; other paths need not exist. Raises StoreNotFoundError for a glob that matches
    no directory, InvalidOptionError for an empty path and a URI that is not ``file:``.
    """
    found: list[str] = []
    for path in paths:
        local = _local("path", path)
        pattern = _pattern(local)
        if pattern is not None:
            matches = sorted(m for m in glob.glob(pattern) if os.path.isdir(m))  # noqa: PTH112, PTH207
            if not matches:
                raise StoreNotFoundError(local, "the glob matches no directory")
            found.extend(matches)
        else:
            found.append(local)
    # Absolute, because tasks of a cluster run in other directories than the driver.
    return tuple(os.path.abspath(root) for root in found)  # noqa: PTH100 - keeps links as named


def _pattern(path: str) -> str | None:
    """Return ``path`` as a glob, with existing folders escaped; None if it has no wildcard."""
    there, rest = path, ""
    while glob.has_magic(there) and not os.path.lexists(there):
        there, name = os.path.split(there)
        rest = os.path.join(name, rest) if rest else name  # noqa: PTH118
    if not glob.has_magic(rest):
        return None
    return os.path.join(glob.escape(there), rest)  # noqa: PTH118


def cluster_meant(path: str) -> str | None:
    """Return the address of the cluster that a path in another form seems to name, or None.

    The forms are ``HOST:9876`` and ``http://HOST:9876``.
    """
    if _SERVERS.fullmatch(path):
        return f"rocketmq://{path}"
    web = _WEB.fullmatch(path)
    return f"rocketmq{web[1] or ''}://{web[2]}" if web else None


def absolute(option: str, path: str) -> str:
    """Return the absolute path of the one directory that ``option`` names, which need not exist.

    Raises InvalidOptionError for an empty path and a URI that is not ``file:``.
    """
    return os.path.abspath(_local(option, path))  # noqa: PTH100 - keeps links as named


def _local(option: str, path: str) -> str:
    meant = cluster_meant(path) if option == "path" and not os.path.lexists(path) else None
    if meant:
        raise InvalidOptionError(option, path, f"is no directory; a cluster is {meant}")
    local = os.path.expanduser(_of_uri(option, path))  # noqa: PTH111 - a path may be empty
    if not local.strip():
        raise InvalidOptionError(option, path, "must be the path of a directory")
    if "\0" in local or not _encodes(local):
        expected = "no directory can have such a name: it has U+0000 or half of a surrogate pair"
        raise InvalidOptionError(option, path, expected)
    return local


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _of_uri(option: str, path: str) -> str:
    scheme = _SCHEME.match(path)
    if scheme is None:
        return path
    if scheme[1].lower() != "file":
        raise InvalidOptionError(
            option,
            path,
            "is no directory, local or mounted (stores at s3://… are only read)",
        )
    parts = urlsplit(path.replace("#", "%23").replace("?", "%3F"))
    if parts.netloc not in {"", "localhost"}:
        raise InvalidOptionError(option, path, "a file: URI must not name a host: write file:/path")
    return unquote(parts.path)
