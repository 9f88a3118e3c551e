"""Names of the numpy array types that all rooms use."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Structs: TypeAlias = NDArray[np.void]
UInt32s: TypeAlias = NDArray[np.uint32]
