"""How far the tables of a directory are, in a file that is replaced after each batch.

Every batch may be run again, so the file may be one batch behind the tables, and never before them.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from mqstore.errors import InvalidOptionError
from mqstore.merge.orders import QueueOrder
from mqstore.merge.register import Rank
from mqstore.merge.sources import SourceWatch

ReadPosition: TypeAlias = dict[str, Any]
"""A position as ``mqlog.follow`` yields it; {} is the first message."""
_STATE_FOLDER: Final = "_mqlog"
_STATE_FILE: Final = "state.json"
_LOCK_FILE: Final = "lock"
_STATE_VERSION: Final = 1


@dataclass(slots=True)
class TableState:
    """What is kept of a table.

    keys: as they were first seen. floor: the rank of its last TRUNCATE. order: of changes without a
    sequence. stopped: why it does not go on. behind: from where its changes are not in the lake.
    unapplied: what DDL statements did that the lake lacks.
    """

    keys: tuple[str, ...] = ()
    floor: Rank = ()
    order: QueueOrder = field(default_factory=QueueOrder)
    stopped: str = ""
    behind: ReadPosition | None = None
    unapplied: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RunState:
    """What is kept of a directory; ``position`` is behind the messages that were read."""

    position: ReadPosition = field(default_factory=dict)
    batches: int = 0
    topics: list[str] = field(default_factory=list)
    tables: dict[str, TableState] = field(default_factory=dict)
    source: SourceWatch = field(default_factory=SourceWatch)
    fallen_at: ReadPosition | None = None

    def begin(self, takes: Callable[[str, TableState], bool]) -> ReadPosition:
        """Return from where to read: before what some wanted table lacks."""
        start = self.position
        for name, table in self.tables.items():
            table.order.latest_ms.clear()
            if table.behind is not None and takes(name, table):
                start = earlier(start, table.behind)
                table.behind, table.stopped = None, ""
        return start


def earlier(first: ReadPosition, second: ReadPosition) -> ReadPosition:
    """Return the earlier position of each queue; one that is missing is at its first message."""
    both: ReadPosition = {}
    for name in first.keys() & second.keys():
        one, other = first[name], second[name]
        is_deep = isinstance(one, dict) and isinstance(other, dict)
        both[name] = earlier(one, other) if is_deep else min(one, other)
    return both


@contextmanager
def held(root: Path) -> Iterator[None]:
    """Keep other runs out of a directory. Raises InvalidOptionError if there is one."""
    folder = root / _STATE_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK_FILE).open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidOptionError("--to", root, "another run writes to it") from None
        yield


def load(root: Path) -> RunState:
    """Return the state of a directory, a new one if it has none. Raises InvalidOptionError."""
    path = root / _STATE_FOLDER / _STATE_FILE
    if not path.exists():
        return RunState()
    try:
        value = json.loads(path.read_bytes())
        if value["version"] != _STATE_VERSION:
            raise InvalidOptionError("--to", root, f"{path} is of another version of mqlog")
        tables = {name: _table(one) for name, one in value["tables"].items()}
        source = SourceWatch.of_json(value["source"])
        return RunState(
            value["position"], value["batches"], value["topics"], tables, source, value["fallenAt"]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidOptionError("--to", root, f"{path} cannot be read: {error}") from None


def save(root: Path, state: RunState) -> None:
    """Replace the state of a directory; it is on the disk when this returns."""
    value = {
        "version": _STATE_VERSION,
        "position": state.position,
        "batches": state.batches,
        "topics": state.topics,
        "tables": {name: _table_json(table) for name, table in state.tables.items()},
        "source": state.source.as_json(),
        "fallenAt": state.fallen_at,
    }
    path = root / _STATE_FOLDER / _STATE_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with new.open("w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _table(value: Mapping[str, Any]) -> TableState:
    return TableState(
        tuple(value["keys"]),
        tuple(value["floor"]),
        QueueOrder.of_json(value["order"]),
        value["stopped"],
        value["behind"],
        value["unapplied"],
    )


def _table_json(table: TableState) -> dict[str, Any]:
    return {
        "keys": table.keys,
        "floor": table.floor,
        "order": table.order.as_json(),
        "stopped": table.stopped,
        "behind": table.behind,
        "unapplied": table.unapplied,
    }
