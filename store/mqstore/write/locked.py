"""The store as one process has it while it writes: locked, with a folder for new files.

    with LockedStore(place, settings) as locked:
        resume(locked)
        writer = locked.writer(sizes)

Reference: commit protocol; files/lock/store_lock.py.
"""

import secrets
from dataclasses import replace

from mqstore.files.base import durable
from mqstore.files.base.file_sizes import FileSizes
from mqstore.files.base.new_file import TEMP_FOLDER
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.base.undo import Undo
from mqstore.files.lock.store_lock import StoreHold
from mqstore.files.store import Store
from mqstore.files.txn import ledger, staging
from mqstore.format import names
from mqstore.write.stage.settings import WriteSettings

_TEMPORARY = f"{names.OURS}/{TEMP_FOLDER}"


class LockedStore:
    """The store at ``place``, locked while this context manager is entered.

    There may be no store yet, and the commit makes one. Raises StoreLockedError,
    UnsupportedStoreError.
    """

    def __init__(self, place: StoreDir, settings: WriteSettings, job_id: str = "") -> None:
        self.place = place
        self.settings = settings
        self._lock = StoreHold(
            place.root,
            timeout_ms=settings.lock_timeout_ms,
            allow_no_lease=settings.allow_no_lease,
            job=job_id,
        )
        self._temp_dir = f"{_TEMPORARY}/{job_id or secrets.token_hex(16)}"

    def __enter__(self) -> "LockedStore":
        self._lock.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            staging_dir = f"{names.OURS}/{names.STAGING}"
            empty = (ledger.LEDGER_FOLDER, staging_dir, _TEMPORARY, self._temp_dir)
            staging.remove_directories(f"{self.root}/{folder}" for folder in empty)
        finally:
            self._lock.__exit__(*error)

    @property
    def root(self) -> str:
        """The store's root, as an absolute path."""
        return self.place.root

    def check(self) -> None:
        """Raise HoldLostError if another process may have the store open now, or soon will."""
        self._lock.check()

    def known_sizes(self) -> FileSizes:
        """Return the sizes of the store's files; RocketMQ's defaults for those it has none of."""
        return Store(self.place).sizes.or_defaults()

    def writer(self, sizes: FileSizes, undo: Undo | None = None) -> StoreWriter:
        """Return a writer with an empty folder for files that get their names later.

        What is in such folders now was left by earlier commits, or by an earlier writer of this
        lock, and is removed. Without ``undo`` nothing that the writer changes is taken back.
        """
        for left in self.place.folder.names(_TEMPORARY):
            # A new file that has its place already keeps its name there, and that one only.
            staging.remove(f"{self.root}/{_TEMPORARY}/{left}")
        temp_dir = f"{self.root}/{self._temp_dir}"
        mode = self.settings.write_mode
        writer = StoreWriter(self.place, temp_dir, sizes, write_mode=mode, check=self._lock.check)
        with durable.synced(wanted=False):  # What is lost with it had no other name yet.
            writer.make_directories(self._temp_dir)
        writer.make_directories(ledger.LEDGER_FOLDER)
        # Directories that were found may be in memory only, if the process that made them was
        # killed. So may an intent be, and nothing may be published on it before it is durable.
        for holding in (
            self.root,
            f"{self.root}/{names.OURS}",
            f"{self.root}/{ledger.LEDGER_FOLDER}",
        ):
            durable.fsync_directory(holding)
        return replace(writer, undo=undo) if undo else writer
