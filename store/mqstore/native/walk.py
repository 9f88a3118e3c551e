"""The kernel that walks over bytes of a log and gathers the units that its records imply."""

import ctypes
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mqstore.format.arrays import Bytes, Int64s, Mask, TopicQueue
from mqstore.format.config import DELAY_LEVELS_MS
from mqstore.format.consume_queue import HIGHEST_QUEUE_OFFSET
from mqstore.native.arrays import address
from mqstore.native.declarations import structure
from mqstore.native.registry import NOT_MINE, kernel

_NAMED_QUEUES: Final = 1 << 13
_NAME_SLOTS: Final = 2 * _NAMED_QUEUES
_UNIT_FIELDS: Final = 5
_DELAYS_MS: Final = np.array([0, *DELAY_LEVELS_MS], np.int64)


@dataclass(frozen=True, slots=True)
class GatheredUnits:
    """n units by queue, those of a queue in log order; unit i is of ``queues[codes[i]]``.

    ``columns`` are queue offsets, physical offsets, sizes, tags codes and store timestamps in ms,
    each int64[n].
    """

    queues: list[TopicQueue]
    codes: Int64s
    columns: tuple[Int64s, ...]
    holds_several: Mask


class UnitsKernel:
    """Gathers the units of up to ``room`` records, or of as many as have 8,192 queues."""

    def __init__(self, room: int, limit: int) -> None:
        """Take records before physical offset ``limit`` only."""
        self._table = np.empty((_UNIT_FIELDS, room), np.int64)
        self._several = np.empty(room, np.bool_)
        self._codes = np.empty(room, np.uint16)
        self._named = structure("NamedQueue") * _NAMED_QUEUES
        self._names = np.empty(ctypes.sizeof(self._named), np.uint8)
        self._slots = np.full(_NAME_SLOTS, -1, np.int16)
        self._rows: Any = structure("UnitRows")(
            *map(address, self._table),
            address(self._several),
            address(self._codes),
            0,
            room,
            address(self._names),
            address(self._slots),
            0,
            _NAMED_QUEUES,
            _NAME_SLOTS,
            address(_DELAYS_MS),
            len(_DELAYS_MS),
            HIGHEST_QUEUE_OFFSET,
            limit,
        )

    @staticmethod
    def is_there() -> bool:
        """Whether compiled kernels are in use, this one among them."""
        return kernel("mq_log_units") is not None

    @property
    def count(self) -> int:
        """Units gathered so far."""
        return int(self._rows.rows)

    @property
    def last_ms(self) -> int:
        """Store timestamp of the last record walked over; 0 if there was none."""
        return int(self._rows.last_ms)

    def walk(self, buffer: Bytes, physical_offset: int) -> tuple[int, int]:
        """Walk over the records from byte 0 on, which has that place in the log.

        Return where it stopped, and why: KERNEL_DONE where no whole record follows, NOT_MINE for a
        record that numpy must look at, FULL where there is no room for more.
        """
        run = kernel("mq_log_units")
        if run is None:
            return 0, NOT_MINE
        rows = ctypes.byref(self._rows)
        why = run(address(buffer), len(buffer), physical_offset, rows)
        return int(self._rows.end), int(why)

    def take(self) -> GatheredUnits:
        """Return what was gathered, and begin anew."""
        count = self.count
        codes = self._codes[:count]
        # A stable sort of 16-bit numbers is a radix sort: ten times as fast.
        order = np.argsort(codes, kind="stable")
        columns = tuple(column[:count][order] for column in self._table)
        several = self._several[:count][order]
        found = GatheredUnits(self._queues(), codes[order].astype(np.int64), columns, several)
        self._rows.rows = self._rows.queues = 0
        self._slots.fill(-1)
        return found

    def _queues(self) -> list[TopicQueue]:
        named: Any = self._named.from_buffer(self._names.data)
        return [
            (bytes(one.topic[: one.topic_length]).decode("ascii"), one.queue_id)
            for one in named[: self._rows.queues]
        ]
