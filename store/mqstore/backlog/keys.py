"""What a message is counted under: nothing, its tag's hash, or its tag.

A classifier gives every unit of a chunk a small number, its key, and tells which keys pass a
subscription. Key 0 is what nobody asked about or, by tag, a message without one.
"""

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from mqstore.files.commit_log import CommitLog
from mqstore.format.hashing import tags_code
from mqstore.read.heads import tags
from mqstore.read.tags import TagFilter
from mqstore.read.units import Chunk

Keys = NDArray[np.intp]

_FEW_CODES: Final = 8


class Classifier(Protocol):
    """Units to keys in [0, count)."""

    @property
    def count(self) -> int:
        """Keys in use so far."""

    @property
    def chars(self) -> int:
        """Characters of the tags that were met and remembered."""

    def keys(self, chunk: Chunk) -> Keys:
        """Return the key of each unit."""

    def passes(self, wanted: TagFilter | None) -> NDArray[np.bool_]:
        """Tell for each key whether its messages pass; all do without a filter."""


class EveryMessage:
    """One key for all: tags do not matter."""

    count = 1
    chars = 0

    def keys(self, chunk: Chunk) -> Keys:
        """Return zeros."""
        return np.zeros(len(chunk), np.intp)

    def passes(self, wanted: TagFilter | None) -> NDArray[np.bool_]:
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

    def keys(self, chunk: Chunk) -> Keys:
        """Return the key of each unit by its tagsCode."""
        keys = np.zeros(len(chunk), np.intp)
        may = self._wanted.may_match(self._topic, chunk.tags_codes)
        rows = np.flatnonzero(may)
        codes = chunk.tags_codes[rows]
        nearest = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        keys[rows] = np.where(self._codes[nearest] == codes, nearest + 1, self.count - 1)
        return keys

    def passes(self, wanted: TagFilter | None) -> NDArray[np.bool_]:
        """Tell by the hash. As the broker does: what has no hash passes."""
        if wanted is None:
            return np.ones(self.count, np.bool_)
        return np.concatenate(([False], np.isin(self._codes, list(wanted.codes)), [True]))


class TagStrings:
    """A key for each tag, read from the record where the hash leaves it open.

    ``names[key]`` is the tag.
    With ``wanted``, only the records that its hashes let pass from queue offset ``since`` on
    are read, and only its tags have keys; without, all are.
    """

    def __init__(
        self,
        log: CommitLog,
        topic: str,
        wanted: TagFilter | None,
        *,
        since: int = 0,
        by_hash: bool = False,
    ) -> None:
        self._log = log
        self._topic = topic
        self._wanted = wanted
        self._since = since
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

    def keys(self, chunk: Chunk) -> Keys:
        """Return the key of each unit by the TAGS of its record."""
        keys = np.zeros(len(chunk), np.intp)
        rows = np.flatnonzero(self._open(chunk))
        for part, found in tags(self._log, chunk.physical_offsets[rows], chunk.sizes[rows]):
            encoded = found.dictionary_encode(null_encoding="encode")
            numbers = np.array(self._numbers(encoded.dictionary.to_pylist()), np.intp)
            keys[rows[part]] = numbers[encoded.indices.to_numpy()]
        return keys

    def passes(self, wanted: TagFilter | None) -> NDArray[np.bool_]:
        """Tell by the tag, or by its hash if asked to."""
        if wanted is None:
            return np.ones(self.count, np.bool_)
        if self._by_hash:
            return np.array([tags_code(name) in wanted.codes for name in self.names])
        return np.array([name in wanted.tags for name in self.names])

    def _open(self, chunk: Chunk) -> NDArray[np.bool_]:
        readable = chunk.sizes > 0
        if self._wanted is None:
            return readable
        readable[: max(0, self._since - chunk.start)] = False
        readable &= self._wanted.may_match(self._topic, chunk.tags_codes)
        return readable

    def _numbers(self, names: list[str | None]) -> list[int]:
        if self._wanted is None:
            for name in names:
                if name not in self._keys:
                    self._keys[name] = len(self.names)
                    self.names.append(name)
                    self.chars += len(name or "")
        return [self._keys.get(name, 0) for name in names]
