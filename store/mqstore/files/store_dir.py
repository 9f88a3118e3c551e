"""The root of a store: where its parts lie, and which flavour it is.

Reference: StorePathConfigHelper; MessageStoreConfig#storePathCommitLog (MULTI_PATH_SPLITTER);
the flavours are those of DLedgerCommitLog, RocksDBConsumeQueueStore, BatchConsumeQueue,
CompactionStore and RocksDBConfigManager.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from mqstore.errors import (
    NotAStoreError,
    StoreNotFoundError,
    UnsafePathError,
    UnsupportedStoreError,
    shown,
)
from mqstore.files.copy_target import MARK
from mqstore.files.safe_open import exists, is_directory, list_names
from mqstore.format import names

_PARTS: Final = (names.COMMIT_LOG, names.CONSUME_QUEUE, names.INDEX, names.CONFIG)
_MOST_NAMES: Final = 100


@dataclass(frozen=True, slots=True)
class StoreDir:
    """A store's root and its CommitLog folders. Plain strings: it travels into tasks."""

    root: str
    commit_log: tuple[str, ...]

    def path(self, *parts: str) -> Path:
        """Return ``root/parts…`` for a message or for the write side."""
        return Path(self.root, *parts)

    @property
    def is_unclean(self) -> bool:
        """Tell whether ``abort`` is there: a broker is running, or it crashed."""
        return exists(self.root, names.ABORT)


def open_dir(root: str | os.PathLike[str], commit_log: Sequence[str] = ()) -> StoreDir:
    """Return the store at ``root``; ``commit_log`` names other CommitLog folders.

    Raises StoreNotFoundError, NotAStoreError, or UnsupportedStoreError with the flavour's name.
    """
    path = os.path.abspath(root)  # noqa: PTH100 - keeps a linked root as the user named it
    if not os.path.isdir(path):  # noqa: PTH112
        there = os.path.lexists(path)
        raise StoreNotFoundError(path, "not a directory" if there else "no such directory")
    folders = tuple(os.path.abspath(f) for f in commit_log)  # noqa: PTH100
    for folder in folders:
        if not os.path.isdir(folder):  # noqa: PTH112
            raise StoreNotFoundError(folder, "no such CommitLog directory")
    _refuse_flavours(path)
    if not folders:
        if not is_directory(path, names.COMMIT_LOG):
            raise NotAStoreError(path, _not_a_store(path))
        folders = (f"{path}/{names.COMMIT_LOG}",)
    return StoreDir(path, folders)


def _not_a_store(root: str) -> str:
    if exists(root, MARK):
        return "a copy of a store is made in it, or was not finished"
    meant = _meant(root)
    if meant:
        return f"no folder commitlog in it; did you mean {shown(meant)}?"
    if is_directory(root, names.CONSUME_QUEUE):
        return (
            "consumequeue is in it, but no folder commitlog; name the broker's CommitLog folders "
            "in storePathCommitLog (with the command mqlog: --commit-log, once for each)"
        )
    return "no folder commitlog in it; give the broker's storePathRootDir"


def _meant(root: str) -> str:
    """Return the store that somebody who named ``root`` had in mind, or nothing.

    Looks one level up, at the usual places, and at the names in it, if they are few.
    """
    parent, name = os.path.split(root)
    if name in _PARTS and _is_store(parent):
        return parent
    usual = [f"{root}/{name}" for name in ("store", "rocketmq/store")]
    found = [path for path in usual if _is_store(path)]
    if found:
        return found[0]
    with suppress(OSError), os.scandir(root) as entries:
        few = [f"{root}/{entry.name}" for entry in islice(entries, _MOST_NAMES + 1)]
        found = [path for path in few if _is_store(path)]
        return found[0] if len(found) == 1 and len(few) <= _MOST_NAMES else ""
    return ""


def _is_store(path: str) -> bool:
    with suppress(OSError, UnsafePathError):
        return is_directory(path, names.COMMIT_LOG)
    return False


def _refuse_flavours(root: str) -> None:
    """Refuse by name the stores whose messages or queues we would read wrongly."""
    for name in list_names(root):
        if name.startswith("dledger-") and is_directory(root, name):
            raise UnsupportedStoreError(root, "DLEDGER", _DLEDGER.format(name))
    for detail in ("consumequeue/CURRENT", "consumequeue_rocksdb/CURRENT"):
        # With rocksdbCQDoubleWriteEnable a broker keeps both; then the files are as good.
        if exists(root, detail) and not _has_file_queues(root):
            raise UnsupportedStoreError(root, "ROCKSDB_CONSUME_QUEUE", _ROCKSDB.format(detail))
    if list_names(root, "batchconsumequeue"):
        raise UnsupportedStoreError(root, "BATCH_CONSUME_QUEUE", _BATCH)
    if list_names(root, "compaction/compactionLog"):
        raise UnsupportedStoreError(root, "COMPACTION", _COMPACTION)


def _has_file_queues(root: str) -> bool:
    topics = (name for name in list_names(root, names.CONSUME_QUEUE) if names.is_topic(name))
    return any(
        names.parse_queue_id(queue) is not None
        for topic in topics
        for queue in list_names(root, f"{names.CONSUME_QUEUE}/{topic}")
    )


_DLEDGER = (
    "{} is a DLedger (Raft) log, whose records are framed differently; mqlog reads plain "
    "CommitLog stores"
)
_BATCH = (
    "batchconsumequeue holds topics of queue.type=BatchCQ, whose units are 46 bytes and whose "
    "records hold many messages; mqlog reads plain ConsumeQueues"
)
_COMPACTION = (
    "compaction/compactionLog holds topics of cleanup.policy=COMPACTION, whose messages live "
    "outside the CommitLog; mqlog reads plain CommitLog stores"
)
_ROCKSDB = (
    "{} is a RocksDB ConsumeQueue (storeType=defaultRocksDB); mqlog reads file ConsumeQueues. "
    "Let the broker write both (rocksdbCQDoubleWriteEnable=true), or switch it back"
)
