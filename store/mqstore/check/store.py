"""Check a whole store in one walk over its CommitLog."""

from collections.abc import Callable, Sequence

from mqstore.check.batches import BatchCheck
from mqstore.check.causes import Causes
from mqstore.check.config_and_checkpoint import (
    check_abort,
    check_checkpoint,
    check_delays,
    check_groups,
    check_index_names,
    check_names,
    check_topics,
    known_topics,
    unfinished,
)
from mqstore.check.config_files import check_config_files
from mqstore.check.earlier import EarlierMessages
from mqstore.check.entries import committed_end
from mqstore.check.finding import Finding, Findings
from mqstore.check.index import IndexCheck
from mqstore.check.log import LogCheck
from mqstore.check.queues import QueueCheck
from mqstore.check.replica import confirmed_end, last_behind
from mqstore.errors import InvalidOptionError
from mqstore.files.base.directory import folder_of
from mqstore.files.base.folder import Folder
from mqstore.files.base.store_dir import Root
from mqstore.read.directory import open_store


def check(
    root: Root,
    commit_log: Sequence[str | Folder] = (),
    progress: Callable[[int, int], None] | None = None,
) -> list[Finding]:
    """Return every rule of a store's format that is broken at ``root``; none if it is whole.

    What is broken only because a record of the CommitLog is damaged is counted there.
    Nothing is written and no lock is taken: of a store that a broker is writing to, the last
    messages may look unfinished. Memory is bounded by a few chunks and by the number of queues,
    time by the size of the store, which is read once. ``progress`` is called now and then with
    the bytes of the CommitLog that were read and about how many there are.

    Raises StoreNotFoundError, NotAStoreError, UnsupportedStoreError, UnsafePathError,
    InvalidOptionError for all points of a repository together.
    """
    if folder_of(root).lacks_files:
        expected = "is of all points: mqlog verify REPO checks their bytes, REPO@3 a point's store"
        raise InvalidOptionError("path", str(root), expected)
    findings = Findings()
    causes = Causes(findings)
    with open_store(root, commit_log) as store:
        begun = unfinished(store, findings)
        begun = committed_end(store, findings) if store.place.dledger else begun
        begun = confirmed_end(store, findings) if store.place.is_replica else begun
        walk = LogCheck(store, findings, causes, unfinished=begun)
        earlier = EarlierMessages(findings, known_topics(store))
        queues = QueueCheck(store, findings, causes, earlier, unfinished=begun)
        batches = BatchCheck(store, findings, causes, earlier, unfinished=begun)
        index = IndexCheck(store, findings, causes, unfinished=begun)
        check_names(store, findings, is_under_way=begun is not None)
        check_index_names(store, findings)
        low, total = store.log.low, queues.log_end() - store.log.low if progress else 0
        for records in walk.records():
            queues.feed(records)
            batches.feed(records)
            index.feed(records)
            if progress:
                progress(walk.end - low, total)
        if progress:
            progress(walk.end - low, total)
        batches.finish()
        queues.finish()
        index.finish()
        check_config_files(store, findings)
        check_topics(store, findings)
        bounds = queues.bounds() | batches.bounds()
        check_delays(store, bounds, findings)
        check_groups(store, bounds, findings)
        last = (walk.last_store_timestamp_ms, walk.last_physical_offset)
        if store.place.is_replica:
            last = last_behind(store, walk.end, last)
        check_checkpoint(store, last, findings, causes)
        check_abort(store, findings)
    return findings.all()
