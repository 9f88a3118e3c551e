"""The files of a store: what each is, how full it is, what is wrong with it at first sight.

First sight means names, sizes and the ends of what is written; what is inside, ``verify`` tells.

Reference: MappedFileQueue#doLoad (which files a broker refuses), MappedFile#getWrotePosition,
StorePathConfigHelper.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from mqstore.errors import CorruptConfigError, StoreError, UnsafePathError
from mqstore.files.base.folder import Folder
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.files.index.index_file import IndexFile
from mqstore.files.log.log_end import records_end
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.files.txn import intent
from mqstore.format import checkpoint, names
from mqstore.format import index_file as index_format
from mqstore.format.consume_queue import UNIT
from mqstore.tables.choice import StoreRoot
from mqstore.tables.columns import BROKER_NAME, Columns, batches, schema
from mqstore.tables.table import Table

COLUMNS: Final[Columns] = (
    ("kind", pa.string(), False,
     "commitlog, consumequeue, index, config, checkpoint, abort, lock or other"),
    ("path", pa.string(), False, "path below the store's root; a CommitLog elsewhere: in full"),
    ("startOffset", pa.int64(), True,
     "position of its first byte in the sequence; of an IndexFile, its first physicalOffset"),
    ("sizeBytes", pa.int64(), False, "its length"),
    ("wrotePosition", pa.int64(), True, "bytes in use; null: not known"),
    ("problem", pa.string(), True, "a problem that the name or the size shows"),
    BROKER_NAME,
)  # fmt: skip
SCHEMA: Final = schema(COLUMNS)

_Found: TypeAlias = tuple[str, str, int | None, int, int | None, str | None]
_TASK_TOPICS: Final = 1000
_DEPTH: Final = 4
_RUNNING: Final = "the store was not closed: a broker is running, or crashed"
_UNDER_WAY: Final = "a commit of mqlog is under way, or was killed: the next write finishes it"
_REFUSED: Final = "a broker does not start"
_NOT_FILES: Final = {
    "directory": "a directory",
    "link": "a symbolic link: mqlog does not follow it",
    "special": "neither a file nor a directory",
}
_TOP_KINDS: Final = {names.CHECKPOINT: "checkpoint", names.ABORT: "abort", names.LOCK: "lock"}


@dataclass(frozen=True, slots=True)
class FilesPart:
    """The ConsumeQueues of some topics of a store, or all its other files (None). Pickles."""

    store: StoreRoot
    topics: tuple[str, ...] | None

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each file; its end is looked for if ``columns`` ask for it."""
        found = self._found(measured="wrotePosition" in columns)
        rows = (
            (kind, names.as_text(path), *rest, self.store.broker_name)
            for kind, path, *rest in found
        )
        yield from batches(rows, SCHEMA)

    def _found(self, *, measured: bool) -> Iterator[_Found]:
        place = self.store.place
        if self.topics is not None:
            for topic in self.topics:
                yield from _queues_of(place, topic)
            return
        for folder in place.commit_log:
            yield from _commit_log(place, folder, measured=measured)
        for name, kind, size in _listed(place.folder, names.CONSUME_QUEUE):
            if kind != "directory":
                path = f"{names.CONSUME_QUEUE}/{name}"
                yield "other", path, None, size, None, _NOT_FILES.get(kind)
        yield from _config(place)
        yield from _index(place)
        yield from _top(place)


def plan(store: StoreRoot) -> list[FilesPart]:
    """Return the parts of one store: its topics, a thousand in each, and the rest."""
    entries = _listed(store.place.folder, names.CONSUME_QUEUE)
    topics = [name for name, kind, _ in entries if kind == "directory"]
    shares = [tuple(topics[at : at + _TASK_TOPICS]) for at in range(0, len(topics), _TASK_TOPICS)]
    return [FilesPart(store, share) for share in (None, *shares)]


def _commit_log(place: StoreDir, folder: Folder, *, measured: bool) -> Iterator[_Found]:
    shown = folder.name.removeprefix(f"{place.root}/")
    files, problems = _mapped(folder, "")
    of_entries = bool(place.dledger) and shown != names.COMMIT_LOG
    ends = _ends(files, of_entries=of_entries) if measured else {}
    for file in files:
        told = file.start, file.size, ends.get(file.path), problems.pop(file.path, None)
        yield "commitlog", f"{shown}/{file.path}", *told
    for name, problem in problems.items():
        yield "commitlog", f"{shown}/{name}", None, 0, None, problem


def _ends(files: Sequence[MappedFile], *, of_entries: bool) -> dict[str, int]:
    """Return where the records of each file end: only the last one with any is walked."""
    ends: dict[str, int] = {}
    for file in reversed(files):
        is_last = not any(ends.values())
        ends[file.path] = records_end(file, of_entries=of_entries) if is_last else file.size
    return ends


def _queues_of(place: StoreDir, topic: str) -> Iterator[_Found]:
    path = f"{names.CONSUME_QUEUE}/{topic}"
    for name, kind, size in _listed(place.folder, path):
        queue_id = names.parse_queue_id(name)
        if kind != "directory" or queue_id is None or not names.is_topic(topic):
            problem = "no queue of a topic: a broker passes it by"
            yield "other", f"{path}/{name}", None, size, None, problem
        else:
            yield from _queue(ConsumeQueue(place, topic, queue_id))


def _queue(queue: ConsumeQueue) -> Iterator[_Found]:
    files, problems = _mapped(queue.place.folder, queue.path)
    try:
        high = queue.bounds(0)[1] * UNIT.itemsize if files else 0
    except StoreError:  # Something is there that we do not follow: it is in ``problems``.
        high = None
    for file in files:
        wrote = None if high is None else min(max(high - file.start, 0), file.size)
        problem = problems.pop(file.path, None)
        if wrote == 0:
            problem = problem or "all zeros: a broker takes its first unit for a message"
        yield "consumequeue", file.path, file.start, file.size, wrote, problem
    for path, reason in problems.items():
        yield "consumequeue", path, None, 0, None, reason


def _mapped(folder: Folder, path: str) -> tuple[list[MappedFile], dict[str, str]]:
    """Return the mapped files of a directory, and what is wrong by path: with them or others."""
    files, problems = [], {}
    for name, kind, size in _listed(folder, path):
        place = f"{path}/{name}" if path else name
        start = names.parse_mapped_file_name(name)
        if kind != "file":
            problems[place] = _NOT_FILES[kind]
        elif start is None:
            problems[place] = f"not named after a position: {_REFUSED}"
        elif not size:
            problems[place] = f"empty: {_REFUSED}; since 5.1.3 it deletes the file if it is last"
        else:
            files.append(MappedFile(folder, place, start, size))
    usual = Counter(file.size for file in files).most_common(1)
    for before, file in zip([None, *files], files, strict=False):
        if file.size != usual[0][0]:
            problems[file.path] = f"the others have {usual[0][0]} bytes: {_REFUSED}"
        elif before is not None and before.end != file.start:
            problems[file.path] = f"bytes {before.end} to {file.start} before it are missing"
    return files, problems


def _config(place: StoreDir) -> Iterator[_Found]:
    for name, kind, size in _listed(place.folder, names.CONFIG):
        if kind == "directory":
            yield from _other(place.folder, f"{names.CONFIG}/{name}", _DEPTH)
            continue
        problem = _NOT_FILES.get(kind)
        if kind == "file" and name.removesuffix(".bak").endswith(".json"):
            problem = _config_problem(place, name)
        yield "config", f"{names.CONFIG}/{name}", None, size, size, problem


def _config_problem(place: StoreDir, name: str) -> str | None:
    try:
        source = BrokerConfig(place).load_from(name)[1]
    except CorruptConfigError as error:
        return error.message()
    except StoreError:
        return None  # The .bak is no plain file, and has a row of its own that says so.
    return None if source == name else f"a broker cannot use it and reads {source}"


def _index(place: StoreDir) -> Iterator[_Found]:
    for name, kind, size in _listed(place.folder, names.INDEX):
        path = f"{names.INDEX}/{name}"
        if kind != "file" or not names.is_index_file_name(name):
            reason = _NOT_FILES.get(kind, "not named after a time: a broker passes it by")
            yield "index", path, None, size, None, reason
            continue
        file = IndexFile(place, name, size)
        layout = file.layout
        wrote = None if layout is None else index_format.file_size(layout.slots, file.count)
        broken = layout is None and file.count > index_format.FIRST_UNIT
        problem = "no number of slots fits what it holds" if broken else None
        start = int(file.header["begin_physical_offset"])
        yield "index", path, start, size, wrote, problem


def _top(place: StoreDir) -> Iterator[_Found]:
    told = {names.COMMIT_LOG, names.CONSUME_QUEUE, names.INDEX, names.CONFIG}
    for name, kind, size in _listed(place.folder):
        if kind == "directory":
            if name not in told and place.folder.at(name) not in place.commit_log:
                yield from _other(place.folder, name, _DEPTH, place.commit_log)
            continue
        problem = _NOT_FILES.get(kind)
        if name == names.ABORT:
            problem = _UNDER_WAY if intent.abort_is_ours(place) else _RUNNING
        elif name == names.CHECKPOINT and size < checkpoint.CHECKPOINT.itemsize:
            problem = f"shorter than its {checkpoint.CHECKPOINT.itemsize} bytes"
        yield _TOP_KINDS.get(name, "other"), name, None, size, size, problem


def _other(folder: Folder, path: str, depth: int, but: Sequence[Folder] = ()) -> Iterator[_Found]:
    """Yield the files below a directory, not deeper than ``depth``; without folders ``but``."""
    for name, kind, size in _listed(folder, path):
        if kind == "directory":
            if depth and folder.at(f"{path}/{name}") not in but:
                yield from _other(folder, f"{path}/{name}", depth - 1, but)
        else:
            yield "other", f"{path}/{name}", None, size, size, _NOT_FILES.get(kind)


def _listed(folder: Folder, path: str = "") -> list[tuple[str, str, int]]:
    """Return what is in a directory; nothing of a link, which has a row where it is listed."""
    try:
        return folder.survey(path)
    except UnsafePathError:
        return []


FILES: Final = Table(
    "files",
    COLUMNS,
    lambda request: [part for root in request.roots() for part in plan(root)],
    options=frozenset(),
    of_files="a broker does not report its files",
)
