"""The column ``body`` as a type: decoded behind the scan, and only where a column needs it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.bodies.decoded import DecodedBodies
from mqstore.bodies.errors import CorruptBodyError
from mqstore.bodies.settings import (
    BODY_ERROR,
    DROP_MALFORMED,
    FAIL_FAST,
    BodyOptions,
    body_type,
    decoder_of,
    is_typed,
)
from mqstore.codec.schema import BY_NAME, PROFILES, check_columns, message_schema, resolve_columns
from mqstore.errors import InvalidOptionError, InvalidSchemaError
from mqstore.read.settings import ScanSettings

_BODY_COLUMN: Final = "body"
_KAFKA_BODY: Final = "value"
_NAMES_MESSAGE: Final = ("topic", "brokerName", "queueId", "queueOffset")


class TypedBodies:
    """Makes the columns of bodies of one scan, of the bytes that it reads."""

    def __init__(self, settings: ScanSettings) -> None:
        self._settings = settings
        self._columns = settings.columns
        self._own = bad_columns(settings)
        self._schema = typed_schema(settings, settings.columns)
        self._decoder = decoder_of(settings)
        self._mode = settings.body_mode

    @classmethod
    def of(cls, settings: ScanSettings) -> "TypedBodies | None":
        """Return what makes the columns, None where a scan needs no decoded body.

        Bad bodies that are dropped are looked for whatever the columns are: which messages are
        left out must not depend on them.
        """
        if not is_typed(settings):
            return None
        names = {_BODY_COLUMN, *bad_columns(settings)}
        needed = settings.body_mode == DROP_MALFORMED or not names.isdisjoint(settings.columns)
        return cls(settings) if needed else None

    @property
    def stored(self) -> ScanSettings:
        """The settings of the scan that reads the bytes."""
        place = _NAMES_MESSAGE if self._mode == FAIL_FAST else ()
        names = [name for name in self._columns if name not in self._own]
        return replace(self._settings, columns=tuple(dict.fromkeys([*names, _BODY_COLUMN, *place])))

    def batches(self, stored: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with the columns of the settings.

        Raises CorruptBodyError at the first bad body if ``bodyMode`` is FAILFAST.
        """
        for batch in stored:
            bodies = batch.column(_BODY_COLUMN)
            decoded = self._decoder.decode(bodies)
            if decoded.reasons and self._mode == FAIL_FAST:
                raise _corrupt(batch, decoded)
            made = self._made(batch, decoded)
            if decoded.reasons and self._mode == DROP_MALFORMED:
                kept = np.ones(len(bodies), np.bool_)
                kept[list(decoded.reasons)] = False
                made = made.filter(pa.array(kept))
            if made.num_rows:
                yield made

    def _made(self, batch: pa.RecordBatch, decoded: DecodedBodies) -> pa.RecordBatch:
        corrupt, error = self._own
        makers = {_BODY_COLUMN: lambda: decoded.values}
        makers[corrupt] = lambda: self._bad_bodies(batch.column(_BODY_COLUMN), decoded)
        makers[error] = lambda: _reasons(len(batch), decoded)
        arrays = [makers[n]() if n in makers else batch.column(n) for n in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _bad_bodies(self, bodies: pa.Array, decoded: DecodedBodies) -> pa.Array:
        """Return the bytes of bad bodies; null where a mask hides some of them."""
        if not decoded.reasons or self._settings.body_mask is not None:
            return pa.nulls(len(bodies), pa.binary())
        good = np.ones(len(bodies), np.bool_)
        good[list(decoded.reasons)] = False
        import pyarrow.compute as pc  # noqa: PLC0415 - reads start without it

        return pc.if_else(pa.array(good), None, bodies)


def bad_columns(options: BodyOptions) -> tuple[str, str]:
    """Return the names of the columns of bad bodies: their bytes, and the reason."""
    return options.corrupt_column, BODY_ERROR


def typed_schema(options: BodyOptions, names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of columns of messages, of bad bodies among them.

    Raises InvalidOptionError where the type of bodies is not known yet.
    """
    if not is_typed(options):
        return message_schema(names)
    corrupt, error = bad_columns(options)
    types = {corrupt: pa.binary(), error: pa.string()}
    if _BODY_COLUMN in names:
        types[_BODY_COLUMN] = body_type(options)
    fields = [
        pa.field(name, types[name]) if name in types else message_schema([name]).field(0)
        for name in names
    ]
    return pa.schema(fields)


def resolved_columns(options: BodyOptions, text: str) -> tuple[str, ...]:
    """Return the column names of a profile, or of a comma list of columns.

    A profile with the body has the columns of bad bodies too, as its last ones. Raises
    InvalidSchemaError.
    """
    if not is_typed(options):
        return resolve_columns(text)
    profile = PROFILES.get(text.strip().lower())
    if profile is None:
        return checked_columns(options, [name.strip() for name in text.split(",")])
    _refuse_bytes(options, profile)
    return (*profile, *bad_columns(options))


def checked_columns(options: BodyOptions, names: Sequence[str]) -> tuple[str, ...]:
    """Return ``names`` as they are spelled here, each known and once.

    Raises InvalidSchemaError.
    """
    if not is_typed(options):
        return check_columns(names)
    names_of_bad = {name.lower(): name for name in bad_columns(options)}
    checked = [names_of_bad.get(name.lower()) or check_columns([name])[0] for name in names]
    for place, name in enumerate(checked):
        if name in checked[:place]:
            raise InvalidSchemaError(name, "repeated", "name each column once")
    _refuse_bytes(options, checked)
    return tuple(checked)


def check_names(options: BodyOptions) -> None:
    """Raise InvalidOptionError where the column of bad bodies has the name of another one."""
    name = options.corrupt_column
    if name.lower() in {*map(str.lower, BY_NAME), BODY_ERROR.lower()}:
        expected = "is a column of messages: name another one"
        raise InvalidOptionError("columnNameOfCorruptRecord", name, expected)


def _refuse_bytes(options: BodyOptions, names: Sequence[str]) -> None:
    if _KAFKA_BODY in names:
        expected = "is for the column body: value, of columns=kafka, has the bytes"
        raise InvalidOptionError("body", options.body, expected)


def _reasons(count: int, decoded: DecodedBodies) -> pa.Array:
    if not decoded.reasons:
        return pa.nulls(count, pa.string())
    return pa.array([decoded.reasons.get(row) for row in range(count)], pa.string())


def _corrupt(batch: pa.RecordBatch, decoded: DecodedBodies) -> CorruptBodyError:
    row = min(decoded.reasons)
    named = [batch.column(name)[row].as_py() for name in _NAMES_MESSAGE]
    topic, broker, queue_id, at = named
    return CorruptBodyError(topic, broker, queue_id, at, decoded.reasons[row])
