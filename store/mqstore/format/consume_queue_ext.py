"""Extension unit: what a broker with enableConsumeQueueExt keeps of a message beside its unit.

One unit, big-endian, before ``bit_map_bytes`` bytes of a filter:

    at  bytes  field               meaning
    --  -----  ------------------  ---------------------------------------------------
     0      2  size                of the whole unit with its filter; -1 fills a file's end
     2      8  tags_code           what the ConsumeQueue's unit would have as tags_code
    10      8  store_timestamp_ms  when the broker stored the message
    18      2  bit_map_bytes       length of the filter (bloom filters of SQL92 groups)

The unit at byte p of a queue's extension files has the address p + ADDRESS_BASE.

Reference: ConsumeQueueExt.CqExtUnit, ConsumeQueueExt#decorate.
"""

from typing import Final

import numpy as np

EXT_UNIT: Final = np.dtype(
    [
        ("size", ">i2"),
        ("tags_code", ">i8"),
        ("store_timestamp_ms", ">i8"),
        ("bit_map_bytes", ">i2"),
    ]
)
ADDRESS_BASE: Final = -(2**63)

assert EXT_UNIT.itemsize == 20
