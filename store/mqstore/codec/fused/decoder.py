"""The decode kernel from Python: a chunk of the log to columns, or "not mine".

The chunk comes in blocks, which stay in the processor's cache while they are decoded. What the
kernel writes lies in one memory (see arena.py), of which the columns are slices.
"""

import ctypes
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mqstore.codec.decode import QueuePositions
from mqstore.codec.fused.arena import Arena
from mqstore.codec.fused.columns import FUSED, Decoded
from mqstore.codec.fused.outputs import Outputs, Slots
from mqstore.codec.fused.rooms import ENTRIES, Rooms
from mqstore.format.arrays import Bytes, Int64s
from mqstore.format.message import MIN_RECORD_BYTES
from mqstore.format.names import LMQ_PREFIX
from mqstore.native.arrays import address, int64s
from mqstore.native.declarations import constant, structure
from mqstore.native.registry import KERNEL_DONE, NOT_MINE, kernel

Queues: TypeAlias = Sequence[tuple[str, int, str]]

_MOST_BYTES: Final = 2**31 - 1  # What the int32 edges of an Arrow array can span.
_MOST_MORE: Final = 64  # Bytes a row of text that is not in its record: a host, an id.


Block: TypeAlias = tuple[int, int, Bytes, Int64s, int]
"""first, last, buffer, positions, base: row i is at ``buffer[positions[i - first] - base]``."""


class Decoder:
    """Decodes chunk after chunk to the same columns; its memory is used again for each."""

    def __init__(self, run: Callable[..., int], columns: Iterable[str], *, check_crc: bool) -> None:
        self._run = run
        self._outputs = Outputs.of(FUSED[name].output for name in columns)
        assert len(self._outputs.picks) <= constant("MOST_PICKS")
        self._names = [np.frombuffer(p.name.encode(), np.uint8) for p in self._outputs.picks]
        self._check_crc = check_crc
        self._arena = Arena()
        self._rooms = Rooms([*self._outputs.texts, *(pick.name for pick in self._outputs.picks)])
        self._tables: QueueTables | None = None

    @classmethod
    def of(cls, columns: Collection[str], *, check_crc: bool) -> "Decoder | None":
        """Return one for those columns; None if numpy must make one of them, or all.

        Raises InvalidOptionError where MQSTORE_KERNELS asks for kernels that are not there.
        """
        run = kernel("mq_decode")
        return (
            None
            if run is None or not FUSED.keys() >= set(columns)
            else cls(run, columns, check_crc=check_crc)
        )

    def decode(
        self,
        physical_offsets: Int64s,
        sizes: Int64s,
        units: QueuePositions,
        blocks: Callable[[], Iterable[Block]],
    ) -> Decoded | None:
        """Return the records as columns, or None if numpy must do them.

        ``blocks`` is called again where the usual room was too little.
        """
        rows, record_bytes = len(sizes), int(sizes.sum())
        if not rows or record_bytes + rows * _MOST_MORE > _MOST_BYTES:
            return None
        tables = self._tables_of(units.queues)
        # What the kernel reads: these arrays must be there for as long as it runs.
        inputs = [int64s(a) for a in (sizes, physical_offsets, units.queue_offsets, units.queue)]
        exact = tables.rooms(rows) | {"body": record_bytes - MIN_RECORD_BYTES * rows}
        for guess in (self._rooms.usual, self._rooms.most):
            slots = Slots(self._outputs, rows, guess(rows, record_bytes) | exact)
            lease = self._arena.lease(slots.size)
            call = self._call(tables, inputs)
            slots.place(call, lease.start)
            result = self._over(call, blocks())
            if result == KERNEL_DONE:
                self._learn(call, rows)
                return Decoded(call, slots, lease, units, inputs[1])
            if result == NOT_MINE:
                return None
        return None

    def _over(self, call: Any, blocks: Iterable[Block]) -> int:
        structure, result = ctypes.byref(call), KERNEL_DONE
        for first, last, buffer, places, base in blocks:
            positions = int64s(places)
            where = (address(buffer), len(buffer), address(positions), base)
            result = self._run(structure, *where, first, last)
            if result != KERNEL_DONE:
                break
        return result

    def _call(self, tables: "QueueTables", inputs: Sequence[Int64s]) -> Any:
        call: Any = structure("Decoding")()
        tables.place(call)
        call.sizes, call.physical_offsets, call.queue_offsets, call.queue = map(address, inputs)
        call.check_crc = self._check_crc
        call.picks = len(self._names)
        picks = zip(call.pick, self._names, self._outputs.picks, strict=False)
        for pick, name, wanted in picks:
            pick.name, pick.name_length = address(name), len(name)
            pick.or_msg_id = wanted.or_msg_id
        return call

    def _learn(self, call: Any, rows: int) -> None:
        texts = {name: getattr(call, name).used for name in self._outputs.texts}
        picks = zip(self._outputs.picks, call.pick, strict=False)
        used = texts | {wanted.name: pick.text.used for wanted, pick in picks}
        if self._outputs.entries:
            used |= {"names": call.names.used, "values": call.values.used, ENTRIES: call.entries}
        self._rooms.learn(rows, used)

    def _tables_of(self, queues: Queues) -> "QueueTables":
        if self._tables is None or self._tables.queues is not queues:
            self._tables = QueueTables(queues)
        return self._tables


class QueueTables:
    """What the kernel must know of each queue, as arrays."""

    def __init__(self, queues: Queues) -> None:
        self.queues = queues
        topics, brokers = [q[0].encode() for q in queues], [q[2].encode() for q in queues]
        self._ids = np.array([q[1] for q in queues], np.int64)
        self._light = np.array([q[0].startswith(LMQ_PREFIX) for q in queues], np.uint8)
        self._topics, self._brokers = end_to_end(topics), end_to_end(brokers)
        self._longest = {
            "topic": max(map(len, topics), default=0),
            "broker": max(map(len, brokers), default=0),
        }

    def rooms(self, rows: int) -> dict[str, int]:
        """Return the room that topic and broker of any ``rows`` rows need."""
        return {name: rows * longest for name, longest in self._longest.items()}

    def place(self, call: Any) -> None:
        """Put the addresses into ``call``; this object must be there for as long as it runs."""
        call.queues = len(self._ids)
        call.queue_ids, call.light = address(self._ids), address(self._light)
        for names, (edges, data) in ((call.topics, self._topics), (call.brokers, self._brokers)):
            names.edges, names.data = address(edges), address(data)


def end_to_end(names: Sequence[bytes]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return edges and data of names as the kernels take them: see Names in decode.h."""
    edges = np.cumsum([0, *map(len, names)]).astype(np.int32)
    return edges, np.frombuffer(b"".join(names) + bytes(constant("STEP")), np.uint8)
