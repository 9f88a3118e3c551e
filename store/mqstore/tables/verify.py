"""What mqstore.check finds in stores: each broken rule a row.

Reference: mqstore.check, which names the rules.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Final

import pyarrow as pa

from mqstore.check import check
from mqstore.tables.choice import StoreRoot
from mqstore.tables.columns import BROKER_NAME, Columns, batches, schema
from mqstore.tables.table import Table

COLUMNS: Final[Columns] = (
    ("severity", pa.string(), False, "error: a broker would lose or misread something; warning"),
    ("file", pa.string(), False, "path below the store's root"),
    ("position", pa.int64(), True, "byte in the file"),
    ("topic", pa.string(), True, "topic, if the finding is about one"),
    ("queueId", pa.int32(), True, "queue, if the finding is about one"),
    ("queueOffset", pa.int64(), True, "queue offset of the message, if the finding is about one"),
    ("problem", pa.string(), False, "the broken rule, and the values found"),
    ("consequences", pa.int64(), False, "broken rules without a row, broken only because of it"),
    BROKER_NAME,
)
SCHEMA: Final = schema(COLUMNS)


@dataclass(frozen=True, slots=True)
class VerifyPart:
    """One store to check, in one walk over it. Pickles into a task."""

    store: StoreRoot

    def batches(self, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the findings, errors first; at most a thousand of each severity."""
        store = self.store
        findings = check(store.place.folder, store.place.commit_log)
        yield from batches(((*astuple(found), store.broker_name) for found in findings), SCHEMA)


def plan(store: StoreRoot) -> list[VerifyPart]:
    """Return the one part of a store: its rules tie all files together."""
    return [VerifyPart(store)]


VERIFY: Final = Table(
    "verify",
    COLUMNS,
    lambda request: [part for root in request.roots() for part in plan(root)],
    options=frozenset(),
    of_files="rules of files cannot be checked from a running broker",
)
