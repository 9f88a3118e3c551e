"""The properties map of a frame: which entries are written, refused, or stand for a column.

A map made by hand may not hold names that RocketMQ keeps for itself. A map that a read produced
(the frame has a column that only a read has) holds them, and its message keeps every property
it had, UNIQ_KEY too, and gets none it had not: so read → write gives the same properties. In
a delivered record these are inert: brokers' own hold DELAY and REAL_TOPIC as well. A row with no
map, though others were read, gets what a producer adds. Exceptions:

- UNIQ_KEY is made anew where the user says how (option uniqKey);
- a column of the frame (tags, keys, shardingKey, waitStoreMsgOK) stands for its property;
- a row with a delayTimeLevel gets new DELAY, REAL_TOPIC and REAL_QID;
- names by which a broker would delay a message again, or take it for half of a transaction, are
  left out of what is sent to one;
- __CRC32# (a checksum of the record that was), INNER_MULTI_DISPATCH and
  INNER_MULTI_QUEUE_OFFSET (a broker would dispatch by them) and transient names are left out.

Reference: MessageConst.STRING_HASH_SET, DefaultMessageStore#doDispatch, LmqDispatch.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.codec.properties_encode import entries
from mqstore.format import properties as names
from mqstore.format.arrays import Int64s, Mask
from mqstore.format.properties import RESERVED, TRANSIENT_PREFIX

_COLUMN_OF: Final = {
    names.TAGS: "tags",
    names.KEYS: "keys",
    names.SHARDING_KEY: "shardingKey",
    names.WAIT: "waitStoreMsgOK",
}
_LEFT_OUT: Final = frozenset({names.CRC32, "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"})
_ACTED_ON: Final = frozenset(
    {
        names.DELAY,
        names.TRANSACTION_PREPARED,
        "TIMER_DELAY_LEVEL",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        names.TIMER_DELETE_UNIQ_KEY,
    }
)
_OF_DELAY: Final = frozenset({names.DELAY, names.REAL_TOPIC, names.REAL_QID})


@dataclass(frozen=True, slots=True)
class PropertyPlan:
    """What becomes of each entry, in the order of ``properties_block.entries``.

    ``texts`` are the string columns, by name, that entries stand for; ``carried`` tells which
    rows were messages before, ``unique_keys`` is the UNIQ_KEY each of them keeps, None if none
    keeps one.
    """

    wanted: Mask
    reserved: Mask
    carried: Mask
    texts: Mapping[str, pa.Array] = field(default_factory=dict)
    unique_keys: pa.Array | None = None


def sort_out(
    properties: pa.Array | None,
    columns: AbstractSet[str],
    *,
    delayed: Mask,
    carries_read: bool,
    keeps_ids: bool,
    for_broker: bool = False,
) -> PropertyPlan:
    """Sort the entries of a map<string, string> column (None: there is no such column).

    ``columns`` are those the frame has beside it; ``delayed`` tells which rows have a level;
    ``keeps_ids`` whether what was read keeps its UNIQ_KEY; ``for_broker`` whether messages are
    sent to a broker, not stored.
    """
    none, no_row = np.zeros(0, np.bool_), np.zeros(len(delayed), np.bool_)
    if properties is None:
        return PropertyPlan(none, none, no_row)
    starts, entry_names, values = entries(properties)
    wanted: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    distinct = entry_names.dictionary_encode()
    known = distinct.dictionary.to_pylist()
    codes = distinct.indices.to_numpy(zero_copy_only=False)
    if not carries_read:
        reserved = [name in RESERVED or name.startswith(TRANSIENT_PREFIX) for name in known]
        return PropertyPlan(wanted, _of(reserved, codes) & wanted, no_row)
    parents = np.repeat(np.arange(len(delayed)), np.diff(starts))
    left_out = [
        name in _COLUMN_OF
        or name in _LEFT_OUT
        or name.startswith(TRANSIENT_PREFIX)
        or (name == names.UNIQ_KEY and not keeps_ids)
        or (name in _ACTED_ON and for_broker)
        for name in known
    ]
    again = _of([name in _OF_DELAY for name in known], codes) & delayed[parents]
    texts = {
        column: _column(values, wanted & (codes == known.index(name)), parents, len(delayed))
        for name, column in _COLUMN_OF.items()
        if name in known and column not in columns
    }
    unique = known.index(names.UNIQ_KEY) if names.UNIQ_KEY in known else -1
    ids = _column(values, wanted & (codes == unique), parents, len(delayed))
    return PropertyPlan(
        wanted & ~_of(left_out, codes) & ~again,
        np.zeros(len(codes), np.bool_),
        properties.is_valid().to_numpy(zero_copy_only=False),
        texts,
        ids if keeps_ids else None,
    )


def _of(of_name: list[bool], codes: NDArray[np.integer]) -> Mask:
    """Return for each entry what holds for its name."""
    return np.array(of_name, np.bool_)[codes] if of_name else np.zeros(len(codes), np.bool_)


def _column(values: pa.Array, chosen: Mask, parents: Int64s, count: int) -> pa.Array:
    """Return one string a row: the value of its chosen entry, null where it has none."""
    places = np.full(count, -1, np.int64)
    places[parents[chosen]] = np.flatnonzero(chosen)
    return values.take(pa.array(places, mask=places < 0))
