"""INV: what must hold of a store after a crash, whatever crashed and wherever.

`Expected` is made of a run that went well. `seen_before` looks at the store as the crash left it,
`recovered` recovers it and looks again. A rule that is broken is an AssertionError.

Records are judged by the oracle and by tests/support/contract.py, which know nothing of mqstore;
then by mqstore.check, which brokers' stores have agreed with.
"""

import hashlib
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from crash.broker_model import serve
from mqstore.check import check
from mqstore.errors import NotAStoreError, StoreNotFoundError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.txn import intent, ledger
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.write.recover import RecoverSettings, recover
from support import oracle
from support.contract import assert_consume_queues, assert_topics, walked
from support.oracle import Message
from support.stores import is_blank, stored

Payloads = Counter[str]
_HEADER = struct.Struct(">qqqqii")
_UNIT = struct.Struct(">iqii")


@dataclass(frozen=True)
class Expected:
    """The messages that were there before, those of the commit, and what the commit is known by."""

    before: tuple[Message, ...]
    batch: tuple[Message, ...]
    app_id: str
    version: int
    index_slots: int = 13

    @classmethod
    def of(
        cls, before: list[Message], after: list[Message], app_id: str, version: int
    ) -> "Expected":
        """Take the batch from a store in which the commit went well."""
        held = payloads(before)
        batch = [m for m in after if payload(m) not in held]
        assert [m for m in after if payload(m) in held] == before
        return cls(tuple(before), tuple(batch), app_id, version)


def payload(m: Message, *, with_id: bool = True) -> str:
    """Return a digest of all that a message is, whatever its place in the store."""
    properties = m.properties_map
    if not with_id:
        properties.pop("UNIQ_KEY", None)
    told = (
        m.topic, m.queue_id, m.body, m.flag, m.sys_flag, m.born_timestamp_ms, m.born_host,
        m.store_host, m.reconsume_times, sorted(properties.items()), m.crc,
    )  # fmt: skip
    return hashlib.sha256(repr(told).encode()).hexdigest()


def payloads(messages: Iterator[Message] | list[Message] | tuple[Message, ...]) -> Payloads:
    """Return how often each payload is there."""
    return Counter(map(payload, messages))


def is_decided(root: Path, expected: Expected) -> bool:
    """Tell whether the commit will happen, or has: by the intent and the ledger."""
    pending = intent.load(StoreDir.at(root))
    if pending is not None:
        assert pending.key == ledger.Key(expected.app_id, expected.version)
        return True
    last = ledger.last_version(StoreDir.at(root), expected.app_id)
    return last is not None and last >= expected.version


def seen_before(root: Path, expected: Expected, *, acked: bool = False) -> bool:
    """Look at what a crash left, as our readers do; return whether the commit is decided.

    They see none of the batch or all of it, and all that was there before; so do the consumers
    of a broker that starts now. Once the caller was told that it is committed, they see all.
    """
    decided = is_decided(root, expected)
    before, batch = (Counter(m.body for m in part) for part in (expected.before, expected.batch))
    either = [before + batch] if acked else [before, before + batch]
    seen = Counter(bodies_read(root))
    assert seen in either, _difference(seen, *either)
    if not decided:
        assert seen == before, "readers see a batch that is not decided"
    for version, served in serve(root, "4.9.7", "5.5.0").items():
        if served is not None:
            told = _difference(served, *either)
            assert served in either, f"a broker {version} serves {told}"
    return decided


def recover_store(root: Path, expected: Expected, *, decided: bool) -> bool:
    """Recover the store; return whether there is one.

    What was the start of a new store is none, as long as the commit that makes it is not decided.
    """
    try:
        recover(str(root), RecoverSettings())
    except (NotAStoreError, StoreNotFoundError):
        assert not expected.before
        assert not decided
        return False
    on_the_way = [path for path in (root / ".mqlog" / "tmp").rglob("*") if path.is_file()]
    assert not on_the_way, "files are left on their way"
    return True


def changes_nothing_again(root: Path) -> None:
    """Recover a store that was recovered: nothing is left to be done."""
    before = everything(root)
    recover(str(root), RecoverSettings())
    changed = difference(before, everything(root))
    assert not changed, f"a second recovery changed {changed}"


def holds(root: Path, expected: Expected, *, decided: bool, with_id: bool = True) -> None:
    """Check a store at rest: the messages, each once, and every structure that leads to them."""
    at_rest(root, expected, decided=decided)
    messages = assert_log(root)
    held = Counter(payload(m, with_id=with_id) for m in messages)
    wanted = [*expected.before, *(expected.batch if decided else ())]
    told = Counter(payload(m, with_id=with_id) for m in wanted)
    assert held == told, _difference(held, told)
    assert messages[: len(expected.before)] == list(expected.before), "a message was changed"
    ids = [m.msg_id for m in messages]
    assert len(set(ids)) == len(ids), "a message id is there twice"
    _in_order(messages, wanted)
    assert_consume_queues(root, messages)
    if messages:
        assert_topics(root, messages)
    if (root / "checkpoint").exists():
        assert_clocks(root, messages)
    assert_index(root, messages, expected.index_slots)
    found = [finding for finding in check(root) if finding.severity == "error"]
    assert not found, found
    seen = Counter(bodies_read(root))
    assert seen == Counter(m.body for m in wanted), "readers see something else"


def at_rest(root: Path, expected: Expected, *, decided: bool) -> None:
    """Nothing is under way, and it is known whether the commit was made."""
    assert intent.load(StoreDir.at(root)) is None, "an intent is left"
    assert is_decided(root, expected) == decided, "the ledger does not tell it"
    assert not (root / "abort").exists(), "abort is left"
    interlock = [path.name for path in (root / "commitlog").iterdir() if "mqlog" in path.name]
    assert not interlock, "brokers cannot start"


def assert_log(root: Path) -> list[Message]:
    """Return all records: dense, in files of one size, with nothing behind them but zeros.

    Files of zeros after the last are those that brokers make ahead.
    """
    files = list(stored(root))
    assert len({len(data) for _, data in files}) <= 1, "all files of one size"
    while len(files) > 1 and not any(files[-1][1]):
        files.pop()
    messages, ends = walked(files)
    for number, (start, data) in enumerate(files):
        rest = data[ends[number] :]
        closed = is_blank(rest) if number + 1 < len(files) else not any(rest)
        assert closed or is_blank(rest), f"file {start} ends in something else at {ends[number]}"
    return messages


def assert_clocks(root: Path, messages: list[Message]) -> None:
    """The clocks of the checkpoint do not run before the last record.

    That of the index may: it is set before the records are written, so that a broker keeps the
    IndexFile, and a recovery goes by the earliest of the three (StoreCheckpoint#getMinTimestamp).
    """
    physic, logics, index = struct.unpack_from(">qqq", (root / "checkpoint").read_bytes())
    last = messages[-1].store_timestamp_ms if messages else 0
    assert max(physic, logics) <= last, "a clock runs before the last record"
    assert index <= time.time_ns() // 1_000_000, "the clock of the index is of the future"


def assert_index(root: Path, messages: list[Message], slots: int) -> None:
    """Every key of every message leads to it, along the chain of its slot."""
    files = [path.read_bytes() for path in sorted((root / "index").glob("*"))]
    found = {(key, place) for data in files for key, place in _units(data, slots)}
    for m in messages:
        for key in oracle.index_keys(m, tags=False):
            assert (oracle.key_hash(key), m.physical_offset) in found, f"no key {key} in the index"


def _units(data: bytes, slots: int) -> Iterator[tuple[int, int]]:
    """Yield hash and place of every unit of an IndexFile that a slot's chain leads to."""
    assert (len(data) - _HEADER.size - 4 * slots) % _UNIT.size == 0
    *_, count = _HEADER.unpack_from(data)
    first = _HEADER.size + 4 * slots
    for slot in range(slots):
        (unit,) = struct.unpack_from(">i", data, _HEADER.size + 4 * slot)
        while 0 < unit < count:
            key, place, _, previous = _UNIT.unpack_from(data, first + _UNIT.size * unit)
            assert previous < unit, "a chain that does not end"
            yield key, place
            unit = previous


def bodies_read(root: Path) -> list[bytes]:
    """Return the bodies that our readers see; none if there is no store."""
    try:
        snapshot = take(root)
    except (StoreNotFoundError, NotAStoreError):
        return []
    slices = slices_of(snapshot)
    batches = scan(slices, ScanSettings(columns=("body",)))
    return [body for batch in batches for body in batch.column(0).to_pylist()]


def everything(root: Path) -> dict[str, bytes | None]:
    """Return every directory and file below a root."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def outcome(root: Path) -> bytes:
    """Return a digest of a store at rest, the same for two that differ in names of ours alone.

    IndexFiles are named after the time, files of ours hold times and random names.
    """
    told = hashlib.blake2b(digest_size=16)
    index = 0
    for path, data in everything(root).items() if root.exists() else ():
        index += path.startswith("index/")
        name = f"index/{index}" if path.startswith("index/") else path
        ours = path.startswith(".mqlog")
        told.update(b"ours" if ours else f"{name}\0{len(data or b'')}\0".encode())
        told.update(b"" if ours else data or b"")
    return told.digest()


def difference(one: Mapping[str, bytes | None], other: Mapping[str, bytes | None]) -> list[str]:
    """Return the paths that are not the same in both.

    Directories of ours may come and go, and whoever holds the store may empty .mqlog/tmp.
    """
    changed = sorted(path for path in {*one, *other} if one.get(path, 0) != other.get(path, 0))
    empty = {p for p in changed if not one.get(p) and not other.get(p)}
    return [p for p in changed if not p.startswith(".mqlog" if p in empty else ".mqlog/tmp")]


def _in_order(messages: list[Message], wanted: list[Message]) -> None:
    """Each queue holds its messages in the order in which they were to be appended."""
    asked: dict[tuple[str, int], list[bytes]] = {}
    for m in wanted:
        asked.setdefault((m.topic, m.queue_id), []).append(m.body)
    for queue, told in asked.items():
        held = [m.body for m in messages if (m.topic, m.queue_id) == queue]
        assert held == told, f"queue {queue} has another order"


def _difference(seen: Counter[bytes] | Payloads, *wanted: Counter[bytes] | Payloads) -> str:
    lost = [len(list((one - seen).elements())) for one in wanted]
    more = [len(list((seen - one).elements())) for one in wanted]
    return f"{seen.total()} messages; not there {lost}, too many {more}"
