"""What ``mqlog changes`` does: reads topics batch by batch, and prints what became of each."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from mqlog.following import Following
from mqlog_jobs.delta import run_state
from mqlog_jobs.delta.change_rules import ChangeRules
from mqlog_jobs.delta.change_run import ChangeRun
from mqlog_jobs.output.amounts import count
from mqlog_jobs.places import Named, option_texts, own_advice, with_read_options
from mqstore.changes.table_schemas import TableSchema, TableSchemas
from mqstore.errors import InvalidOptionError, printable
from mqstore.request.read_options import StreamOptions
from mqstore.request.stream import stream_options

_DELTA: Final = "delta:"
_OF_THE_COMMAND: Final = {
    **dict.fromkeys(("subscribe", "subscribePattern", "assign"), "is for the argument TOPIC"),
    "changes": "use --format",
    **dict.fromkeys(
        ("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "columns"),
        "is not for changes: a table needs all of them, from the first on",
    ),
}
_MOST_BATCH_BYTES: Final = 64 << 20
"""Of the records of a batch, whatever their number."""


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """What is read, and where it goes; ``batch`` messages at once."""

    topics: tuple[str, ...]
    to: str
    producer: str
    batch: int
    begins_again: bool = False
    follow: bool = False

    def directory(self) -> Path:
        """Return the directory of the tables. Raises InvalidOptionError."""
        path = self.to.removeprefix(_DELTA)
        if not self.to.startswith(_DELTA) or not path or "://" in path:
            raise InvalidOptionError("--to", self.to, "must be delta: and a directory")
        return Path(path).expanduser()


def run(named: Named, request: ChangeRequest, rules: ChangeRules, *, as_json: bool) -> None:
    """Bring the tables of a directory up to date.

    Raises InvalidOptionError, NoChangeOrderError, NewSourceError, and what opening places and
    reading raises.
    """
    root = request.directory()
    options = _stream(named, request)
    rules = replace(rules, schemas=options.read.changes_schema)
    root.mkdir(parents=True, exist_ok=True)
    with run_state.held(root):
        state = run_state.load(root)
        if state.topics and state.topics != sorted(request.topics):
            expected = f"the tables of {root} are of {', '.join(state.topics)}: name these"
            raise InvalidOptionError("TOPIC", ", ".join(request.topics), expected)
        state.topics = sorted(request.topics)
        changes = ChangeRun(root, state, rules)
        if request.begins_again:
            changes.new_source()
        position = changes.begin()
        read = replace(options, read=replace(options.read, changes_schema=_as_maps(rules.schemas)))
        with own_advice():
            batches = Following(read, position or None, None if request.follow else 0).batches()
        for rows, end in batches:
            _print(changes.take(rows, end), as_json=as_json)
        if not as_json:
            sys.stdout.write(f"{_ended(state)}\n")


def _stream(named: Named, request: ChangeRequest) -> StreamOptions:
    places, others = with_read_options(named, _OF_THE_COMMAND)
    given = {name: text for name, text in others.items() if text is not None}
    texts = {
        **option_texts(places.options, places.flag),
        **given,
        "subscribe": json.dumps(request.topics),
        "startingOffsets": "earliest",
        "changes": request.producer,
        "maxOffsetsPerTrigger": str(request.batch),
        "maxBytesPerTrigger": str(_MOST_BATCH_BYTES),
    }
    with own_advice():
        return stream_options(places.paths, {name.lower(): text for name, text in texts.items()})


def _as_maps(schemas: TableSchemas | None) -> TableSchemas | None:
    """Return the schemas for a read whose rows are maps, also where one table is known alone."""
    if schemas is None or schemas.only is None:
        return schemas
    nobody = TableSchema({"": "string"}, (), "", "")
    return TableSchemas(schemas.source, (*schemas.tables, nobody))


def _print(summary: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(summary, ensure_ascii=False) + "\n")
    else:
        words = [
            f"{count(summary[name])} {word}"
            for name, word in _SUMMARY_WORDS.items()
            if summary[name] or name == "messages"
        ]
        sys.stdout.write(f"batch {summary['batch']}: {', '.join(words)}\n")
        notes = [f"{name} stopped: {why}" for name, why in summary["stopped"].items()]
        notes += [f"not in the lake: {one}" for one in summary["unapplied"]]
        sys.stdout.writelines(f"  {printable(note)}\n" for note in notes)
    sys.stdout.flush()


def _ended(state: run_state.RunState) -> str:
    tables = sum(not one.stopped for one in state.tables.values())
    return f"up to date: {count(tables)} tables"


_SUMMARY_WORDS: Final = {
    "messages": "messages",
    "rowsInserted": "rows inserted",
    "rowsUpdated": "updated",
    "deleted": "deleted",
    "stale": "older than what is there",
    "moved": "with a changed key",
    "waiting": "with values that have not come",
    "doubtful": "with doubtful values",
    "bad": "bad",
}
