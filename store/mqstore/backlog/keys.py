"""The key that messages are counted by: none, the hash of a tag, a tag, or an SQL92 result.

A classifier gives every unit of a batch a small number, its key, and says which keys pass a
subscription. Key 0 is of messages that no subscription names or, by tag, that have none.
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mqstore.format.arrays import Int64s, Mask
from mqstore.format.hashing import tags_code
from mqstore.format.properties import TAGS
from mqstore.read.source import RecordSource
from mqstore.read.sql.filter import SqlFilter, property_of
from mqstore.read.tags import TagFilter
from mqstore.read.units import UnitBatch, join

Keys: TypeAlias = NDArray[np.intp]
Wanted: TypeAlias = TagFilter | SqlFilter | None


class Classifier(Protocol):
    """Units to keys in [0, count)."""

    @property
    def count(self) -> int:
        """Keys in use so far."""

    @property
    def chars(self) -> int:
        """Characters of the tags that were met and remembered."""

    def keys(self, units: UnitBatch) -> Keys:
        """Return the key of each unit, as far as the unit alone decides it."""

    def passes(self, wanted: Wanted) -> Mask:
        """Tell for each key whether its messages pass; all do without a filter of its kind."""


def classify(source: RecordSource, asked: Sequence[tuple[Classifier, UnitBatch]]) -> list[Keys]:
    """Return the key of each unit of each batch.

    Records of all batches are read together, in the order of the log: those of a topic's queues
    lie side by side there, but for SQL92. Raises what ``RecordSource.tags`` raises.
    """
    keys = [classifier.keys(units) for classifier, units in asked]
    for found, (classifier, units) in zip(keys, asked, strict=True):
        if isinstance(classifier, SqlVerdicts):
            rows = np.flatnonzero(units.sizes > 0)
            for part, properties in source.properties(units.take(rows)):
                found[rows[part]] = classifier.keys_of(properties)
    open_ = [
        (found, classifier, units, classifier.unread(units))
        for found, (classifier, units) in zip(keys, asked, strict=True)
        if isinstance(classifier, TagStrings)
    ]
    if not open_:
        return keys
    classifiers = [classifier for _, classifier, _, _ in open_]
    edges = np.concatenate(([0], np.cumsum([len(rows) for *_, rows in open_])))
    numbers = np.zeros(int(edges[-1]), np.intp)
    for part, tag in source.tags(join([units.take(rows) for *_, units, rows in open_])):
        if not len(part):
            continue  # No record of this stretch of the log can be read.
        encoded = tag.dictionary_encode(null_encoding="encode")
        names = encoded.dictionary.to_pylist()
        # Each classifier has numbers of its own for the tags that its units have.
        owners = np.searchsorted(edges, part, side="right") - 1
        cells = owners * len(names) + encoded.indices.to_numpy()
        used, inverse = np.unique(cells, return_inverse=True)
        numbers[part] = _numbers(classifiers, names, used)[inverse]
    for (found, _, _, rows), begin, end in zip(open_, edges[:-1], edges[1:], strict=True):
        found[rows] = numbers[begin:end]
    return keys


def _numbers(
    classifiers: "Sequence[TagStrings]", names: Sequence[str | None], cells: Int64s
) -> Keys:
    """Return the key of each cell, which is classifier * len(names) + name; cells ascend."""
    owners, codes = np.divmod(cells, len(names))
    first = np.flatnonzero(np.diff(owners, prepend=-1))
    numbers: list[int] = []
    for owner, chosen in zip(owners[first].tolist(), np.split(codes, first[1:]), strict=True):
        numbers += classifiers[owner].numbers([names[code] for code in chosen.tolist()])
    return np.array(numbers, np.intp)


class EveryMessage:
    """One key for all: tags do not matter."""

    count = 1
    chars = 0

    def keys(self, units: UnitBatch) -> Keys:
        """Return zeros."""
        return np.zeros(len(units), np.intp)

    def passes(self, wanted: Wanted) -> Mask:
        """Return that the one key passes; ``wanted`` is None where this is used."""
        return np.ones(1, np.bool_)


class TagHashes:
    """A key for each hash that some subscription names, one for codes that are no hashes."""

    chars = 0

    def __init__(self, topic: str, wanted: TagFilter) -> None:
        self._topic = topic
        self._wanted = wanted
        self._codes = np.array(sorted(wanted.codes), np.int64)
        self.count = len(self._codes) + 2

    def keys(self, units: UnitBatch) -> Keys:
        """Return the key of each unit by its tagsCode."""
        keys = np.zeros(len(units), np.intp)
        may = self._wanted.may_match(self._topic, units.tags_codes)
        rows = np.flatnonzero(may)
        codes = units.tags_codes[rows]
        nearest = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        keys[rows] = np.where(self._codes[nearest] == codes, nearest + 1, self.count - 1)
        return keys

    def passes(self, wanted: Wanted) -> Mask:
        """Tell by the hash. As the broker does: what has no hash passes."""
        if not isinstance(wanted, TagFilter):
            return np.ones(self.count, np.bool_)
        return np.concatenate(([False], np.isin(self._codes, list(wanted.codes)), [True]))


class TagStrings:
    """A key for each tag, read from the record where the hash leaves it open.

    ``names[key]`` is the tag.
    With ``wanted``, only the records that its hashes let pass from queue offset ``since`` on
    are read, and only its tags have keys; without, all are.
    """

    def __init__(
        self, topic: str, wanted: TagFilter | None, *, since: int = 0, by_hash: bool = False
    ) -> None:
        self._topic = topic
        self.wanted = wanted
        self.since = since
        self._by_hash = by_hash
        self.names: list[str | None] = [None]
        self.chars = 0
        if wanted:
            self.names += sorted(wanted.tags)
        self._keys = {name: key for key, name in enumerate(self.names)}

    @property
    def count(self) -> int:
        """Keys in use so far."""
        return len(self.names)

    def keys(self, units: UnitBatch) -> Keys:
        """Return zeros: a unit does not have the tag."""
        return np.zeros(len(units), np.intp)

    def unread(self, units: UnitBatch) -> Int64s:
        """Return the rows whose hash may be one of ``wanted``; all without."""
        readable = units.sizes > 0
        if self.wanted is not None:
            readable &= units.positions.queue_offsets >= self.since
            readable &= self.wanted.may_match(self._topic, units.tags_codes)
        return np.flatnonzero(readable)

    def numbers(self, names: Sequence[str | None]) -> list[int]:
        """Return the keys of ``names``: new ones without ``wanted``, else 0 for all others."""
        if self.wanted is None:
            for name in names:
                if name not in self._keys:
                    self._keys[name] = len(self.names)
                    self.names.append(name)
                    self.chars += len(name or "")
        return [self._keys.get(name, 0) for name in names]

    def keys_of(self, tags: pa.StringArray) -> Keys:
        """Return the key of each message by its tag."""
        encoded = tags.dictionary_encode(null_encoding="encode")
        numbers = np.array(self.numbers(encoded.dictionary.to_pylist()), np.intp)
        keys: Keys = numbers[encoded.indices.to_numpy()]
        return keys

    def passes(self, wanted: Wanted) -> Mask:
        """Tell by the tag, or by its hash if asked to."""
        if not isinstance(wanted, TagFilter):
            return np.ones(self.count, np.bool_)
        if self._by_hash:
            return np.array([tags_code(name) in wanted.codes for name in self.names])
        return np.array([name in wanted.tags for name in self.names])


class SqlVerdicts:
    """A key for each combination of the SQL92 expressions that a message passes, and of its tag.

    ``names[key]`` is the tag, null without ``by_tag``. Key 0 is of messages that cannot be read.
    """

    def __init__(self, filters: Sequence[SqlFilter], *, by_tag: bool) -> None:
        self._filters = filters
        self._by_tag = by_tag
        self._passed: list[tuple[bool, ...]] = [(False,) * len(filters)]
        self._keys: dict[tuple[tuple[bool, ...], str | None], int] = {(self._passed[0], None): 0}
        self.names: list[str | None] = [None]
        self.chars = 0

    @property
    def count(self) -> int:
        """Keys in use so far."""
        return len(self.names)

    def keys(self, units: UnitBatch) -> Keys:
        """Return zeros: a unit does not have the properties."""
        return np.zeros(len(units), np.intp)

    def keys_of(self, properties: pa.MapArray) -> Keys:
        """Return the key of each message by its properties."""
        if not len(properties):
            return np.empty(0, np.intp)
        passed = [found.matches(properties) for found in self._filters]
        tags = property_of(properties, TAGS) if self._by_tag else pa.nulls(len(properties))
        encoded = tags.cast(pa.string()).dictionary_encode(null_encoding="encode")
        names, cells = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        for mask in passed:
            cells = np.unique(2 * cells + mask, return_inverse=True)[1]
        _, rows, inverse = np.unique(cells, return_index=True, return_inverse=True)
        codes = encoded.indices.to_numpy()
        numbers = [
            self._key(tuple(bool(mask[row]) for mask in passed), names[codes[row]])
            for row in rows.tolist()
        ]
        keys: Keys = np.array(numbers, np.intp)[inverse]
        return keys

    def passes(self, wanted: Wanted) -> Mask:
        """Tell for each key whether its messages pass; all do without a filter."""
        if not isinstance(wanted, SqlFilter):
            return np.ones(self.count, np.bool_)
        number = self._filters.index(wanted)
        return np.array([passed[number] for passed in self._passed])

    def _key(self, passed: tuple[bool, ...], name: str | None) -> int:
        key = self._keys.setdefault((passed, name), len(self.names))
        if key == len(self.names):
            self._passed.append(passed)
            self.names.append(name)
            self.chars += len(name or "")
        return key
