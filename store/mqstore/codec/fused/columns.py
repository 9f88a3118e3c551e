"""Arrow columns over the memory that the decode kernel wrote, made on demand without a copy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.codec.bodies import compression_names
from mqstore.codec.decode import LOG_APPEND_TIME, QueuePositions, transaction_states
from mqstore.codec.fused.arena import Lease
from mqstore.codec.fused.outputs import AllProperties, Fixed, Output, Pick, Slots, Texts, TextSlot
from mqstore.codec.schema import BY_NAME, KAFKA_HEADERS, PROPERTIES_MAP
from mqstore.format.arrays import Int64s
from mqstore.format.properties import KEYS, SHARDING_KEY, TAGS, UNIQ_KEY
from mqstore.format.sys_flag import COMPRESSED, TRANSACTION_MASK

_EDGE: Final = 4


Valid: TypeAlias = tuple[pa.Buffer | None, int]

_NO_NULLS: Final[Valid] = (None, 0)  # A bitmap, and how many are null.


class Decoded:
    """n good records as columns of ``codec.schema``."""

    def __init__(
        self,
        call: Any,
        slots: Slots,
        lease: Lease,
        units: QueuePositions,
        physical_offsets: Int64s,
    ) -> None:
        self._call = call
        self._slots = slots
        self._lease = lease
        self._units = units
        self._physical_offsets = physical_offsets
        self._made: dict[str, pa.Array] = {}

    def __len__(self) -> int:
        return self._slots.rows

    @property
    def any_compressed(self) -> bool:
        """Whether any body is stored compressed; ``body`` is as it is stored."""
        return bool(self._call.sys_flags & COMPRESSED)

    def column(self, name: str) -> pa.Array:
        """Return a column that was wanted. Raises ArrowInvalid for text that is not UTF-8."""
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._make(name)
        return made

    def _make(self, name: str) -> pa.Array:
        column, kind = FUSED[name], BY_NAME[name].type
        if column.make is not None:
            return column.make(self)
        match column.output:
            case Fixed(field, width):
                return self._array(kind, self._slots.fixed[field], len(self) * width)
            case Texts(field):
                text, slot = getattr(self._call, field), self._slots.texts[field]
                return self._text(kind, len(self), text, slot)
            case Pick() as pick:
                return self._pick(pick, kind)
        raise AssertionError(name)

    def _array(self, kind: pa.DataType, start: int, size: int) -> pa.Array:
        return pa.Array.from_buffers(kind, len(self), [None, self._lease.buffer(start, size)])

    def _text(
        self,
        kind: pa.DataType,
        count: int,
        text: Any,
        slot: TextSlot,
        valid: Valid = _NO_NULLS,
    ) -> pa.Array:
        edges = self._lease.buffer(slot.edges, _EDGE * (count + 1))
        data = self._lease.buffer(slot.data, text.used)
        return pa.Array.from_buffers(kind, count, [valid[0], edges, data], valid[1])

    def _checked(
        self,
        count: int,
        text: Any,
        slot: TextSlot,
        valid: Valid = _NO_NULLS,
    ) -> pa.StringArray:
        """Return text of properties as strings, which the kernel did not look at beyond ASCII."""
        if not self._call.above_ascii:
            return self._text(pa.string(), count, text, slot, valid)
        return self._text(pa.binary(), count, text, slot, valid).cast(pa.string())

    def _pick(self, wanted: Pick, kind: pa.DataType) -> pa.Array:
        number = self._slots.outputs.picks.index(wanted)
        pick = self._call.pick[number]
        valid: Valid = _NO_NULLS
        if pick.missing:
            bits = self._lease.buffer(self._slots.valid[number], (len(self) + 7) // 8)
            valid = (bits, pick.missing)
        column = self._checked(len(self), pick.text, self._slots.picks[number], valid)
        return column if kind == pa.string() else column.cast(kind)

    def _entries(self, kind: pa.DataType, values: pa.Array, fields: list[pa.Field]) -> pa.Array:
        names = self._checked(self._call.entries, self._call.names, self._slots.names)
        entries = pa.StructArray.from_arrays([names, values], fields=fields)
        edges = self._lease.buffer(self._slots.entry_edges, _EDGE * (len(self) + 1))
        return pa.Array.from_buffers(kind, len(self), [None, edges], children=[entries])

    def _properties(self) -> pa.Array:
        values = self._checked(self._call.entries, self._call.values, self._slots.values)
        return self._entries(
            PROPERTIES_MAP, values, [PROPERTIES_MAP.key_field, PROPERTIES_MAP.item_field]
        )

    def _headers(self) -> pa.Array:
        count, values = self._call.entries, self._call.values
        column = self._text(pa.binary(), count, values, self._slots.values)
        return self._entries(KAFKA_HEADERS, column, list(KAFKA_HEADERS.value_type))

    def _sys_flags(self) -> NDArray[np.int32]:
        start = self._slots.fixed["sys_flag"]
        flags: NDArray[np.int32] = self._array(pa.int32(), start, len(self) * 4).to_numpy()
        return flags

    def _compression(self) -> pa.Array:
        if not self._call.sys_flags & COMPRESSED:
            return pa.nulls(len(self), pa.string())
        return compression_names(self._sys_flags())

    def _transaction_state(self) -> pa.Array:
        if not self._call.sys_flags & TRANSACTION_MASK:
            return pa.nulls(len(self), pa.string())
        return transaction_states(self._sys_flags())

    def _of_units(self, values: Int64s) -> pa.Array:
        return pa.array(values, pa.int64())

    def _constant(self, value: Any) -> pa.Array:
        return pa.array(np.full(len(self), value))


@dataclass(frozen=True, slots=True)
class FusedColumn:
    """One column: the output of the kernel, and what makes the column, if not the output alone."""

    output: Output
    make: Callable[[Decoded], pa.Array] | None = None


_FUSED_QUEUE_ID: Final = FusedColumn(Fixed("queue_id", 4))
_FUSED_STORE_TIMESTAMP: Final = FusedColumn(Fixed("store_us", 8))
_FUSED_QUEUE_OFFSET: Final = FusedColumn(None, lambda d: d._of_units(d._units.queue_offsets))
_FUSED_BODY: Final = FusedColumn(Texts("body"))
_FUSED_KEYS: Final = FusedColumn(Pick(KEYS))

FUSED: Final[dict[str, FusedColumn]] = {
    "topic": FusedColumn(Texts("topic")),
    "queueId": _FUSED_QUEUE_ID,
    "queueOffset": _FUSED_QUEUE_OFFSET,
    "body": _FUSED_BODY,
    "storeTimestamp": _FUSED_STORE_TIMESTAMP,
    "tags": FusedColumn(Pick(TAGS)),
    "keys": _FUSED_KEYS,
    "properties": FusedColumn(AllProperties(), Decoded._properties),
    "bornTimestamp": FusedColumn(Fixed("born_us", 8)),
    "msgId": FusedColumn(Pick(UNIQ_KEY, or_msg_id=True)),
    "brokerName": FusedColumn(Texts("broker")),
    "offsetMsgId": FusedColumn(Texts("msg_id")),
    "physicalOffset": FusedColumn(None, lambda d: d._of_units(d._physical_offsets)),
    "storeSize": FusedColumn(Fixed("total_size", 4)),
    "bornHost": FusedColumn(Texts("born_host")),
    "storeHost": FusedColumn(Texts("store_host")),
    "flag": FusedColumn(Fixed("flag", 4)),
    "sysFlag": FusedColumn(Fixed("sys_flag", 4)),
    "compression": FusedColumn(Fixed("sys_flag", 4), Decoded._compression),
    "transactionState": FusedColumn(Fixed("sys_flag", 4), Decoded._transaction_state),
    "reconsumeTimes": FusedColumn(Fixed("reconsume_times", 4)),
    "preparedTransactionOffset": FusedColumn(Fixed("prepared_transaction_offset", 8)),
    "bodyCRC": FusedColumn(Fixed("body_crc", 4)),
    "tagsCode": FusedColumn(None, lambda d: d._of_units(d._units.tags_codes)),
    "shardingKey": FusedColumn(Pick(SHARDING_KEY)),
    "crcOk": FusedColumn(None, lambda d: d._constant(np.True_)),
    "key": _FUSED_KEYS,
    "value": _FUSED_BODY,
    "partition": _FUSED_QUEUE_ID,
    "offset": _FUSED_QUEUE_OFFSET,
    "timestamp": _FUSED_STORE_TIMESTAMP,
    "timestampType": FusedColumn(None, lambda d: d._constant(np.int32(LOG_APPEND_TIME))),
    "headers": FusedColumn(AllProperties(), Decoded._headers),
}
"""The columns of ``codec.schema`` that the kernel can make; numpy makes any other."""
