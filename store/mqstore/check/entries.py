"""Check the index of a DLedger log: the unit of each entry that the walk over the log brings."""

import numpy as np

from mqstore.check.finding import FindingPlace, Findings
from mqstore.errors import StoreError
from mqstore.files.log.entry_log import EntryLog
from mqstore.files.store import Store
from mqstore.format.arrays import Structs
from mqstore.format.dledger import CHECKPOINT, INDEX, UNIT


def committed_end(store: Store, findings: Findings) -> int | None:
    """Return where the committed entries end; None where all that is written counts.

    Where it cannot be known that is reported, and nothing counts.
    """
    try:
        store.log.check_committed()
    except StoreError as error:
        findings.error(FindingPlace(f"{store.place.dledger}/{CHECKPOINT}"), error.message())
    return store.log.committed_end


class EntryCheck:
    """Compares entries with their index units. Does nothing for a plain CommitLog."""

    def __init__(self, store: Store, findings: Findings) -> None:
        self._log = store.log
        self._place = FindingPlace(f"{store.place.dledger}/{INDEX}")
        self._findings = findings

    def feed(self, heads: Structs | None) -> None:
        """Compare the heads of entries that follow each other in the log."""
        if heads is None or not len(heads) or not isinstance(self._log, EntryLog):
            return
        indexes = heads["index"].astype(np.int64)
        first, last = int(indexes[0]), int(indexes[-1])
        if not 0 <= first <= last <= first + len(heads):
            return  # Reported: indexes do not follow each other.
        try:
            units = self._log.index_units(first, last + 1)
        except (StoreError, OSError):
            units = np.zeros(0, UNIT)
        rows = indexes - first
        known = (rows >= 0) & (rows < len(units))
        wrong = ~known
        for name in UNIT.names or ():
            wrong[known] |= units[name][rows[known]] != heads[name][known]
        for row in np.flatnonzero(wrong).tolist():
            index = int(indexes[row])
            problem = f"the index has no unit of entry {index}, or one that differs"
            path, position = self._where(index)
            self._findings.error(FindingPlace(path, position), problem)

    def _where(self, index: int) -> tuple[str, int]:
        assert isinstance(self._log, EntryLog)
        position = index * UNIT.itemsize
        try:
            file = self._log.index.find(position)
        except (StoreError, OSError):
            file = None
        if file is None:
            return self._place.file, position
        return f"{self._log.index_path}/{file.path}", position - file.start
