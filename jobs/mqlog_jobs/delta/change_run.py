"""Batches of change rows into the tables of a directory."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from mqlog_jobs.delta import run_state
from mqlog_jobs.delta.change_rules import ChangeRules
from mqlog_jobs.delta.ddl import ddl_effects
from mqlog_jobs.delta.lake_table import FollowedTable
from mqlog_jobs.delta.run_state import ReadPosition, RunState, TableState
from mqlog_jobs.delta.side_tables import write_bad, write_summary
from mqlog_jobs.delta.table_input import InputChange, TableStoppedError, as_change
from mqstore.changes.change import DDL, DELETE, INSERT, OTHER, TRUNCATE, UPDATE
from mqstore.changes.table_schemas import TableSchema
from mqstore.errors import shown
from mqstore.merge.errors import NewSourceError
from mqstore.merge.register import Rank

_NO_KEY: Final = "has no key"
_ROW_OPS: Final = frozenset({INSERT, UPDATE, DELETE})
_OF_A_CHANGE: Final = (
    *("op", "database", "table", "keys", "sequence", "row", "before", "unavailable", "movedTo"),
    *("movedFrom", "problems", "types", "sql", "topic", "brokerName", "queueId", "queueOffset"),
    *("rowInMessage", "_corruptBody", "_bodyError"),
)
_TIMES_OF_A_CHANGE: Final = ("sourceTimestamp", "storeTimestamp")


@dataclass(slots=True)
class _TablePart:
    """What a batch has of a table."""

    name: str
    state: TableState
    changes: list[InputChange] = field(default_factory=list)
    truncates: list[Rank] = field(default_factory=list)
    keys: tuple[str, ...] = ()
    stop: str = ""


class ChangeRun:
    """Gives the tables of a directory their changes, batch by batch.

    A batch may be given again, after a kill at any moment: it changes no row then.
    """

    def __init__(self, root: Path, state: RunState, rules: ChangeRules) -> None:
        self._root = root
        self._state = state
        self._rules = rules
        self._at = state.position
        self._tables: dict[str, FollowedTable] = {}

    def begin(self) -> ReadPosition:
        """Return from where to read; tables that stopped and are wanted are tried again."""
        self._at = self._state.begin(self._is_tried_again)
        return self._at

    def _is_tried_again(self, name: str, table: TableState) -> bool:
        lacks_key = table.stopped.startswith(_NO_KEY) and name not in self._rules.keys
        return self._rules.takes(name) and not lacks_key

    def new_source(self) -> None:
        """Take what comes after the latest change so far as of a new source."""
        self._state.source.begin_again()
        if self._state.fallen_at is not None:
            self._state.position = self._state.fallen_at
            self._state.fallen_at = None

    def take(self, rows: pa.RecordBatch, position: ReadPosition) -> dict[str, Any]:
        """Write a batch, and that it was read; return its summary.

        Raises NoChangeOrderError and NewSourceError, before anything is written.
        """
        began = time.monotonic()
        columns = _lists(rows)
        counts: Counter[str] = Counter(messages=_messages(columns), changes=rows.num_rows)
        bad: dict[int, tuple[str, bool]] = {}
        parts = self._parts(columns, counts, bad)
        for part in parts.values():
            if not self._rules.by_queue and not part.stop:
                part.state.order.check(part.name)
        for part in parts.values():
            self._apply(part, counts, bad)
        for place, problems in enumerate(columns["problems"]):
            if problems and place not in bad:
                reasons = (f"{one['column']}: {one['reason']}" for one in problems)
                bad[place] = ("; ".join(reasons), True)
        counts["bad"] = sum(not applied for _, applied in bad.values())
        counts["doubtful"] = len(bad) - counts["bad"]
        write_bad(self._root, columns, bad)
        return self._close(columns, counts, position, time.monotonic() - began)

    def _parts(
        self, columns: Mapping[str, list[Any]], counts: Counter[str], bad: dict[int, Any]
    ) -> dict[str, _TablePart]:
        parts: dict[str, _TablePart] = {}
        for place, op in enumerate(columns["op"]):
            if op is None:
                bad[place] = (columns["_bodyError"][place] or "no change", False)
                continue
            names = [columns[name][place] for name in ("database", "table")]
            if op == OTHER or not names[1]:
                counts["other"] += 1
                continue
            name = ".".join(filter(None, names))
            if name not in parts:
                state = self._state.tables.setdefault(name, TableState())
                parts[name] = _TablePart(name, state, stop=state.stopped)
            part = parts[name]
            if not self._rules.takes(name):
                part.stop = part.stop or "is not among --tables"
                counts["notWanted"] += 1
                continue
            try:
                self._add(part, columns, place, counts)
            except TableStoppedError as error:
                part.stop = part.stop or str(error)
        return parts

    def _add(
        self, part: _TablePart, columns: Mapping[str, list[Any]], place: int, counts: Counter[str]
    ) -> None:
        op = columns["op"][place]
        counts[op if op in {DDL, TRUNCATE} else "rows"] += 1
        rank = self._rank(part, columns, place, counts)
        if op == DDL:
            self._take_ddl(part, columns["sql"][place] or "", rank, _where(columns, place))
        elif op == TRUNCATE:
            part.truncates.append((*rank, 0))
        elif op in _ROW_OPS:
            schema = self._schema(columns, place)
            given = tuple(columns["keys"][place] or ()) or self._rules.keys.get(part.name, ())
            given = given or (schema.keys if schema else ())
            part.keys = part.keys or part.state.keys or given
            if given and given != part.keys:
                raise TableStoppedError(
                    f"its key was {', '.join(part.keys)}, and is {', '.join(given)} in "
                    f"{_where(columns, place)}"
                )
            if not part.keys:
                raise TableStoppedError(f"{_NO_KEY}: --keys {part.name}=COLUMN names one")
            change = as_change(columns, place, rank)
            if schema is not None:
                change.types = {**schema.columns, **change.types}
            part.changes.append(change)

    def _schema(self, columns: Mapping[str, list[Any]], place: int) -> TableSchema | None:
        schemas = self._rules.schemas
        if schemas is None:
            return None
        return schemas.of(columns["database"][place], columns["table"][place])

    def _rank(
        self, part: _TablePart, columns: Mapping[str, list[Any]], place: int, counts: Counter[str]
    ) -> Rank:
        """Return the rank of a change, without its last part."""
        sequence = columns["sequence"][place]
        queue, queue_offset = _queue(columns, place), columns["queueOffset"][place]
        if sequence is None:
            stored_ms = columns["storeTimestamp"][place] // 1_000
            is_moved = columns["movedTo"][place] is not None
            if columns["op"][place] in _ROW_OPS:  # DDL has a queue of its own.
                went_back = part.state.order.see(queue, queue_offset, stored_ms, is_moved=is_moved)
                counts["clockBack"] += went_back
            return (0, stored_ms, queue_offset, 0)
        parts = [sequence[name] for name in ("file", "position", "row")]
        log = tuple(-1 if one is None else one for one in parts)
        time_us = columns["sourceTimestamp"][place]
        if parts[0] is None:  # PostgreSQL, before a commit was seen.
            return (self._state.source.epoch_of(time_us), *log)
        try:
            epoch = self._state.source.see(queue, queue_offset, log, time_us)
        except NewSourceError:
            self._remember_fall()
            run_state.save(self._root, self._state)
            raise
        return (epoch, *log)

    def _remember_fall(self) -> None:
        if self._state.fallen_at is None:
            self._state.fallen_at = self._at

    def _take_ddl(self, part: _TablePart, sql: str, rank: Rank, where: str) -> None:
        if self._rules.on_ddl == "ignore":
            return
        effects = ddl_effects(sql)
        if effects.removes_rows:
            part.truncates.append((*rank, 0))
        if effects.unknown or (effects.unapplied and self._rules.on_ddl == "stop"):
            raise TableStoppedError(
                f"{where} has DDL that the lake cannot follow: {shown(sql, 200)}; --on-ddl ignore "
                "goes on without it"
            )
        for one in effects.unapplied:
            if one not in part.state.unapplied:
                part.state.unapplied.append(one)

    def _apply(self, part: _TablePart, counts: Counter[str], bad: dict[int, Any]) -> None:
        """Merge a table's part; a table that cannot go on stops alone."""
        if not part.stop and (part.changes or part.truncates):
            try:
                self._merge(part, counts, bad)
            except (TableStoppedError, DeltaError, pa.ArrowException, ValueError) as error:
                part.stop = shown(" ".join(str(error).split()), 500)
        if part.stop:
            part.state.stopped = part.stop
            if part.state.behind is None:
                part.state.behind = self._at

    def _merge(self, part: _TablePart, counts: Counter[str], bad: dict[int, Any]) -> None:
        state = part.state
        state.keys = part.keys or state.keys
        if not state.keys:  # Emptied before its first row: nothing can be older.
            state.floor = max([state.floor, *part.truncates])
            return
        if part.name not in self._tables:
            self._tables[part.name] = FollowedTable(self._root, part.name, state.keys)
        lake = self._tables[part.name]
        try:
            given, merge, effects = lake.apply(part.changes, part.truncates, state.floor)
        except BaseException:
            del self._tables[part.name]
            raise
        state.floor = merge.floor
        counts.update(effects)
        counts["moved"] += given.moved
        bad.update({place: (reason, False) for place, reason in given.bad.items()})
        for place, problems in given.doubtful.items():
            bad[place] = ("; ".join(f"{one.column}: {one.reason}" for one in problems), True)

    def _close(
        self,
        columns: Mapping[str, list[Any]],
        counts: Counter[str],
        position: ReadPosition,
        took: float,
    ) -> dict[str, Any]:
        state = self._state
        state.position = position
        if state.source.fallen:
            self._remember_fall()
        else:
            state.fallen_at = None
        self._at = position
        state.batches += 1
        summary = {
            "batch": state.batches,
            **{name: counts[name] for name in _COUNTED},
            **_newest(columns),
            "unapplied": [
                f"{name}: {one}" for name, table in state.tables.items() for one in table.unapplied
            ],
            "severalQueues": sorted(
                name for name, table in state.tables.items() if len(table.order.queues) > 1
            ),
            "stopped": {
                name: table.stopped for name, table in state.tables.items() if self._is_stop(table)
            },
            "seconds": round(took, 3),
        }
        write_summary(self._root, state.batches, position, summary)
        run_state.save(self._root, state)
        return summary

    def _is_stop(self, table: TableState) -> bool:
        return bool(table.stopped) and not table.stopped.startswith("is not among")


_COUNTED: Final = (
    *("messages", "changes", "rows", "upserted", "deleted", "stale", "rowsInserted"),
    *("rowsUpdated", "moved", "waiting", "bad", "doubtful", "other", "ddl", "truncate"),
    *("notWanted", "clockBack"),
)
"""The numbers of a summary."""


def _lists(rows: pa.RecordBatch) -> dict[str, list[Any]]:
    """Return columns as lists, times in microseconds, structs of rows as maps of texts."""
    columns = {name: rows.column(name).to_pylist() for name in _OF_A_CHANGE}
    for name in _TIMES_OF_A_CHANGE:
        columns[name] = rows.column(name).cast(pa.int64()).to_pylist()
    return columns


def _messages(columns: Mapping[str, Sequence[Any]]) -> int:
    return sum(number == 0 for number in columns["rowInMessage"])


def _newest(columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    times = [one for one in columns["sourceTimestamp"] if one is not None]
    if not times:
        return {"sourceLagSeconds": None}
    return {"sourceLagSeconds": round(time.time() - max(times) / 1_000_000, 1)}


def _queue(columns: Mapping[str, Sequence[Any]], place: int) -> str:
    names = ("topic", "brokerName", "queueId")
    return "/".join(str(columns[name][place]) for name in names)


def _where(columns: Mapping[str, Sequence[Any]], place: int) -> str:
    return f"{_queue(columns, place)}, offset {columns['queueOffset'][place]}"
