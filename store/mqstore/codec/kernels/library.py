"""Chooses the kernels, compiled or in numpy; no other module decides it.

The compiled file lies beside this module, put there by the installation. It is used unless
MQSTORE_KERNELS=numpy; with MQSTORE_KERNELS=c its absence is an error. Otherwise numpy stands in,
and that is logged once in a process.
"""

import ctypes
import logging
import os
from dataclasses import dataclass
from functools import cache
from typing import Final

from mqstore.codec.kernels import abi
from mqstore.codec.kernels.compiling import FOLDER, LIBRARY_NAME, digest
from mqstore.errors import InvalidOptionError

VARIABLE: Final = "MQSTORE_KERNELS"
COMPILED: Final = "c"
NUMPY: Final = "numpy"

_LOG = logging.getLogger(__name__)
_CRC: Final = ("CRC-32 by tables", "CRC-32 by the processor's instructions")


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


def library() -> ctypes.CDLL | None:
    """Return the compiled library if it is what is in use, else None; raises as above."""
    used, found = _decide()
    if used.kind == NUMPY and VARIABLE not in os.environ:
        _say_once(used.reason)
    return found


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
        declared = abi.declare(found)
    except (OSError, AttributeError) as error:
        return None, f"the compiled kernels cannot be loaded: {error}"
    if not declared or found.mq_sources().decode() != digest():
        return None, f"{path} was compiled from other sources; install mqlog again"
    return found, f"compiled, {_CRC[int(found.mq_crc_kind())]}"


@cache
def _say_once(reason: str) -> None:
    _LOG.warning("numpy stands in for the compiled kernels, which are faster: %s", reason)
