"""Every way to look at a store: what a read, a table, the command or a copy does with it.

A look gives the messages it has read as a table, or None where it reads none. `LOOKS` is what a
mutant is looked at by; each ends in a named error or not at all differently.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from mqlog_jobs.output.line_format import STANDARD
from mqlog_jobs.places import Named
from mqlog_jobs.work.queries import KeyQuery, find, select
from mqstore import backlog
from mqstore.backlog import BacklogRequest, Listed
from mqstore.check import check, condition
from mqstore.codec.schema import PROFILES, message_schema
from mqstore.copy.copy_store import copy_store
from mqstore.copy.salvage import salvage
from mqstore.files.base.store_dir import StoreDir, open_dir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.files.store import Store
from mqstore.files.txn import intent, ledger
from mqstore.read.directory import take
from mqstore.read.message_query import MessageQuery
from mqstore.read.offsets import AtTimestamp, Latest, resolve
from mqstore.read.plan import SplitLimits, split, weigh
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.request.plan import plan_read
from mqstore.request.read import read_options
from mqstore.tables.catalog import CATALOG
from support import parts
from support.opened import narrowed, opened, tail_of, topics_of

Rows = pa.Table | None
Look = Callable[[Path], Rows]
FULL = PROFILES["full"]


def whole_rows(root: Path) -> pa.Table:
    """Every message of a store that is whole."""
    return _scanned(root, "fail", "pread")


def _scanned(root: Path, on_corrupt: str, mode: str) -> pa.Table:
    strict = on_corrupt == "fail"
    snapshot = take(root, strict=strict)
    weighed = weigh(slices_of(snapshot))
    pieces = [piece for part in split(weighed, SplitLimits()) for piece in part]
    settings = ScanSettings(
        columns=FULL,
        on_corrupt=on_corrupt,
        fail_on_data_loss=strict,
        read_mode=mode,
        max_decompressed_bytes=1 << 20,
    )
    return _table_of(scan(pieces, settings))


def _table_of(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    """The rows of batches, without what topics.json alone tells."""
    found = list(batches)
    for batch in found:
        batch.validate(full=True)
    return pa.Table.from_batches(found, message_schema(FULL)).drop_columns(["brokerName"])


TIER = "tier"
"""The folder of tiered storage, in the root of a store that has it."""


def tiered_rows(root: Path, on_corrupt: str = "fail") -> pa.Table:
    """Every message of a store and its tier; of a store without one those of the store."""
    if not (root / TIER).is_dir():
        return _scanned(root, on_corrupt, "pread")
    return _rows(root, on_corrupt, storePathTiered=str(root / TIER))


def _rows(root: Path, on_corrupt: str, **options: str) -> pa.Table:
    """The rows of a read as the connector plans it."""
    texts = {"columns": "full", "includeSystemTopics": "true", "onCorrupt": on_corrupt, **options}
    texts |= {"failOnDataLoss": str(on_corrupt == "fail").lower(), "maxDecompressedBytes": "1m"}
    parsed = read_options((str(root),), {name.lower(): text for name, text in texts.items()})
    work = plan_read(parsed, FULL).work()
    return _table_of(batch for share in work for batch in share.batches())


def _by_log(on_corrupt: str) -> Look:
    def look(root: Path) -> Rows:
        cache = root.parent / "copy"
        try:
            return _rows(root, on_corrupt, queues="log", cacheDir=str(cache))
        finally:
            shutil.rmtree(cache, ignore_errors=True)

    return look


def _tiered(on_corrupt: str) -> Look:
    return lambda root: tiered_rows(root, on_corrupt)


def _into_copy(make: Callable[[Path, Path], object]) -> Look:
    """Return a look that makes another store of the first, and removes it."""

    def look(root: Path) -> Rows:
        target = root.parent / "copy"
        try:
            make(root, target)
        finally:
            shutil.rmtree(target, ignore_errors=True)
        return None

    return look


def _scan(on_corrupt: str, mode: str = "pread") -> Look:
    return lambda root: _scanned(root, on_corrupt, mode)


def _lookup(root: Path) -> Rows:
    pieces = slices_of(take(root, strict=False))
    keys, ids = ("k1", "k"), ("0" * 32, "7F00000100002A9F0000000000000000")
    settings = ScanSettings(
        columns=FULL, keys=keys, msg_ids=ids, on_corrupt="skip", fail_on_data_loss=False
    )
    return _table_of(scan(narrowed(pieces, keys, ids), settings))


def _find(root: Path) -> Rows:
    list(find(Named.of([str(root)]), KeyQuery(keys=("k1", "k"))))
    return None


def _cat(root: Path) -> Rows:
    snapshot = take(root)
    topic = snapshot.queues[0].topic if snapshot.queues else "T"
    wanted = (
        MessageQuery(topic),
        MessageQuery(f"{topic}/0@-2"),
        MessageQuery(topic, since="-1h", tags="A"),
    )
    for each in wanted:
        list(select(Named.of([str(root)]), each, STANDARD, 20))
    return None


def _table(name: str, on_corrupt: str) -> Look:
    options = {"onCorrupt": on_corrupt}
    if CATALOG[name].takes("startingTimestamp"):
        options |= {"startingTimestamp": "1", "endingTimestamp": str(2**60)}

    def look(root: Path) -> Rows:
        for work in parts.planned(root, name, **options):
            for batch in work.batches():
                batch.validate(full=True)
        return None

    return look


def _backlog(root: Path) -> Rows:
    request = BacklogRequest(None, {"g": {"T": "A"}}, by_tag=True)
    source, snapshot = opened(root, strict=False)
    items = backlog.plan(snapshot, request)
    backlog.measure(items, request, 0).validate(full=True)
    listed = Listed.of(source.config, {(item.topic, item.group) for item in items})
    for batch in backlog.compare(items, request, {source.origin: listed}, 0):
        batch.validate(full=True)
    return None


def _check(root: Path) -> Rows:
    for finding in check(root):
        assert finding.problem.isprintable()
    return None


def _settings_of(root: Path) -> Rows:
    topics_of(root)
    source, snapshot = opened(root)
    with closing(source):
        resolve(source, snapshot, lambda _: (AtTimestamp(1_600_000_000_000), Latest()))
    BrokerConfig(StoreDir.at(root)).groups()
    BrokerConfig(StoreDir.at(root)).pull_offsets()
    BrokerConfig(StoreDir.at(root)).committed()
    BrokerConfig(StoreDir.at(root)).delay_offsets()
    BrokerConfig(StoreDir.at(root)).filter_expressions()
    _ = Store(open_dir(root)).sizes
    return None


def _ours(root: Path) -> Rows:
    intent.load(StoreDir.at(root))
    intent.cap(StoreDir.at(root))
    intent.sequence(StoreDir.at(root))
    ledger.entries(StoreDir.at(root))
    return None


def _condition(root: Path) -> Rows:
    found = condition.look(root)
    for told in (*found.holders, found.pending or ""):
        assert told.isprintable()
    return None


def _tail(root: Path) -> Rows:
    tail = tail_of(root, strict=False)
    try:
        tail.look(at_once=True)
        tail.look(at_once=True)
    finally:
        tail.close()
    return None


TABLES = tuple(CATALOG)
LOOKS: dict[str, Look] = {
    "scan fail": _scan("fail"),
    "scan fail mmap": _scan("fail", "mmap"),
    "scan skip": _scan("skip"),
    "scan rescue": _scan("rescue"),
    "scan rescue mmap": _scan("rescue", "mmap"),
    "lookup": _lookup,
    "find": _find,
    "cat": _cat,
    "backlog": _backlog,
    "check": _check,
    "copy": _into_copy(copy_store),
    "config": _settings_of,
    "ours": _ours,
    "by log fail": _by_log("fail"),
    "by log skip": _by_log("skip"),
    "tiered fail": _tiered("fail"),
    "tiered skip": _tiered("skip"),
    "tiered rescue": _tiered("rescue"),
    "salvage": _into_copy(salvage),
    "condition": _condition,
    "tail": _tail,
    **{f"{name} fail": _table(name, "fail") for name in TABLES},
    **{f"{name} skip": _table(name, "skip") for name in TABLES},
    **{f"{name} rescue": _table(name, "rescue") for name in ("index", "scheduled", "retries")},
}
WEIGHTS: dict[str, int] = {
    **dict.fromkeys(LOOKS, 1),
    "scan fail": 8,
    "scan skip": 8,
    "scan rescue": 10,
    "scan rescue mmap": 4,
    "scan fail mmap": 4,
    "lookup": 4,
    "check": 2,
    "config": 3,
    "ours": 2,
}
