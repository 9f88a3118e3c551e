"""What was committed to a store: .mqlog/txn/app-<hash>.json for each application.

    {"appId":"loader","version":7,"commits":[{…}, …]}        the newest 100, oldest first

An application is what a batch calls txnAppId, or a streaming query ("s:" and its id); a version
is txnVersion, or the batch's id. A version that is not above the newest was committed before:
that is what makes a repeated commit do nothing. Commits without a key share one file.

Reference: Delta Lake's transaction identifiers (appId, version).
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mqstore.files.base.store_dir import StoreDir
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.txn import small_json
from mqstore.format.names import OURS

LEDGER_FOLDER: Final = f"{OURS}/txn"

DONE: Final = "done"
STREAM_PREFIX: Final = "s:"

_KEPT_COMMITS: Final = 100
_UNKEYED: Final = "jobs.json"
_LEDGER_FILE: Final = re.compile(r"app-[0-9a-f]{32}\.json|jobs\.json")


@dataclass(frozen=True, slots=True)
class Key:
    """What a commit is known by: an application and its version; of a stream, query and batch."""

    app_id: str
    version: int
    query_id: str | None = None
    batch_id: int | None = None

    @classmethod
    def of_stream(cls, query_id: str, batch_id: int) -> "Key":
        """Return the key of one micro-batch of a streaming query."""
        return cls(f"{STREAM_PREFIX}{query_id}", batch_id, query_id, batch_id)

    def __str__(self) -> str:
        if self.query_id is not None:
            return f"query {self.query_id} batch {self.batch_id}"
        return f"{self.app_id} version {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One commit: whose it is, what it appended, and when. Fields of a key are None without one.

    ``committed_ms`` is epoch ms; physical offsets are of the first and the last record.
    ``state`` is done; of a commit that is not finished, what its intent says.
    """

    app_id: str | None
    version: int | None
    query_id: str | None
    batch_id: int | None
    job_id: str
    rows: int
    bytes: int
    first_physical_offset: int
    last_physical_offset: int
    committed_ms: int
    state: str
    digest: str | None = None
    """Of all rows that the write was given (mqstore.write.stage.row_digest); None without a key,
    and of a commit by an older mqlog."""


def last_version(place: StoreDir, app_id: str | None) -> int | None:
    """Return the newest version committed for an application; None if there is none.

    Raises CorruptConfigError.
    """
    body = small_json.load(place, path_of(app_id))
    if body is None:
        return None
    entries = _parse(place, path_of(app_id), body)
    if body.get("appId") != app_id:
        raise small_json.corrupt(place, path_of(app_id), ValueError("of another application"))
    return max((e.version for e in entries if e.version is not None), default=None)


def find(place: StoreDir, key: Key) -> LedgerEntry | None:
    """Return the commit of that version, if it is among the newest. Raises CorruptConfigError."""
    path = path_of(key.app_id)
    body = small_json.load(place, path)
    known = _parse(place, path, body) if body is not None else []
    return next((entry for entry in known if entry.version == key.version), None)


def entries(place: StoreDir) -> list[LedgerEntry]:
    """Return the commits that are known, oldest first. Raises CorruptConfigError."""
    found = []
    for name in filter(_LEDGER_FILE.fullmatch, place.folder.names(LEDGER_FOLDER)):
        body = small_json.load(place, f"{LEDGER_FOLDER}/{name}")
        found += _parse(place, f"{LEDGER_FOLDER}/{name}", body) if body is not None else []
    return sorted(found, key=lambda entry: (entry.committed_ms, entry.first_physical_offset))


def has(place: StoreDir, app_id: str | None, job_id: str) -> bool:
    """Tell whether that commit of an application is known. Raises CorruptConfigError."""
    path = path_of(app_id)
    body = small_json.load(place, path)
    return body is not None and any(e.job_id == job_id for e in _parse(place, path, body))


def record(writer: StoreWriter, entry: LedgerEntry) -> None:
    """Add a commit to the ledger, durably. The same commit twice is there once."""
    small_json.replace(writer, path_of(entry.app_id), _with(writer.place, entry))


def with_entry(place: StoreDir, entry: LedgerEntry) -> bytes:
    """Return what the ledger's file of the entry's application would hold with it."""
    return small_json.document(_with(place, entry))


def _with(place: StoreDir, entry: LedgerEntry) -> small_json.Body:
    path = path_of(entry.app_id)
    body = small_json.load(place, path)
    known = _parse(place, path, body) if body is not None else []
    known = [e for e in known if e.job_id != entry.job_id]
    return {
        "appId": entry.app_id,
        "commits": [_as_json(e) for e in [*known, entry][-_KEPT_COMMITS:]],
    }


def without(place: StoreDir, path: str, job_id: str) -> bytes:
    """Return what the ledger's file ``path`` holds, but for that commit. Raises as ``entries``."""
    body = small_json.load(place, path) or {"appId": None, "commits": []}
    kept = [_as_json(e) for e in _parse(place, path, body) if e.job_id != job_id]
    return small_json.document({"appId": body.get("appId"), "commits": kept})


def path_of(app_id: str | None) -> str:
    """Return the file of an application's commits; None: of those without one."""
    if app_id is None:
        return f"{LEDGER_FOLDER}/{_UNKEYED}"
    return f"{LEDGER_FOLDER}/app-{hashlib.sha256(app_id.encode()).hexdigest()[:32]}.json"


_NAMES: Final = {
    "app_id": "appId",
    "version": "version",
    "query_id": "queryId",
    "batch_id": "batchId",
    "job_id": "jobId",
    "rows": "rows",
    "bytes": "bytes",
    "first_physical_offset": "firstPhysicalOffset",
    "last_physical_offset": "lastPhysicalOffset",
    "committed_ms": "committedAt",
    "state": "state",
    "digest": "digest",
}
_NOT_BEFORE: Final = {"digest": None}
"""Fields that ledgers of an older mqlog lack."""


def _as_json(entry: LedgerEntry) -> dict[str, Any]:
    return {name: getattr(entry, field) for field, name in _NAMES.items()}


def _parse(place: StoreDir, path: str, body: Mapping[str, Any]) -> list[LedgerEntry]:
    try:
        return [
            small_json.build(
                LedgerEntry, {field: (_NOT_BEFORE | one)[name] for field, name in _NAMES.items()}
            )
            for one in body["commits"][-_KEPT_COMMITS:]
        ]
    except small_json.BAD as error:
        raise small_json.corrupt(place, path, error) from error
