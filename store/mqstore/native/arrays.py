"""Arrays as the compiled library takes them: the address of contiguous items."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mqstore.format.arrays import Int64s


def address(array: NDArray[Any]) -> int:
    """Return where the items of a contiguous array are; the array must outlive the use of it."""
    assert array.flags.c_contiguous
    return int(array.__array_interface__["data"][0])


def int64s(array: NDArray[Any]) -> Int64s:
    """Return the array as a kernel takes it: contiguous int64; itself where it is so already."""
    return np.ascontiguousarray(array, np.int64)
