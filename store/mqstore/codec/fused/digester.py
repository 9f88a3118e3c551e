"""The audit kernel from Python: a chunk of the log to the digests of its messages, or "not mine".

It makes what ``codec.message_digest`` makes of the columns of a scan, without the columns.
"""

import ctypes
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mqstore.codec.decode import QueuePositions
from mqstore.codec.fused.decoder import Block, QueueTables, end_to_end
from mqstore.codec.message_digest import FIRST_KEY
from mqstore.format.arrays import Int64s, UInt64Pairs
from mqstore.native.arrays import address, int64s
from mqstore.native.declarations import structure
from mqstore.native.registry import KERNEL_DONE, kernel


@dataclass(frozen=True, slots=True)
class RowDigests:
    """Of n messages: digests, [n, 2] each; times in epoch ms; bytes of bodies."""

    identities: UInt64Pairs
    digests: UInt64Pairs
    stored_ms: Int64s
    body_bytes: Int64s


class Digester:
    """Makes the digests of chunk after chunk by one rule."""

    def __init__(self, run: Callable[..., int], by: str, left_out: Collection[str]) -> None:
        """Take the function of the library; the rest is as of ``of``."""
        self._run = run
        self._by_id = by == "id"
        self._left_out = end_to_end([name.encode() for name in sorted(left_out)])
        self._count = len(left_out)
        self._tables: QueueTables | None = None

    @classmethod
    def of(cls, by: str, left_out: Collection[str]) -> "Digester | None":
        """Return one for identities ``by`` offset or id, None without a kernel.

        ``left_out`` are names of properties that do not count. Raises InvalidOptionError where
        MQSTORE_KERNELS asks for kernels that are not there.
        """
        run = kernel("mq_audit")
        return None if run is None else cls(run, by, left_out)

    def digests(
        self,
        physical_offsets: Int64s,
        sizes: Int64s,
        units: QueuePositions,
        blocks: Callable[[], Iterable[Block]],
    ) -> RowDigests | None:
        """Return the digests of the records of units; None if any of them is not the kernel's.

        The arguments are those of Decoder#decode.
        """
        rows = len(sizes)
        if self._tables is None or self._tables.queues is not units.queues:
            self._tables = QueueTables(units.queues)
        inputs = [int64s(a) for a in (sizes, physical_offsets, units.queue_offsets, units.queue)]
        made = np.empty((rows, 2), np.uint64), np.empty((rows, 2), np.uint64)
        numbers = np.empty(rows, np.int64), np.empty(rows, np.int64)
        call: Any = structure("Decoding")()
        self._tables.place(call)
        call.sizes, call.physical_offsets, call.queue_offsets, call.queue = map(address, inputs)
        call.check_crc = True
        audit: Any = structure("Auditing")()
        audit.key, audit.by_id = address(FIRST_KEY), self._by_id
        edges, data = self._left_out
        audit.left_out.edges, audit.left_out.data = address(edges), address(data)
        audit.left_out_count = self._count
        audit.identities, audit.digests = map(address, made)
        audit.store_ms, audit.body_bytes = map(address, numbers)
        references = ctypes.byref(call), ctypes.byref(audit)
        for first, last, buffer, places, base in blocks():
            positions = int64s(places)
            where = (address(buffer), len(buffer), address(positions), base)
            if self._run(*references, *where, first, last) != KERNEL_DONE:
                return None
        return RowDigests(*made, *numbers)
