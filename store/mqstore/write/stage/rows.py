"""A DataFrame's columns to the columns of messages, whatever their types and however null.

Which columns there are is decided once, on the driver (``check_columns``); a task then casts
each batch the same way (``Rows``). Nothing here refuses a row: that is validate.py.

A frame that a read produced has columns that only a read has; property_plan.py says what becomes
of its properties.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.codec.arrow_compat import is_any_binary, is_any_text
from mqstore.codec.compression import UNKNOWN_CRC, StoredCompression, stored_compression
from mqstore.codec.properties_encode import entries
from mqstore.codec.schema import COLUMNS
from mqstore.codec.slices import not_utf8
from mqstore.errors import InvalidSchemaError
from mqstore.format.arrays import Int32s, Int64s, Mask
from mqstore.format.properties import KEY_SEPARATOR
from mqstore.write.stage.job import RowJob
from mqstore.write.stage.property_plan import sort_out

WRITE_COLUMNS: Final = (
    "body",
    "topic",
    "tags",
    "keys",
    "properties",
    "queueId",
    "shardingKey",
    "flag",
    "bornTimestamp",
    "storeTimestamp",
    "delayTimeLevel",
    "waitStoreMsgOK",
)
# What a read gives and a write decides itself; no frame made by hand has one of these. Of two a
# write takes what they tell of the body (codec/compression.py).
READ_ONLY_COLUMNS: Final = frozenset(column.name for column in COLUMNS) - set(WRITE_COLUMNS)
NULL_QUEUE: Final = -(2**63)
NULL_MOMENT: Final = -(2**63)


def check_columns(schema: pa.Schema, *, topic_given: bool) -> bool:
    """Return whether the frame carries messages that were read.

    Raises InvalidSchemaError for a column or a type that a write does not take, naming it.
    """
    for field in schema:
        if field.name in _ACCEPTED:
            if not _ACCEPTED[field.name][0](field.type):
                raise InvalidSchemaError(field.name, field.type, _ACCEPTED[field.name][1])
        elif field.name not in READ_ONLY_COLUMNS:
            near = get_close_matches(field.name, WRITE_COLUMNS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}? " if near else ""
            accepted = f"{hint}a write takes {', '.join(WRITE_COLUMNS)}"
            raise InvalidSchemaError(field.name, field.type, accepted)
    if len(set(schema.names)) < len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise InvalidSchemaError(twice, "repeated", "name each column once")
    if "body" not in schema.names:
        raise InvalidSchemaError("body", "missing", "a message needs a string or binary body")
    if "topic" not in schema.names and not topic_given:
        expected = "give a column topic, or the option topic for all rows"
        raise InvalidSchemaError("topic", "missing", expected)
    return not READ_ONLY_COLUMNS.isdisjoint(schema.names)


@dataclass(frozen=True)
class Rows:
    """Messages to be, one row each, in the types a record needs; null where nothing is given.

    ``numbers`` count the rows of the task, from 0.
    """

    numbers: Int64s
    topics: Int32s
    """Index into ``topic_names``; −1 for null."""
    topic_names: tuple[str, ...]
    bodies: pa.Array
    tags: pa.Array
    keys: pa.Array
    sharding_keys: pa.Array
    properties: pa.Array | None
    """map<string, string>, or None where there is no such column."""
    wanted: Mask
    """For each entry of ``properties``: whether it is written."""
    reserved: Mask
    """For each entry: whether its name is reserved, in a frame made by hand."""
    queue_ids: Int64s
    """NULL_QUEUE for null."""
    flags: Int64s
    born_timestamps_ms: Int64s
    store_timestamps_ms: Int64s
    """NULL_MOMENT for null, or where they are not to be preserved."""
    delay_levels: Int64s
    waits: Mask
    wait_texts: pa.Array
    """Property WAIT, null for a row that was read without it."""
    carried: Mask
    """Rows that were read with their properties: what a producer adds is not added to them."""
    unique_keys: pa.Array | None
    """Property UNIQ_KEY of rows that keep theirs, null where they had none; None if none does."""
    stored_compression: StoredCompression
    """The compression that bodies have already."""
    not_utf8: Mapping[str, Mask]
    """For each text column: which rows hold other bytes, and are taken as null."""
    broken_keys: Mask
    """Rows whose ``keys`` is an array with a null, an empty string or a space in it."""

    def __len__(self) -> int:
        return len(self.topics)

    def sharding_codes(self) -> Int64s:
        """Return a number for each shardingKey, −1 where there is none."""
        codes = self.sharding_keys.dictionary_encode().indices.fill_null(-1)
        found: Int64s = codes.to_numpy(zero_copy_only=False).astype(np.int64)
        return found


def cast_rows(batch: pa.RecordBatch, job: RowJob, *, numbers: Int64s, now_ms: int) -> Rows:
    """Return the rows of ``batch``. ``now_ms`` is the bornTimestamp of those that have none."""
    count, settings = batch.num_rows, job.settings
    columns = {name: batch.column(name) for name in batch.schema.names if name in _ACCEPTED}
    columns, not_utf8 = _checked(columns)
    properties = _map(columns.get("properties"))
    delay_levels = _integers(columns.get("delayTimeLevel"), count, 0)
    entries = sort_out(
        properties,
        columns.keys(),
        delayed=delay_levels > 0,
        carries_read=job.carries_read,
        keeps_ids=settings.uniq_key is None,
        for_broker=not job.schedules,
    )
    texts = {**entries.texts, **columns}
    waits = texts.get("waitStoreMsgOK")
    codes, topic_names = _topics(columns.get("topic"), settings.topic, count)
    keys, broken_keys = _keys(texts.get("keys"), count)
    bodies = _binary(columns["body"])
    return Rows(
        numbers=numbers,
        topics=codes,
        topic_names=topic_names,
        bodies=bodies,
        tags=_text(texts.get("tags"), count),
        keys=keys,
        sharding_keys=_text(texts.get("shardingKey"), count),
        properties=properties,
        wanted=entries.wanted,
        reserved=entries.reserved,
        carried=entries.carried,
        unique_keys=entries.unique_keys,
        queue_ids=_apart(columns.get("queueId"), count, NULL_QUEUE),
        flags=_integers(columns.get("flag"), count, 0),
        born_timestamps_ms=_milliseconds(columns.get("bornTimestamp"), count, now_ms),
        store_timestamps_ms=_milliseconds(
            columns.get("storeTimestamp") if settings.timestamps == "preserve" else None,
            count,
            NULL_MOMENT,
        ),
        delay_levels=delay_levels,
        waits=_waits(waits, count),
        wait_texts=_wait_texts(waits, entries.carried),
        stored_compression=stored_compression(
            bodies,
            _integers(columns.get("sysFlag"), count, 0),
            _integers(columns.get("bodyCRC"), count, UNKNOWN_CRC),
        ),
        not_utf8=not_utf8,
        broken_keys=broken_keys,
    )


def _checked(columns: Mapping[str, pa.Array]) -> tuple[dict[str, pa.Array], dict[str, Mask]]:
    """Return the columns with null where text is no UTF-8, and where that is, by column."""
    checked, found = dict(columns), {}
    for name in [name for name in columns if name in _TEXTS]:
        bad = _not_utf8(columns[name])
        if bad.any():
            found[name] = bad
            checked[name] = columns[name].take(pa.array(np.arange(len(bad)), mask=bad))
    return checked, found


def _not_utf8(column: pa.Array) -> Mask:
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.bool_)
    if _is_text(column.type):
        return not_utf8(_plain(column, pa.string()))
    bad = np.zeros(len(column), np.bool_)
    if pa.types.is_map(column.type):
        starts, *texts = entries(column)
        parents = np.repeat(np.arange(len(column)), np.diff(starts))
    else:
        parents = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
        texts = [_plain(column.flatten(), pa.string())]
    for text in texts:
        bad[parents[not_utf8(text)]] = True
    return bad


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return is_any_text(kind) or bool(pa.types.is_null(kind))


def _is_body(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_body(kind.value_type)
    is_bytes = is_any_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return _is_text(kind) or bool(is_bytes)


def _is_keys(kind: pa.DataType) -> bool:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return _is_text(kind) or (listed and _is_text(kind.value_type))


def _is_map(kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    return pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type)


def _is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_null(kind))


def _is_moment(kind: pa.DataType) -> bool:
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return zoned or _is_integer(kind)


def _is_boolean(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_null(kind))


_TEXTS: Final = frozenset({"topic", "tags", "keys", "shardingKey", "properties"})
_Accepts: TypeAlias = Callable[[pa.DataType], bool]
_INTEGER: Final[tuple[_Accepts, str]] = (_is_integer, "an integer is needed")
_TEXT: Final[tuple[_Accepts, str]] = (_is_text, "a string is needed")
_MOMENT: Final[tuple[_Accepts, str]] = (
    _is_moment,
    "a timestamp with a time zone (Spark's timestamp, not timestamp_ntz) or epoch milliseconds",
)
_ACCEPTED: Final[Mapping[str, tuple[_Accepts, str]]] = {
    "body": (_is_body, "a string or binary is needed"),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": (_is_keys, "a string (keys separated by spaces) or an array of strings is needed"),
    "properties": (_is_map, "a map<string,string> is needed"),
    "queueId": _INTEGER,
    "shardingKey": _TEXT,
    "flag": _INTEGER,
    "bornTimestamp": _MOMENT,
    "storeTimestamp": _MOMENT,
    "delayTimeLevel": _INTEGER,
    "waitStoreMsgOK": (_is_boolean, "a boolean is needed"),
    "sysFlag": _INTEGER,
    "bodyCRC": _INTEGER,
}


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type == kind else column.cast(kind)


def _text(column: pa.Array | None, count: int) -> pa.Array:
    """Return a string array in which an empty string is null: it would not be read back."""
    if column is None or pa.types.is_null(column.type):
        return pa.nulls(count, pa.string())
    text = _plain(column, pa.string())
    empty = pc.equal(pc.binary_length(text), 0)
    return pc.if_else(empty, None, text) if pc.any(empty).as_py() else text


def _binary(column: pa.Array) -> pa.Array:
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.binary())
    return _plain(column, pa.binary())


def _map(column: pa.Array | None) -> pa.Array | None:
    if column is None or pa.types.is_null(column.type):
        return None
    return column


def _keys(column: pa.Array | None, count: int) -> tuple[pa.Array, Mask]:
    """Return keys joined by spaces, and which rows' arrays cannot be joined without loss."""
    broken = np.zeros(count, np.bool_)
    if column is None or not hasattr(column.type, "value_type"):
        return _text(column, count), broken
    if pa.types.is_dictionary(column.type):
        return _text(column, count), broken
    lists = column.cast(pa.list_(pa.string()))
    parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    flat = lists.flatten()
    bad = pc.or_kleene(
        pc.match_substring(flat, KEY_SEPARATOR), pc.equal(pc.binary_length(flat), 0)
    ).fill_null(True)
    broken[parents[bad.to_numpy(zero_copy_only=False)]] = True
    return _text(pc.binary_join(lists, KEY_SEPARATOR), count), broken


def _integers(column: pa.Array | None, count: int, missing: int) -> Int64s:
    if column is None or pa.types.is_null(column.type):
        return np.full(count, missing, np.int64)
    filled = column.cast(pa.int64()).fill_null(missing)
    found: Int64s = filled.to_numpy(zero_copy_only=False)
    return found


def _apart(column: pa.Array | None, count: int, missing: int) -> Int64s:
    """Return integers in which ``missing``, the least one there is, stands for null alone."""
    found = _integers(column, count, missing)
    if column is None or pa.types.is_null(column.type):
        return found
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(valid, np.maximum(found, missing + 1), missing)


def _milliseconds(column: pa.Array | None, count: int, missing: int) -> Int64s:
    if column is None or not pa.types.is_timestamp(column.type):
        whole = _apart if missing == NULL_MOMENT else _integers
        return whole(column, count, missing)
    per_ms = {"s": 0, "ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
    ticks = column.cast(pa.int64())
    valid = ticks.is_valid().to_numpy(zero_copy_only=False)
    values = ticks.fill_null(0).to_numpy(zero_copy_only=False)
    moments: Int64s = values // per_ms if per_ms else values * 1_000
    return np.where(valid, moments, missing)


def _waits(column: pa.Array | None, count: int) -> Mask:
    """Return waitStoreMsgOK, true where nothing is said, as in the client."""
    if column is None or pa.types.is_null(column.type):
        return np.ones(count, np.bool_)
    if not pa.types.is_boolean(column.type):
        column = pc.not_equal(pc.utf8_lower(column), "false")
    found: Mask = column.fill_null(True).to_numpy(zero_copy_only=False)
    return found


def _wait_texts(column: pa.Array | None, carried: Mask) -> pa.Array:
    waits = _waits(column, len(carried))
    texts = pa.array(["false", "true"]).take(pa.array(waits.astype(np.int8)))
    if not carried.any():
        return texts
    said = np.zeros(len(carried), np.bool_)
    if column is not None:
        said = column.is_valid().to_numpy(zero_copy_only=False)
    return pc.if_else(pa.array(said | ~carried), texts, None)


def _topics(
    column: pa.Array | None, topic: str | None, count: int
) -> tuple[Int32s, tuple[str, ...]]:
    if topic is not None or column is None:
        return np.zeros(count, np.int32), (topic or "",)
    if pa.types.is_null(column.type):
        return np.full(count, -1, np.int32), ()
    encoded = _plain(column, pa.string()).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return codes, tuple(encoded.dictionary.to_pylist())
