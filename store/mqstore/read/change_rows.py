"""Messages as rows of changes: decoded behind the scan, 0 to n rows of each message.

Which messages are read, and what filters leave of them, is that of messages; the rows of a message
stand together, in its order.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.bodies.errors import CorruptBodyError
from mqstore.bodies.settings import BODY_ERROR, DROP_MALFORMED, FAIL_FAST
from mqstore.changes.change import (
    CHANGE_COLUMNS,
    DELETE,
    INSERT,
    OF_MESSAGE,
    ROW_IN_MESSAGE,
    UPDATE,
    Change,
    ChangeMessage,
    Problem,
    Values,
    change_column,
    change_schema,
)
from mqstore.changes.collected import size_of
from mqstore.changes.formats import CHANGE_FORMATS, decoded
from mqstore.changes.settings import ChangeOptions, context_of, row_type
from mqstore.changes.values import typed_rows
from mqstore.codec.schema import BY_NAME, PROFILES, message_schema
from mqstore.errors import InvalidOptionError, InvalidSchemaError
from mqstore.format.arrays import Int64s
from mqstore.options.grammar import did_you_mean
from mqstore.read.settings import ScanSettings

_LOG = logging.getLogger(__name__)
_STORED: Final = ("body", "keys", "properties")
_IMAGES: Final = ("row", "before")
_ALL_CHANGES: Final = frozenset(column.name for column in CHANGE_COLUMNS)
_MORE_OF_MESSAGE: Final = tuple(
    name for name in PROFILES["full"] if name not in {*_ALL_CHANGES, *OF_MESSAGE, "body"}
)
"""Columns of messages that may be chosen beside those of changes."""
_BATCH_CHANGES: Final = 20_000
_BATCH_CHARACTERS: Final = 64 << 20
_FEW_CHANGES: Final = 8
"""Of a message: its rows are at most some times as large as its body."""
_OF_ROWS: Final = frozenset({INSERT, UPDATE, DELETE})
_NO_ORDER: Final = (
    "changes in topic %s have no sequence: their producer gives no order beside that of a queue. A "
    "table of them is right where all changes of a table lie in one queue"
)
_MOST_WARNED: Final = 1_000
_OTHER_TABLE: Final = "the row is of a table that changesSchema does not have: it is left out"


class ChangeRows:
    """Makes the rows of changes of one scan, of the messages that it reads."""

    def __init__(self, settings: ScanSettings) -> None:
        assert settings.changes is not None
        self._settings = settings
        self._schema = changes_schema_of(settings, settings.columns)
        self._decode = CHANGE_FORMATS[settings.changes]
        self._context = context_of(settings)
        self._row_type = row_type(settings)
        self._mode = settings.body_mode
        self._has_warned = False

    @property
    def stored(self) -> ScanSettings:
        """The settings of the scan that reads the messages."""
        own = [name for name in self._settings.columns if name in _FROM_MESSAGE]
        names = dict.fromkeys([*own, *_STORED, *OF_MESSAGE])
        return replace(self._settings, columns=tuple(names))

    def batches(self, stored: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of changes, with the columns of the settings.

        Raises CorruptBodyError at the first message that cannot be decoded if ``bodyMode`` is
        FAILFAST.
        """
        for batch in stored:
            changes: list[Change] = []
            counts: list[int] = []
            start = size = 0
            for of_message, body_size in self._decoded(batch):
                changes += of_message
                counts.append(len(of_message))
                size += body_size
                if len(changes) >= _BATCH_CHANGES or size >= _BATCH_CHARACTERS:
                    yield from self._made(batch, start, changes, counts)
                    start += len(counts)
                    changes, counts, size = [], [], 0
            yield from self._made(batch, start, changes, counts)

    def _decoded(self, batch: pa.RecordBatch) -> Iterator[tuple[list[Change], int]]:
        """Yield the changes of each message, and about how many characters their rows have."""
        bodies, keys, properties = (batch.column(name) for name in _STORED)
        for place in range(len(batch)):
            body = bodies[place].as_py()
            message = ChangeMessage(
                body, keys[place].as_py(), dict(properties[place].as_py() or ())
            )
            changes = decoded(self._decode, message, self._context)
            if changes[0].op is None and self._mode == FAIL_FAST:
                raise _undecoded(batch, place, changes[0].reason or "")
            if not self._has_warned:
                self._warn(batch, place, changes)
            if self._mode == DROP_MALFORMED and changes[0].op is None:
                changes = []
            size = len(body) if len(changes) <= _FEW_CHANGES else sum(map(_size, changes))
            yield changes, size

    def _warn(self, batch: pa.RecordBatch, place: int, changes: Sequence[Change]) -> None:
        if any(change.op in _OF_ROWS and change.sequence is None for change in changes):
            self._has_warned = True
            warn_of_no_order(batch.column("topic")[place].as_py())

    def _made(
        self, batch: pa.RecordBatch, start: int, changes: list[Change], counts: list[int]
    ) -> Iterator[pa.RecordBatch]:
        if not changes:
            return
        of_message = np.repeat(np.arange(start, start + len(counts)), counts)
        in_message = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
        images = self._images(changes)
        corrupt, error = bad_change_columns(self._settings)
        rows = pa.array(of_message)
        arrays = []
        for name in self._settings.columns:
            if name in images:
                arrays.append(images[name])
            elif name in _ALL_CHANGES:
                arrays.append(change_column(name, changes))
            elif name == ROW_IN_MESSAGE:
                arrays.append(pa.array(in_message))
            elif name == corrupt:
                arrays.append(_corrupt_bodies(batch.column("body"), of_message, changes))
            elif name == error:
                arrays.append(pa.array([change.reason for change in changes], pa.string()))
            else:
                arrays.append(batch.column(name).take(rows))
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _images(self, changes: list[Change]) -> dict[str, pa.Array]:
        """Return the columns of images that are structs; what does not fit is a problem."""
        kind = self._row_type
        if kind is None or {*_IMAGES, "problems"}.isdisjoint(self._settings.columns):
            return {}
        images = {}
        for name in _IMAGES:
            own = [self._own(change, getattr(change, name)) for change in changes]
            images[name], problems = typed_rows(own, kind)
            for number, of_row in problems.items():
                known = {problem.column for problem in changes[number].problems}
                changes[number].problems += [p for p in of_row if p.column not in known]
        return {name: array for name, array in images.items() if name in self._settings.columns}

    def _own(self, change: Change, image: Values | None) -> Values | None:
        if image is None or self._context.schema(change.database, change.table) is not None:
            return image
        if not any(problem.reason == _OTHER_TABLE for problem in change.problems):
            change.problems.append(Problem("", _OTHER_TABLE))
        return None


@lru_cache(maxsize=_MOST_WARNED)
def warn_of_no_order(topic: str) -> None:
    """Warn that changes have no sequence, once in a process for each topic."""
    _LOG.warning(_NO_ORDER, topic)


_FROM_MESSAGE: Final = frozenset({*OF_MESSAGE, *_MORE_OF_MESSAGE})


def bad_change_columns(options: ChangeOptions) -> tuple[str, str]:
    """Return the names of the columns of messages that could not be decoded."""
    return options.corrupt_column, BODY_ERROR


def changes_schema_of(options: ChangeOptions, names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of columns of changes.

    Raises InvalidOptionError where the type of rows is not known yet.
    """
    schema = change_schema(*bad_change_columns(options))
    kind = row_type(options)
    fields = []
    for name in names:
        if name in _IMAGES and kind is not None:
            fields.append(pa.field(name, kind))
        elif name in _MORE_OF_MESSAGE:
            fields.append(message_schema([name]).field(0))
        else:
            fields.append(schema.field(name))
    return pa.schema(fields)


def all_change_columns(options: ChangeOptions) -> tuple[str, ...]:
    """Return the columns of changes, in their order."""
    return tuple(change_schema(*bad_change_columns(options)).names)


def checked_change_columns(options: ChangeOptions, names: Sequence[str]) -> tuple[str, ...]:
    """Return ``names`` as they are spelled here, each known and once.

    Beside the columns of changes there are those of messages, but for the body and ``keys``, which
    is the key's columns here. Raises InvalidSchemaError.
    """
    own = all_change_columns(options)
    known = {name.lower(): name for name in (*_MORE_OF_MESSAGE, *own)}
    checked: list[str] = []
    for name in names:
        column = known.get(name.strip().lower())
        if column is None:
            near = did_you_mean(name, list(known.values()))
            what = f"{near}changes={options.changes} has {', '.join(own)}"
            raise InvalidSchemaError(name, "unknown", what)
        if column in checked:
            raise InvalidSchemaError(name, "repeated", "name each column once")
        checked.append(column)
    return tuple(checked)


def check_change_names(options: ChangeOptions) -> None:
    """Raise InvalidOptionError where the column of bad messages has the name of another one."""
    name = options.corrupt_column
    taken = {*BY_NAME, *_ALL_CHANGES, ROW_IN_MESSAGE, BODY_ERROR}
    if name.lower() in map(str.lower, taken):
        expected = "is a column of changes or of messages: name another one"
        raise InvalidOptionError("columnNameOfCorruptRecord", name, expected)


def _size(change: Change) -> int:
    return size_of(change.row) + size_of(change.before) + size_of(change.types)


def _corrupt_bodies(bodies: pa.Array, of_message: Int64s, changes: Sequence[Change]) -> pa.Array:
    bad = [change.op is None for change in changes]
    if not any(bad):
        return pa.nulls(len(changes), pa.binary())
    rows = [row if is_bad else None for row, is_bad in zip(of_message.tolist(), bad, strict=True)]
    return bodies.take(pa.array(rows, pa.int64()))


def _undecoded(batch: pa.RecordBatch, place: int, reason: str) -> CorruptBodyError:
    names = ("topic", "brokerName", "queueId", "queueOffset")
    topic, broker, queue_id, at = (batch.column(name)[place].as_py() for name in names)
    return CorruptBodyError(topic, broker, queue_id, at, reason)
