"""timercheck: how far a 5.x broker had delivered timer messages, a 4,096-byte page of config/.

Big-endian, the rest of the page is zero or a data version:

    at  bytes  field                      meaning
    --  -----  -------------------------  -------------------------------------------------
     0      8  last_read_time_ms          slots of the wheel before this time are delivered
     8      8  last_timer_log_flush_pos   byte of the timerlog
    16      8  last_timer_queue_offset    next queue offset of rmq_sys_wheel_timer to enqueue
    24      8  master_timer_queue_offset  the same, of the master

Reference: org.apache.rocketmq.store.timer.TimerCheckpoint.
"""

from typing import Final

import numpy as np

TIMER_CHECK: Final = np.dtype(
    [
        ("last_read_time_ms", ">i8"),
        ("last_timer_log_flush_pos", ">i8"),
        ("last_timer_queue_offset", ">i8"),
        ("master_timer_queue_offset", ">i8"),
    ]
)

assert TIMER_CHECK.itemsize == 32
