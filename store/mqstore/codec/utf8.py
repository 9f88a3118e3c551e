"""Text columns that hold any bytes: Spark's ``CAST(binary AS STRING)`` checks nothing.

Clients write and read properties and topics as UTF-8: other bytes would come back as others.

Reference: MessageDecoder#CHARSET_UTF8, RFC 3629.
"""

import numpy as np
import pyarrow as pa

from mqstore.arrays import Mask


def not_utf8(strings: pa.Array) -> Mask:
    """Tell which strings of a string array are no UTF-8; a null is."""
    bad = np.zeros(len(strings), np.bool_)
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid:
        # A loop over strings, in a column that has a bad one.
        for row, found in enumerate(strings.cast(pa.binary())):
            bad[row] = found.is_valid and not _decodes(found.as_py())
    return bad


def _decodes(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
