"""Processes that write to and read from one store at a time.

    python -m fuzz.beside write FOLDER              until it is killed
    python -m fuzz.beside read FOLDER SEED COUNTS   until its standard input ends

A store gets so many commits, then the next one is begun: what a reader looks at stays small.
Every commit fills a CommitLog file, so that each rolls over. A body tells the commit it is of and
how many messages that has, so whoever reads can tell whether all of them are there.
"""

import json
import random
import select
import signal
import sys
from collections import Counter, defaultdict
from pathlib import Path

from mqstore.errors import NotAStoreError, StoreError, StoreLockedError, StoreNotFoundError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.txn import ledger
from mqstore.read.capabilities import Tail
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.write.recover import RecoverSettings, recover
from support import writing
from support.opened import tail_of

COMMITS = 80
APP = "writer"
LIFE_S = 600  # whatever became of the process that started it
SETTINGS = ScanSettings(columns=("topic", "queueId", "queueOffset", "body"))
Queue = tuple[str, int]


def stores(folder: Path) -> list[Path]:
    """The stores there are, oldest first."""
    return sorted(path for path in folder.glob("store-*") if path.is_dir())


def write(folder: Path) -> None:
    """Commit until it is killed; go on where a writer that was killed had come to."""
    signal.alarm(LIFE_S)
    while True:
        there = stores(folder)
        root = there[-1] if there else folder / "store-00000"
        if (root / "commitlog").exists():
            recover(root, RecoverSettings(lock_timeout_ms=10_000))
        last = ledger.last_version(StoreDir.at(root), APP) or 0
        if last >= COMMITS:
            root, last = folder / f"store-{len(there):05d}", 0
        while last < COMMITS:
            last += 1
            _commit(root, last)


def _commit(root: Path, version: int) -> None:
    count = 3 + version % 4
    bodies = [f"{version} {n} {count} ".encode().ljust(2000 // count, b"x") for n in range(count)]
    rows = writing.rows(count, body=bodies, topic=["TU"[n % 2] for n in range(count)])
    known = {"txn_app_id": APP, "txn_version": version}
    sizes = {**writing.SMALL, "mapped_file_size_commit_log": 4096, "lock_timeout_ms": 10_000}
    writing.append(root, rows, **({**sizes, **known} if version == 1 else known))


def read(folder: Path, seed: int, noted: Path) -> None:
    """Look until standard input ends, and note the counts as JSON after each look.

    Raises AssertionError for a view that was never the store's.
    """
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    seen: dict[Path, dict[Queue, int]] = defaultdict(dict)
    tails: dict[Path, Tail] = {}
    while not select.select([sys.stdin], [], [], 0 if stores(folder) else 0.05)[0]:
        for root in stores(folder)[-1:]:
            is_made = (root / "commitlog").is_dir() and (root / "consumequeue").is_dir()
            try:
                if rng.random() < 0.5:
                    _look(root, seen[root], counts)
                else:
                    _follow(root, tails, seen[root], counts)
            except (StoreNotFoundError, NotAStoreError, StoreLockedError):
                counts["too early"] += 1
            except StoreError as error:
                if is_made:
                    raise AssertionError(f"{root.name}: {error}") from error
                counts["too early"] += 1  # The store was being made.
        noted.with_suffix(".new").write_text(json.dumps(counts))
        noted.with_suffix(".new").replace(noted)
    for tail in tails.values():
        tail.close()


def _look(root: Path, seen: dict[Queue, int], counts: Counter[str]) -> None:
    snapshot = take(root)
    of_queue: dict[Queue, list[int]] = defaultdict(list)
    batches: dict[bytes, list[bytes]] = defaultdict(list)
    for batch in scan(slices_of(snapshot), SETTINGS):
        for row in batch.to_pylist():
            of_queue[row["topic"], row["queueId"]].append(row["queueOffset"])
            version, number, _ = row["body"].split(b" ", 2)
            batches[version].append(number)
            counts["messages"] += 1
    for queue, numbers in of_queue.items():
        assert numbers == list(range(len(numbers))), f"{queue}: {numbers}"
    _grown(seen, {queue: len(numbers) for queue, numbers in of_queue.items()})
    for version, numbers in batches.items():
        expected = 3 + int(version) % 4
        assert len(numbers) == len(set(numbers)) == expected, f"commit {version}: {numbers}"
    versions = sorted(map(int, batches))
    assert versions == list(range(1, len(versions) + 1)), versions
    counts["reads"] += 1


def _follow(
    root: Path, tails: dict[Path, Tail], seen: dict[Queue, int], counts: Counter[str]
) -> None:
    if root not in tails:
        tails[root] = tail_of(root)
    bounds = tails[root].look(at_once=True)
    highs = {queue: high for queue, (_, high) in bounds.items()}
    _grown(seen, highs)
    whole = {sum(3 + n % 4 for n in range(1, last + 1)) for last in range(COMMITS + 1)}
    assert sum(highs.values()) in whole, f"bounds of a part of a commit: {highs}"
    counts["looks"] += 1


def _grown(seen: dict[Queue, int], now: dict[Queue, int]) -> None:
    """Take note of how far each queue goes, which is never less far than before."""
    for queue, high in seen.items():
        assert now.get(queue, 0) >= high, f"{queue} went back from {high} to {now.get(queue, 0)}"
    seen.update(now)


def main() -> None:
    """Do as the arguments say."""
    what, folder, *more = sys.argv[1:]
    if what == "write":
        write(Path(folder))
    else:
        read(Path(folder), int(more[0]), Path(more[1]))


if __name__ == "__main__":
    main()
