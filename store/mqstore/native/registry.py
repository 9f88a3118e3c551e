"""Chooses between C and numpy, for each piece of work; no other module decides it.

A kernel is a Python function around a function of the compiled library. It takes what the numpy
definition takes, and returns None for what it leaves. ``compiled_first`` puts it before that
definition; ``kernel`` gives it the function of the library.

The compiled file lies beside this module, put there by the installation. It is used unless
MQSTORE_KERNELS=numpy; with MQSTORE_KERNELS=c its absence is an error. Otherwise numpy stands in,
and that is logged once in a process.
"""

import ctypes
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, Final, ParamSpec, TypeVar

from mqstore.errors import InvalidOptionError
from mqstore.native import declarations
from mqstore.native.compiling import FOLDER, LIBRARY_NAME, digest

VARIABLE: Final = "MQSTORE_KERNELS"
COMPILED: Final = "c"
NUMPY: Final = "numpy"

# What the functions of the library return: declared in bytes.h.
KERNEL_DONE: Final = 0
NOT_MINE: Final = 1
FULL: Final = 2

_LOG = logging.getLogger(__name__)
_CRC: Final = ("CRC-32 by tables", "CRC-32 by the processor's instructions")
_ON_TRIAL: Final[set[str]] = set()

Given = ParamSpec("Given")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class KernelsInUse:
    """``kind`` is ``c`` or ``numpy``; ``reason`` says in one sentence why."""

    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.reason})"


def kernels_in_use() -> KernelsInUse:
    """Return which kernels a read or a write that starts now would use, and why.

    Raises InvalidOptionError for a value of MQSTORE_KERNELS that is not known, and for ``c``
    where there is no compiled file that can be used.
    """
    return _decide()[0]


def kernel(name: str) -> Callable[..., int] | None:
    """Return that function of the library if compiled kernels are in use, else None.

    Raises as ``kernels_in_use``.
    """
    used, library = _decide()
    if used.kind == NUMPY and VARIABLE not in os.environ:
        _say_once(used.reason)
    if library is None or name in _ON_TRIAL:
        return None
    function: Callable[..., int] = getattr(library, name)
    return function


def compiled_first(
    kernel_of: Callable[Given, Made | None],
) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """Decorate the numpy definition of some work: its kernel goes first, and may leave it."""

    def decorate(definition: Callable[Given, Made]) -> Callable[Given, Made]:
        @wraps(definition)
        def either(*given: Given.args, **named: Given.kwargs) -> Made:
            made = kernel_of(*given, **named)
            return definition(*given, **named) if made is None else made

        return either

    return decorate


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Let numpy do the work of these kernels: how a benchmark puts each on trial."""
    added = set(names) - _ON_TRIAL
    _ON_TRIAL.update(added)
    try:
        yield
    finally:
        _ON_TRIAL.difference_update(added)


def _decide() -> tuple[KernelsInUse, ctypes.CDLL | None]:
    wanted = os.environ.get(VARIABLE, "").strip().lower()
    if wanted not in {"", COMPILED, NUMPY}:
        raise InvalidOptionError(VARIABLE, wanted, f"accepted: {COMPILED}, {NUMPY}")
    if wanted == NUMPY:
        return KernelsInUse(NUMPY, f"{VARIABLE}={NUMPY}"), None
    found, reason = _load()
    if found is not None:
        return KernelsInUse(COMPILED, reason), found
    if wanted == COMPILED:
        raise InvalidOptionError(VARIABLE, wanted, f"{reason}; unset it to use numpy")
    return KernelsInUse(NUMPY, reason), None


@cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    """Return the library and what it can do, or None and why there is none."""
    path = FOLDER / LIBRARY_NAME
    if not path.is_file():
        where = "no compiled kernels were installed" if FOLDER.is_dir() else "run from an archive"
        return None, f"{where}: {path} is not there"
    try:
        found = ctypes.CDLL(str(path))
        found.mq_sources.restype = ctypes.c_char_p
        is_of_sources = found.mq_sources().decode() == digest()
    except (OSError, AttributeError) as error:
        return None, f"the compiled kernels cannot be loaded: {error}"
    if not is_of_sources:
        return None, f"{path} was compiled from other sources; install mqlog again"
    for name, (result, arguments) in declarations.functions().items():
        function: Any = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found, f"compiled, {_CRC[int(found.mq_crc_kind())]}"


@cache
def _say_once(reason: str) -> None:
    _LOG.warning("numpy stands in for the compiled kernels, which are faster: %s", reason)
