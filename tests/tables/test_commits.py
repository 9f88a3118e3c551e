"""The table of commits: what the ledger and an intent that is not finished say."""

from pathlib import Path
from typing import Any

import pytest

from mqstore.errors import CorruptConfigError
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.txn import ledger
from mqstore.files.txn.ledger import Key, LedgerEntry
from mqstore.tables import commits
from mqstore.tables.choice import open_root
from mqstore.write.recover import RecoverSettings, recover
from support import killed_commit, parts
from support.oracle import Message
from support.stores import MakeStore
from support.writing import SMALL, append, held, rows, writer_of


def entry(number: int, key: Key | None) -> LedgerEntry:
    return LedgerEntry(
        app_id=key.app_id if key else None,
        version=key.version if key else None,
        query_id=key.query_id if key else None,
        batch_id=key.batch_id if key else None,
        job_id=f"{number:032x}",
        rows=10 + number,
        bytes=1000 + number,
        first_physical_offset=100 * number,
        last_physical_offset=100 * number + 90,
        committed_ms=1_795_230_000_000 + number,
        state=ledger.DONE,
    )


def ledger_writer(root: Path) -> StoreWriter:
    (root / ".mqlog" / "txn").mkdir(parents=True, exist_ok=True)
    return writer_of(root)


def read(root: Path, **options: str) -> list[dict[str, Any]]:
    return parts.rows("commits", commits.plan(open_root(str(root), broker_name="b"), **options))


def test_a_store_that_only_brokers_wrote_has_no_commits(golden: tuple[str, Path]) -> None:
    assert read(golden[1]) == []


def test_every_commit_is_told_oldest_first(store: MakeStore) -> None:
    root = store([Message()]).root
    keys = (Key("load", 7), None, Key.of_stream("q-1", 3))
    for number in (2, 0, 1):
        ledger.record(ledger_writer(root), entry(number, keys[number]))

    assert [tuple(row.values()) for row in read(root)] == [
        ("load", 7, None, None, 10, 1000, 0, 90, 1_795_230_000_000_000, "done", "b"),
        (None, None, None, None, 11, 1001, 100, 190, 1_795_230_000_001_000, "done", "b"),
        ("s:q-1", 3, "q-1", 3, 12, 1002, 200, 290, 1_795_230_000_002_000, "done", "b"),
    ]


@pytest.mark.parametrize("state", ["decided", "published"])
def test_a_commit_that_was_killed_is_told_last_until_it_is_finished(
    tmp_path: Path, state: str
) -> None:
    root = tmp_path / "store"
    append(root, rows(5), **SMALL, txn_app_id="load", txn_version=1)
    end = max(m.physical_offset + m.size for m in held(root))
    killed_commit.leave(root, state, count=2)
    done, left = read(root)
    assert (done["appId"], done["state"]) == ("load", "done")
    assert (left["appId"], left["version"], left["rows"]) == (
        killed_commit.APP_ID,
        killed_commit.VERSION,
        2,
    )
    assert (left["state"], left["committedAt"]) == (state, None)
    assert left["firstPhysicalOffset"] >= end
    recover(root, RecoverSettings())
    finished = read(root)[1]
    assert finished["committedAt"] is not None
    assert finished == {**left, "state": "done", "committedAt": finished["committedAt"]}


def test_a_ledger_that_is_damaged_is_an_error_or_passed_by(store: MakeStore) -> None:
    root = store([Message()]).root
    ledger.record(ledger_writer(root), entry(1, None))
    (path,) = (root / ".mqlog" / "txn").glob("*.json")
    path.write_bytes(path.read_bytes().replace(b'"rows":11', b'"rows":12'))
    with pytest.raises(CorruptConfigError, match="its checksum differs"):
        read(root)
    assert read(root, on_corrupt="skip") == []
