"""The files of a Delta table of messages: those that its log has in the last version.

A version is a file of actions. The newest checkpoint has the files of its version; each later
version adds and removes some. What a file lacks, because the table is partitioned by it, is in the
log. Reference: PROTOCOL.md of Delta Lake, Action Reconciliation and Partition Value Serialization.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from mqstore.audit.parquet_columns import OF_AUDITS
from mqstore.audit.table_files import (
    BY_SPARK,
    READ_ERRORS,
    Roots,
    TableFile,
    damaged,
    json_lines,
    plain,
    refused,
    there,
    within,
)
from mqstore.errors import shown

LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT: Final = re.compile(r"([0-9]{20})\.checkpoint(?:\.([0-9]{10})\.([0-9]{10}))?\.parquet")
_OTHER_CHECKPOINT: Final = re.compile(r"([0-9]{20})\.checkpoint\.[^.]*\.(?:json|parquet)")
_MOST_ACTION_BYTES: Final = 64 << 20
_ACTIONS_READ: Final = 1024
_OF_CHECKPOINT: Final = (
    *("protocol", "metaData", "sidecar"),
    *("add.path", "add.partitionValues", "add.deletionVector"),
)
_MAPPING: Final = "delta.columnMapping.mode"
_FEATURES: Final = frozenset(
    ("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck")
)
"""Features of readers that a table may have; where they are in use, they are refused by file."""
_DELTA_TYPES: Final = {
    "string": pa.string(),
    **dict.fromkeys(("byte", "short", "integer", "long"), pa.int64()),
}
"""Types of columns that a table may be partitioned by, if an audit needs the column."""

_Action: TypeAlias = Mapping[str, Any]


def delta_files(roots: Roots) -> list[TableFile]:
    """Return the files of the last version, sorted by path.

    Raises InvalidOptionError for a table that is more than these, UnsafePathError, OSError.
    """
    folder = roots[1] / LOG
    if folder.resolve() != folder or not folder.is_dir():
        raise refused(roots[0], f"has no directory {LOG}")
    state = _DeltaState(roots)
    for naming, action in _actions(folder):
        state.take(naming, action)
    return state.files()


class _DeltaState:
    """What the log has said so far."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._protocol: tuple[Path, _Action] | None = None
        self._table: tuple[Path, _Action] | None = None
        self._added: dict[tuple[Path, str], tuple[Path, _Action]] = {}

    def take(self, naming: Path, action: _Action) -> None:
        """Add an action of a file of the log."""
        for kind, value in action.items():
            if kind not in ("protocol", "metaData", "add", "remove", "sidecar") or value is None:
                continue
            if not isinstance(value, Mapping):
                raise refused(naming, f"has an action {kind} that is none")
            if kind == "sidecar":
                raise refused(naming, f"names further files of the log (v2Checkpoint): {BY_SPARK}")
            if kind == "protocol":
                self._protocol = naming, value
            elif kind == "metaData":
                self._table = naming, value
            else:
                path = within(self._roots, naming, value.get("path"))
                key = path, _vector(value.get("deletionVector"))
                if kind == "add":
                    self._added[key] = naming, value
                else:
                    self._added.pop(key, None)

    def files(self) -> list[TableFile]:
        """Return the files that were added and not removed. Raises InvalidOptionError."""
        if self._protocol is None or self._table is None:
            raise refused(self._roots[0] / LOG, "has no version that says what the table is")
        _check_protocol(*self._protocol)
        types = _partitioned(*self._table)
        found = []
        for (path, _), (naming, add) in sorted(self._added.items()):
            if add.get("deletionVector") is not None:
                reason = "has deleted rows (a deletion vector): REORG TABLE … APPLY (PURGE) writes "
                raise refused(path, f"{reason}it anew without them, and {BY_SPARK}")
            found.append(TableFile(there(naming, path), _values(naming, add, types)))
        return found


def _vector(value: object) -> str:
    """Return what tells a deletion vector from others of the same file; of none, nothing."""
    if not isinstance(value, Mapping):
        return "" if value is None else "?"
    return "{storageType}{pathOrInlineDv}@{offset}".format_map(defaultdict(str, value))


def _actions(folder: Path) -> Iterator[tuple[Path, _Action]]:
    """Yield the actions of the newest checkpoint and of the later versions."""
    commits, parts = {}, dict[tuple[int, int], dict[int, Path]]()
    for path in folder.iterdir():
        if match := _COMMIT.fullmatch(path.name):
            commits[int(match[1])] = plain(path)
        elif match := _CHECKPOINT.fullmatch(path.name):
            number, total = int(match[2] or 1), int(match[3] or 1)
            parts.setdefault((int(match[1]), total), {})[number] = plain(path)
        elif _OTHER_CHECKPOINT.fullmatch(path.name):
            raise refused(path, f"is a checkpoint of another kind (v2Checkpoint): {BY_SPARK}")
    whole = [key for key, found in parts.items() if found.keys() == set(range(1, key[1] + 1))]
    start = max(whole, default=(-1, 0))
    later = sorted(number for number in commits if number > start[0])
    if later != list(range(start[0] + 1, start[0] + 1 + len(later))):
        raise refused(folder, "lacks versions between others: files of them cannot be known")
    for _, path in sorted(parts.get(start, {}).items()):
        yield from ((path, action) for action in _of_checkpoint(path))
    for number in later:
        yield from ((commits[number], action) for action in _of_commit(commits[number]))


def _of_checkpoint(path: Path) -> Iterator[_Action]:
    try:
        with pq.ParquetFile(path, pre_buffer=False) as opened:
            batches = opened.iter_batches(_ACTIONS_READ, columns=_OF_CHECKPOINT, use_threads=False)
            for batch in batches:
                yield from batch.to_pylist()
    except READ_ERRORS as error:
        raise damaged(path, error) from error


def _of_commit(path: Path) -> Iterator[_Action]:
    with path.open("rb") as file:
        yield from json_lines(path, file, _MOST_ACTION_BYTES, "is no action")


def _check_protocol(naming: Path, protocol: _Action) -> None:
    version, named = protocol.get("minReaderVersion"), protocol.get("readerFeatures") or ()
    if not isinstance(named, list | tuple) or version not in (1, 2, 3):
        raise refused(naming, f"needs a reader of version {shown(version)}: {BY_SPARK}")
    if unknown := sorted(
        {shown(one) for one in named if not isinstance(one, str) or one not in _FEATURES}
    ):
        raise refused(naming, f"needs a reader that knows {', '.join(unknown)}: {BY_SPARK}")


def _partitioned(naming: Path, table: _Action) -> dict[str, pa.DataType]:
    """Return the columns of messages that the table is partitioned by, and their types."""
    try:
        # In a checkpoint a map is a list of pairs.
        mode = dict(table.get("configuration") or ()).get(_MAPPING, "none")
        fields = json.loads(table.get("schemaString") or "")["fields"]
        types = {field["name"]: field["type"] for field in fields}
        by = table.get("partitionColumns") or ()
        wanted = {name: types[name] for name in by if name in OF_AUDITS}
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise refused(naming, "has no schema of the table") from error
    if mode != "none":
        reason = f"has other names of columns in files ({_MAPPING}={shown(mode)})"
        raise refused(naming, f"{reason}: {BY_SPARK}")
    for name, kind in wanted.items():
        if not isinstance(kind, str) or kind not in _DELTA_TYPES:
            raise refused(naming, f"is partitioned by {name}, of type {shown(kind)}: {BY_SPARK}")
    return {name: _DELTA_TYPES[kind] for name, kind in wanted.items()}


def _values(naming: Path, add: _Action, types: Mapping[str, pa.DataType]) -> dict[str, pa.Scalar]:
    """Return the values of a file's partition. The empty text is null."""
    given = add.get("partitionValues")
    try:
        texts = dict(given or ())
        return {
            name: pa.scalar(texts[name] or None, pa.string()).cast(kind)
            for name, kind in types.items()
        }
    except (*READ_ERRORS, LookupError, TypeError) as error:
        reason = f"has a file of partition {shown(given)}: {shown(error)}"
        raise refused(naming, reason) from error
