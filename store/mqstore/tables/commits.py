"""What mqlog committed to a store: each commit a row, one that is not finished too.

Of an application (a txnAppId, a streaming query) the newest hundred commits are kept, and the
newest hundred of those that have no key. A commit is ``decided`` when it will happen whatever
comes, ``published`` when a broker would serve its messages, ``done`` when nothing is left to do.

Reference: mqstore.files.txn.ledger, mqstore.files.txn.intent.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from mqstore.codec.schema import FIRST_MS, LAST_MS, TIMESTAMP
from mqstore.errors import CorruptConfigError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.txn import intent, ledger
from mqstore.files.txn.ledger import DONE, LedgerEntry
from mqstore.tables.choice import StoreRoot
from mqstore.tables.columns import BROKER_NAME, US, Columns, TableRow, batches, schema
from mqstore.tables.table import Table

_LOG = logging.getLogger(__name__)

COLUMNS: Final[Columns] = (
    ("appId", pa.string(), True, "txnAppId, or s: and the id of a query; null: without a key"),
    ("version", pa.int64(), True, "txnVersion, or the number of the batch; null: without a key"),
    ("queryId", pa.string(), True, "streaming query; null: a batch write"),
    ("batchId", pa.int64(), True, "micro-batch of the query; null: a batch write"),
    ("rows", pa.int64(), False, "messages appended"),
    ("bytes", pa.int64(), False, "bytes of their records"),
    ("firstPhysicalOffset", pa.int64(), True,
     "byte of the CommitLog of the first record; null: there were no rows"),
    ("lastPhysicalOffset", pa.int64(), True, "byte of the CommitLog of the last record"),
    ("committedAt", TIMESTAMP, True, "when the commit was finished; null: it is not finished"),
    ("state", pa.string(), False,
     "done; decided: not visible yet; published: a broker serves it. The next write finishes both"),
    BROKER_NAME,
)  # fmt: skip
SCHEMA: Final = schema(COLUMNS)
_MAX_LONG: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CommitsPart:
    """The commits of one store. Pickles into a task."""

    store: StoreRoot
    on_corrupt: str

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the commits, oldest first; one that is not finished last."""
        root = self.store.root
        try:
            known = _known(StoreDir.at(root))
        except CorruptConfigError as error:
            if self.on_corrupt == "fail":
                raise
            _LOG.warning("%s", error)
            return
        yield from batches((_row(entry, self.store.broker_name) for entry in known), SCHEMA)


def plan(store: StoreRoot, *, on_corrupt: str = "fail") -> list[CommitsPart]:
    """Return the one part of a store."""
    return [CommitsPart(store, on_corrupt)]


def _known(place: StoreDir) -> list[LedgerEntry]:
    pending = intent.load(place)
    done = ledger.entries(place)
    if pending is None or any(entry.job_id == pending.job_id for entry in done):
        return done
    return [*done, pending.entry(pending.state, 0)]


def _row(entry: LedgerEntry, broker_name: str) -> TableRow:
    return (
        entry.app_id,
        entry.version,
        entry.query_id,
        entry.batch_id,
        min(entry.rows, _MAX_LONG),
        entry.bytes,
        entry.first_physical_offset if entry.rows else None,
        entry.last_physical_offset if entry.rows else None,
        min(max(entry.committed_ms, FIRST_MS), LAST_MS) * US if entry.state == DONE else None,
        entry.state,
        broker_name,
    )


COMMITS: Final = Table(
    "commits",
    COLUMNS,
    lambda request: [
        part for root in request.roots() for part in plan(root, on_corrupt=request.on_corrupt)
    ],
    options=frozenset(),
    of_files="commits are kept beside a store that mqlog writes, and not by a broker",
)
