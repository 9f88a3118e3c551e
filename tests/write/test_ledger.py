"""The ledger: how many commits of an application it keeps, and which it forgets."""

from pathlib import Path

from mqstore.files.base.store_dir import StoreDir
from mqstore.files.txn import ledger
from mqstore.files.txn.ledger import DONE, Key, LedgerEntry
from support.writing import SMALL, append, held, rows, writer_of

KEPT = 100


def entry(app_id: str, version: int) -> LedgerEntry:
    return LedgerEntry(
        app_id=app_id,
        version=version,
        query_id=None,
        batch_id=None,
        job_id=f"{app_id}-{version}",
        rows=1,
        bytes=100,
        first_physical_offset=version,
        last_physical_offset=version,
        committed_ms=1_700_000_000_000 + version,
        state=DONE,
    )


def test_the_oldest_commit_of_an_application_is_forgotten_first(tmp_path: Path) -> None:
    writer, place = writer_of(tmp_path), StoreDir.at(tmp_path)
    (tmp_path / ledger.LEDGER_FOLDER).mkdir(parents=True)
    ledger.record(writer, entry("other", 0))
    for version in range(KEPT + 2):
        ledger.record(writer, entry("loader", version))
    of_loader = [e.version for e in ledger.entries(place) if e.app_id == "loader"]
    assert of_loader == list(range(2, KEPT + 2))
    assert ledger.find(place, Key("loader", 1)) is None
    assert ledger.find(place, Key("loader", 2)) == entry("loader", 2)
    # A version that is forgotten was committed all the same: the newest one tells.
    assert ledger.last_version(place, "loader") == KEPT + 1
    assert ledger.find(place, Key("other", 0)) == entry("other", 0)


def test_a_forgotten_commit_s_key_still_writes_nothing(tmp_path: Path) -> None:
    """connector/TABLES.md, commits: what happens to a key that is not among the newest."""
    guide = (Path(__file__).parents[2] / "connector" / "TABLES.md").read_text(encoding="utf-8")
    assert f"the newest {KEPT} commits" in guide
    root = tmp_path / "s"
    append(root, rows(1), **SMALL, txn_app_id="loader", txn_version=0)
    writer = writer_of(root)
    for version in range(1, KEPT + 1):
        ledger.record(writer, entry("loader", version))
    assert ledger.find(StoreDir.at(root), Key("loader", 0)) is None
    again = append(root, rows(2), txn_app_id="loader", txn_version=0)
    assert again.is_repeated
    assert len(held(root)) == 1
