"""The root of a store: where its parts lie, which flavour it is, and whether mqlog writes to it.

Fewer stores may be written to than read: a writer must know everything that a broker derives
from the CommitLog, and no other broker or controller may decide where the log ends.

Reference: StorePathConfigHelper; MessageStoreConfig#storePathCommitLog (MULTI_PATH_SPLITTER);
the flavours are those of DLedgerCommitLog, RocksDBConsumeQueueStore, BatchConsumeQueue,
CompactionStore and RocksDBConfigManager.
"""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, TypeAlias, TypedDict

from mqstore.errors import (
    NotAStoreError,
    StoreFlavour,
    UnsafePathError,
    UnsupportedStoreError,
    shown,
)
from mqstore.files.base.directory import folder_of
from mqstore.files.base.folder import Folder
from mqstore.files.base.mapped_file_queue import MappedFileQueue, check_sizes
from mqstore.format import dledger, names
from mqstore.format.epochs import EPOCH_FILE, IDENTITY_FILE

Root: TypeAlias = str | os.PathLike[str] | Folder
"""A store's root: a directory's path, or a folder opened before."""

_PARTS: Final = (names.COMMIT_LOG, names.CONSUME_QUEUE, names.INDEX, names.CONFIG)
_MOST_NAMES: Final = 100
BY_LOG: Final = "queues=log (mqlog: --from-log) reads by the CommitLog alone"

ROCKSDB_CONSUME_QUEUE: Final = "ROCKSDB_CONSUME_QUEUE"
BATCH_QUEUES: Final = "BATCH_CONSUME_QUEUE"
_ROCKSDB_QUEUES: Final = (names.CONSUME_QUEUE, "consumequeue_rocksdb")

_OF_REPLICAS: Final = frozenset({EPOCH_FILE, f"{EPOCH_FILE}.bak", IDENTITY_FILE})

# Path below the root, flavour, why.
_NOT_WRITABLE: Final[tuple[tuple[str, StoreFlavour, str], ...]] = (
    (
        EPOCH_FILE,
        "CONTROLLER",
        "a controller or another replica decides where this log ends",
    ),
    (IDENTITY_FILE, "CONTROLLER", "the broker belongs to a controller's group"),
    *(
        (
            f"{path}/CURRENT",
            ROCKSDB_CONSUME_QUEUE,
            "the broker keeps its ConsumeQueue in RocksDB, which mqlog does not write",
        )
        for path in _ROCKSDB_QUEUES
    ),
    (f"{names.CONFIG}/topics/CURRENT", "ROCKSDB_CONFIG", "topics are kept in RocksDB"),
    (f"{names.CONFIG}/metadata/CURRENT", "ROCKSDB_CONFIG", "topics are kept in RocksDB"),
    (f"{names.CONFIG}/rdb/CURRENT", "ROCKSDB_CONFIG", "topics are kept in RocksDB"),
)
_SEVERAL_FOLDERS: Final = (
    "its storePathCommitLog names several; mqlog reads such stores, and does not write to them"
)
_MADE_IN: Final = (
    names.CONSUME_QUEUE,
    names.INDEX,
    names.CONFIG,
    names.OURS,
    *(f"{names.OURS}/{name}" for name in (names.STAGING, "groups", "quarantine", "tmp", "txn")),
)


class Kinds(TypedDict):
    """The keywords of a StoreDir: see its fields."""

    dledger: str
    is_replica: bool
    takes_unconfirmed: bool


@dataclass(frozen=True, slots=True)
class StoreDir:
    """A store's root and its CommitLog folders, opened. It travels into tasks."""

    folder: Folder
    commit_log: tuple[Folder, ...]
    dledger: str = field(default="", kw_only=True)
    """The folder ``dledger-SELFID`` in the root; empty where the CommitLog has no entries."""
    is_replica: bool = field(default=False, kw_only=True)
    """Whether it is of a controller's group, which decides where the log ends."""
    takes_unconfirmed: bool = field(default=False, kw_only=True)
    """Whether a read by the log goes on behind what its group confirmed: readUnCommitted."""

    @classmethod
    def at(cls, root: Root) -> "StoreDir":
        """Return ``root`` with its CommitLog in ``root/commitlog``; nothing is checked."""
        folder = folder_of(root)
        return cls(folder, (folder.at(names.COMMIT_LOG),))

    @property
    def root(self) -> str:
        """The root's full path or address."""
        return self.folder.name

    @property
    def kinds(self) -> "Kinds":
        """What an origin of the same store takes over, as keywords."""
        return {
            "dledger": self.dledger,
            "is_replica": self.is_replica,
            "takes_unconfirmed": self.takes_unconfirmed,
        }

    def path(self, *parts: str) -> Path:
        """Return ``root/parts…`` for a message or for the write side."""
        return Path(self.root, *parts)

    @property
    def is_unclean(self) -> bool:
        """Tell whether ``abort`` is there: a broker is running, or it crashed."""
        return self.folder.exists(names.ABORT)


def open_dir(
    root: Root,
    commit_log: Sequence[str | Folder] = (),
    *,
    by_log: bool = False,
    in_rocksdb: bool = False,
    in_batches: bool = False,
) -> StoreDir:
    """Return the store at ``root``; ``commit_log`` names other CommitLog folders.

    ``by_log``: its queues will be made from the CommitLog, so that those on disk do not matter;
    ``in_rocksdb``: they may be in RocksDB (see ``rocksdb_queues``); ``in_batches``: some may be
    batch ConsumeQueues.
    Raises StoreNotFoundError, NotAStoreError, or UnsupportedStoreError with the flavour's name; of
    a store in an object store also UncleanStoreError, unless it was asked for in spite of that.
    """
    found = folder_of(root)
    folders = tuple(map(folder_of, commit_log))
    found.check_there()
    for folder in folders:
        folder.check_there("CommitLog directory")
    listed = found.names()
    place = _dledger(found, folders, listed) or (
        StoreDir(found, folders) if folders else StoreDir.at(found)
    )
    if not place.dledger and not _OF_REPLICAS.isdisjoint(listed):
        place = replace(place, is_replica=True)
    if not by_log:
        _refuse_queues(place, in_rocksdb=in_rocksdb, in_batches=in_batches)
    is_plain = not folders and not place.dledger
    if is_plain and not _has_log(found):
        raise NotAStoreError(found.name, _not_a_store(found))
    return place


def _has_log(root: Folder) -> bool:
    """Tell whether the folder commitlog is there; raises UnsafePathError for a link, with advice.

    On large machines it often leads to another disk. Below the root no link is followed, because
    it may have come with a store; a folder that a person names is.
    """
    try:
        return root.is_directory(names.COMMIT_LOG)
    except UnsafePathError as error:
        target = shown(os.path.realpath(error.path))
        raise UnsafePathError(error.path, f"{error.reason}{_LINKED_LOG.format(target)}") from None


def _dledger(root: Folder, folders: tuple[Folder, ...], listed: Sequence[str]) -> StoreDir | None:
    """Return the store of a broker with a DLedger CommitLog; None if it has none.

    Its old CommitLog, of a time before, comes first: DLedgerCommitLog#dividedCommitlogOffset.
    Raises UnsafePathError for a link, UnsupportedStoreError where the folders are not clear.
    """
    found = [name for name in listed if name.startswith(dledger.FOLDER_PREFIX)]
    found = [name for name in found if root.is_directory(name)]
    if len(found) > 1:
        meant = [n for n in found if root.at(f"{n}/{dledger.DATA}") in folders]
        found = meant if len(meant) == 1 else found
    if not found:
        return None
    if len(found) > 1:
        listed = ", ".join(map(shown, found))
        raise UnsupportedStoreError(root.name, "DLEDGER", _SEVERAL_DLEDGERS.format(listed))
    name = found[0]
    data = f"{name}/{dledger.DATA}"
    if not folders:
        if not root.is_directory(data):
            raise UnsupportedStoreError(root.name, "DLEDGER", _NO_DATA.format(shown(name)))
        has_old = root.is_directory(names.COMMIT_LOG) and root.names(names.COMMIT_LOG)
        below = (*((names.COMMIT_LOG,) if has_old else ()), data)
        folders = tuple(root.at(folder) for folder in below)
    return StoreDir(root, folders, dledger=name)


def _not_a_store(folder: Folder) -> str:
    if folder.exists(names.COPY_MARK):
        return "a copy of a store is made in it, or was not finished"
    meant = _meant(folder.name)
    if meant:
        return f"no folder commitlog in it; did you mean {shown(meant)}?"
    if folder.is_directory(names.CONSUME_QUEUE):
        return (
            "consumequeue is in it, but no folder commitlog; name the broker's CommitLog folders "
            "in storePathCommitLog (with the command mqlog: --commit-log, once for each)"
        )
    return "no folder commitlog in it; give the broker's storePathRootDir"


def _meant(folder: str) -> str:
    """Return the store that was probably meant by ``folder``; empty if there is none.

    Looks one level up, at the usual places, and at the names in it, if they are few.
    """
    parent, name = os.path.split(folder)
    if name in _PARTS and _is_store(parent):
        return parent
    usual = [f"{folder}/{name}" for name in ("store", "rocketmq/store")]
    found = [path for path in usual if _is_store(path)]
    if found:
        return found[0]
    with suppress(OSError), os.scandir(folder) as entries:
        few = [entry.name for entry in islice(entries, _MOST_NAMES + 1)]
        if len(few) <= _MOST_NAMES:
            return _of_brokers(folder, few)
    return ""


def _of_brokers(folder: str, brokers: Sequence[str]) -> str:
    """Return the store of one broker in a folder, or the glob of several."""
    for below in ("", "/store"):
        found = [path for name in brokers if _is_store(path := f"{folder}/{name}{below}")]
        if found:
            return found[0] if len(found) == 1 else f"{folder}/*{below}"
    return ""


def _is_store(path: str) -> bool:
    with suppress(OSError, UnsafePathError):
        return folder_of(path).is_directory(names.COMMIT_LOG)
    return False


def refuse_compaction(place: StoreDir) -> None:
    """Raise UnsupportedStoreError for a store with compaction topics: what would miss their log."""
    if place.folder.names(names.COMPACTION_LOG):
        raise UnsupportedStoreError(place.root, "COMPACTION", _COMPACTION)


def rocksdb_queues(place: StoreDir) -> str | None:
    """Return the folder below the root of a RocksDB ConsumeQueue; None where queues are files.

    With rocksdbCQDoubleWriteEnable a broker keeps both; then the files are as good.
    """
    found = (path for path in _ROCKSDB_QUEUES if place.folder.exists(f"{path}/CURRENT"))
    path = next(found, None)
    return None if path is None or _has_file_queues(place) else path


def _refuse_queues(place: StoreDir, *, in_rocksdb: bool, in_batches: bool) -> None:
    """Refuse by name the stores whose queues we would read wrongly."""
    path = rocksdb_queues(place)
    if path is not None and not in_rocksdb:
        reason = _ROCKSDB.format(f"{path}/CURRENT")
        raise UnsupportedStoreError(place.root, ROCKSDB_CONSUME_QUEUE, reason)
    if (path is not None or not in_batches) and place.folder.names(names.BATCH_CONSUME_QUEUE):
        reason = _BATCH_IN_ROCKSDB if in_batches else _BATCH_CQ
        raise UnsupportedStoreError(place.root, BATCH_QUEUES, reason)


def _has_file_queues(place: StoreDir) -> bool:
    return any(
        names.parse_queue_id(queue) is not None
        for topic in place.folder.names(names.CONSUME_QUEUE)
        for queue in place.folder.names(f"{names.CONSUME_QUEUE}/{topic}")
    )


def check_writable(store: StoreDir) -> None:
    """Raise UnsupportedStoreError, with the flavour's name, for a store we must not write to.

    Also raises UnsafePathError where a folder that we make files in leads elsewhere, and
    CorruptStoreError where a file of the CommitLog was cut short.
    """
    refuse_compaction(store)
    for path in _MADE_IN:
        if _is_taken(f"{store.root}/{path}"):
            raise UnsafePathError(f"{store.root}/{path}", "not a directory")
    if store.dledger:
        raise UnsupportedStoreError(store.root, "DLEDGER", f"{store.dledger}: {_RAFT}")
    for path, flavour, reason in _NOT_WRITABLE:
        if store.folder.exists(path):
            raise UnsupportedStoreError(store.root, flavour, f"{path}: {reason}")
    owner = os.stat(store.root).st_uid  # noqa: PTH116 - paths are strings here
    if os.geteuid() not in {0, owner}:
        reason = (
            f"the store belongs to user {owner}, this process is user {os.geteuid()}: its broker "
            "could not open the files we would make"
        )
        raise UnsupportedStoreError(store.root, "OWNER", reason)
    if store.folder.names("consumequeue_ext"):
        reason = "consumequeue_ext: unit extensions (enableConsumeQueueExt) are not written"
        raise UnsupportedStoreError(store.root, "CONSUME_QUEUE_EXT", reason)
    if store.commit_log != (store.folder.at(names.COMMIT_LOG),):
        reason = f"CommitLog in other folders than commitlog ({_SEVERAL_FOLDERS})"
        raise UnsupportedStoreError(store.root, "MULTI_PATH", reason)
    _check_gapless(store)


def _is_taken(path: str) -> bool:
    """Tell whether something that is no directory has the name.

    One look at the name: a directory that another process removes or makes meanwhile is none.
    """
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _check_gapless(store: StoreDir) -> None:
    log = MappedFileQueue.list(store.commit_log)
    for before, after in pairwise(log.files):
        if before.end != after.start:
            check_sizes([log])  # A file that was cut short is no file that is elsewhere.
            reason = (
                f"commitlog has no file, or an empty one, between {before.path} and {after.path}: "
                f"it was lost, or the broker keeps it in another folder ({_SEVERAL_FOLDERS})"
            )
            raise UnsupportedStoreError(store.root, "MULTI_PATH", reason)


_LINKED_LOG = (
    "; to read the store, name {} in storePathCommitLog (with the command mqlog: --commit-log); to "
    "write to it, mount that folder there (mount --bind)"
)
_RAFT = (
    "a majority of the brokers of its group decides where a DLedger log ends; mqlog reads such "
    "stores, and does not write to them, recover, rebuild or copy them"
)
_SEVERAL_DLEDGERS = (
    "{} are DLedger logs of several brokers; name the data folder of one in storePathCommitLog "
    "(with the command mqlog: --commit-log)"
)
_NO_DATA = (
    "{} is a DLedger log without its folder data; name the folders of storePathDLedgerCommitLog in "
    "storePathCommitLog (with the command mqlog: --commit-log, once for each)"
)
_BATCH_CQ = (
    "batchconsumequeue holds topics of queue.type=BatchCQ, whose records hold many messages; mqlog "
    "reads and checks such stores; it does not write to them, recover, rebuild or copy them"
)
_BATCH_IN_ROCKSDB = (
    "batchconsumequeue holds topics of queue.type=BatchCQ, and other queues are in RocksDB, where "
    f"brokers have no such topics. Other topics: {BY_LOG}"
)
_COMPACTION = (
    f"{names.COMPACTION_LOG} holds topics of cleanup.policy=COMPACTION, whose messages are in logs "
    "of their own; mqlog reads, checks and copies such stores; it does not write to them, recover, "
    "rebuild or salvage them"
)
_ROCKSDB = (
    "{} is a RocksDB ConsumeQueue (storeType=defaultRocksDB): mqlog reads and checks such a store "
    "in a local directory; it does not write to it, recover or copy it. In an object "
    f"store, {BY_LOG}"
)
