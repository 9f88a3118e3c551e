"""The functions of ``pyarrow.compute``, which is imported when the first of them is used.

Its import makes hundreds of functions and costs 30 ms of CPU time; many reads, and every plan of
one, use none.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    found = getattr(import_module("pyarrow.compute"), name)
    globals()[name] = found
    return found
