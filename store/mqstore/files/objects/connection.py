"""The pyarrow file system that an address names, made of the options of its user.

Without options the address alone says what it is, and credentials, endpoint and region come from
where the file system looks for them (environment, configuration files, the machine's role). With
options they are the keyword arguments of the class in pyarrow.fs; what they mean is its business.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from mqstore.errors import REASON_CHARS, InvalidOptionError, StoreUnavailableError, shown
from mqstore.files.objects.address import (
    FILE_SYSTEM,
    IN_NUMBERS,
    MOST_SECONDS,
    PLAIN,
    ObjectStore,
)
from mqstore.options.secret import HIDDEN, Secret

_ERRORS: Final = (pa.ArrowException, OSError, ValueError, TypeError, OverflowError)
_LEAST_SECRET: Final = 4  # Shorter values are parts of any text.
_BOOLEANS: Final = {"true": True, "false": False}
_IN_SECONDS: Final = frozenset({"request_timeout", "connect_timeout", "retry_time_limit"})


def _bucket(authority: str) -> tuple[str, dict[str, Any]]:
    return authority, {}


def _container(authority: str) -> tuple[str, dict[str, Any]]:
    container, _, host = authority.partition("@")
    return container, {"account_name": host.partition(".")[0]} if host else {}


def _name_node(authority: str) -> tuple[str, dict[str, Any]]:
    user, _, server = authority.rpartition("@")
    host, _, port = server.partition(":")
    named = {"user": user} if user else {}
    return "", {"host": host or "default", "port": int(port) if port else 0, **named}


_CLASSES: Final[Mapping[str, tuple[str, Callable[[str], tuple[str, dict[str, Any]]]]]] = {
    "s3": ("S3FileSystem", _bucket),
    "gs": ("GcsFileSystem", _bucket),
    "gcs": ("GcsFileSystem", _bucket),
    "abfs": ("AzureFileSystem", _container),
    "abfss": ("AzureFileSystem", _container),
    "hdfs": ("HadoopFileSystem", _name_node),
    "viewfs": ("HadoopFileSystem", _name_node),
}
"""The class of a scheme, and what the part behind ``://`` is to it: a folder and arguments."""


@lru_cache(maxsize=32)
def connect(store: ObjectStore) -> tuple[fs.FileSystem, str]:
    """Return the file system of a store and the store's path in it; may connect to find it.

    One process connects once for each address and its options. Raises InvalidOptionError for an
    option that the file system does not have or does not accept, and for a scheme that pyarrow
    does not know or was built without; StoreUnavailableError if there is no connection or no
    such bucket. No value of an option is in the text.
    """
    if not store.file_system:
        try:
            system, path = fs.FileSystem.from_uri(store.address)
        except _ERRORS as error:
            if type(error) is OSError:  # Not an error of pyarrow's own: what a server answered.
                raise unavailable(store.address, error, store) from None
            raise InvalidOptionError("path", store.address, _told(error, store)) from None
        return system, path.rstrip("/")
    if store.scheme not in _CLASSES:
        name = FILE_SYSTEM + store.file_system[0][0]
        expected = f"is for {', '.join(f'{scheme}://' for scheme in _CLASSES)}"
        raise InvalidOptionError(name, HIDDEN, f"{expected}, not {store.scheme}://")
    kind, split = _CLASSES[store.scheme]
    authority, _, below = store.address.partition("://")[2].partition("/")
    try:
        folder, arguments = split(authority)
    except ValueError:
        raise InvalidOptionError("path", store.address, "its port is no number") from None
    arguments |= {name: _value(name, secret) for name, secret in store.file_system}
    try:
        system = getattr(fs, kind)(**arguments)
    except (AttributeError, ImportError) as error:
        raise InvalidOptionError("path", store.address, _told(error, store)) from None
    except _ERRORS as error:
        raise _refused(kind, error, store) from None
    return system, f"{folder}/{below}".rstrip("/")


def unavailable(path: str, error: BaseException, store: ObjectStore) -> StoreUnavailableError:
    """Return the error that says what the file system says about ``path``."""
    return StoreUnavailableError(path, _told(error, store))


def _value(name: str, secret: Secret) -> object:
    text = secret.reveal()
    if name in IN_NUMBERS:
        try:
            return IN_NUMBERS[name](text)
        except (ValueError, OverflowError):
            expected = "must be a number"
            if name in _IN_SECONDS:
                expected += f" of seconds, from 0 to {MOST_SECONDS:,.0f}"
            raise InvalidOptionError(FILE_SYSTEM + name, text, expected) from None
    return _BOOLEANS.get(text.lower(), text)


def _refused(kind: str, error: Exception, store: ObjectStore) -> InvalidOptionError:
    """Return the error for an argument that the class refuses, with the option's name if told."""
    told = _told(error, store)
    names = [name for name, _ in store.file_system]
    named = next((n for n in names if re.search(rf"\b{re.escape(n)}\b", told)), None)
    if isinstance(error, TypeError) and "unexpected keyword" in told and named is not None:
        told = f"pyarrow.fs.{kind} has no such argument"
    else:
        told = f"pyarrow.fs.{kind}: {told}"
    return InvalidOptionError(FILE_SYSTEM + (named or names[0]), HIDDEN, told)


def _told(error: BaseException, store: ObjectStore) -> str:
    """Return the first line of what an error says, without the value of any option."""
    text = next(iter(str(error).splitlines()), "") or type(error).__name__
    for name, secret in store.file_system:
        if name not in PLAIN and len(secret.reveal()) >= _LEAST_SECRET:
            text = text.replace(secret.reveal(), HIDDEN)
    return shown(text, REASON_CHARS)
