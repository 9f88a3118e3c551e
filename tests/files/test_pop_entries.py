"""The KV service's RocksDB: its entries in every form that a broker leaves, and hostile ones."""

import json
import os
import shutil
import struct
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import rocksdict

from mqstore.errors import CorruptStoreError, StoreError, UnsafePathError, UnsupportedStoreError
from mqstore.files.base.directory import folder_of
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.pop_files import kv_pops
from mqstore.files.rocksdb import pop_entries
from mqstore.files.rocksdb.pop_entries import read_entries
from mqstore.format.pop import KvEntry, KvPops
from support import goldens, rocksdb

NOW = 1_795_457_000_000
RETRY = "%RETRY%g_a_b"


def entry(number: int, *, topic: str = "a_b", group: str = "g", queue_id: int = 1) -> KvEntry:
    return KvEntry(NOW + 30_000 + number, group, topic, queue_id, number, NOW + number, number % 3)


def key_of(found: KvEntry) -> bytes:
    """PopConsumerRecord#getKeyBytes."""
    names = f"{found.group}@{found.topic}@".encode()
    return struct.pack(f">q{len(names)}si1sq", found.visible_ms, names, found.queue_id, b"@",
                       found.queue_offset)  # fmt: skip


def value_of(found: KvEntry, **more: Any) -> bytes:
    fields = {
        "popTime": found.pop_ms,
        "groupId": found.group,
        "topicId": found.topic,
        "queueId": found.queue_id,
        "retryFlag": 0,
        "invisibleTime": found.visible_ms - found.pop_ms,
        "offset": found.queue_offset,
        "attemptTimes": found.deliveries,
        "suspend": False,
    }
    return json.dumps(fields | more).encode()


ENTRIES = [entry(n) for n in range(300)] + [entry(n, topic=RETRY, queue_id=0) for n in range(5)]


def made(root: Path, rows: dict[bytes, bytes]) -> Path:
    (root / "commitlog").mkdir(parents=True)
    rocksdb.write_database(root / "kvStore", {"default": {}, "popState": rows})
    return root


def plain() -> dict[bytes, bytes]:
    return {key_of(e): value_of(e) for e in ENTRIES}


def test_entries_are_read_from_flushed_files_and_from_the_write_ahead_log(tmp_path: Path) -> None:
    """A broker that runs has them in the log alone; half of these are in each, some deleted."""
    root = made(tmp_path / "store", {key_of(e): value_of(e) for e in ENTRIES[:200]})
    expected = [e for e in ENTRIES if e.queue_offset % 7]
    options = rocksdict.Options(raw_mode=True)
    families = {name: rocksdict.Options(raw_mode=True) for name in ("default", "popState")}
    database = rocksdict.Rdict(str(root / "kvStore"), options, column_families=families)
    column = database.get_column_family("popState")
    for e in ENTRIES[200:]:
        column[key_of(e)] = value_of(e)
    for e in ENTRIES:
        if e.queue_offset % 7 == 0:
            del column[key_of(e)]
    database.flush_wal(True)
    before = goldens.digest(root)
    found = read_entries(folder_of(root))
    assert sorted(found.entries) == sorted(expected)
    assert sorted(found.entries) == sorted(expected), "they can be read twice"
    assert found.pairs == {("a_b", "g"), (RETRY, "g")}
    assert goldens.digest(root) == before, "reading beside a writer changed the store"
    shutil.copytree(root, tmp_path / "killed")
    column.close()
    database.close()
    for folder in (tmp_path / "killed", root):
        before = goldens.digest(folder)
        assert sorted(read_entries(folder_of(folder)).entries) == sorted(expected)
        assert goldens.digest(folder) == before, "reading changed the store"


def test_a_store_without_the_kv_service_has_no_entries(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert kv_pops(StoreDir.at(tmp_path / "store")) == KvPops()
    (tmp_path / "store" / "kvStore").mkdir()
    assert kv_pops(StoreDir.at(tmp_path / "store")) == KvPops()


def test_without_the_package_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = made(tmp_path / "store", plain())
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(UnsupportedStoreError, match=r"POP_KV_STORE\].*pip install rocksdict"):
        kv_pops(StoreDir.at(root))


A = ENTRIES[0]
WRONG = {
    "no JSON": (key_of(A), b"{"),
    "no object": (key_of(A), b"[1]"),
    "no UTF-8": (key_of(A), b"\xff\xfe"),
    "nested": (key_of(A), b"[" * 30_000),
    "pop time of text": (key_of(A), value_of(A, popTime="1")),
    "pop time beyond a long": (key_of(A), value_of(A, popTime=2**63)),
    "a number of many digits": (key_of(A), b'{"popTime":' + b"9" * 5_000 + b"}"),
    "negative attempts": (key_of(A), value_of(A, attemptTimes=-1)),
    "many values": (key_of(A), value_of(A, more=[0] * 1_000)),
    "long value": (key_of(A), value_of(A, more="x" * 70_000)),
    "short key": (b"", value_of(A)),
    "key without names": (key_of(A)[:8] + key_of(A)[-14:], value_of(A)),
    "key without separators": (b"x" * 60, value_of(A)),
    "negative offset": (key_of(A._replace(queue_offset=-1)), value_of(A)),
    "negative time": (key_of(A._replace(visible_ms=-1)), value_of(A)),
    "negative queue": (key_of(A._replace(queue_id=-1)), value_of(A)),
    "topic that leads away": (key_of(A._replace(topic="../../x")), value_of(A)),
    "empty group": (key_of(A._replace(group="")), value_of(A)),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_an_entry_that_no_broker_writes_is_an_error_that_names_its_key(
    tmp_path: Path, wrong: tuple[bytes, bytes]
) -> None:
    root = made(tmp_path / "store", plain() | dict([wrong]))
    with pytest.raises(CorruptStoreError, match=r"kvStore.*no broker writes an entry of POP"):
        read_entries(folder_of(root))


@pytest.mark.parametrize(
    ("name", "harm"),
    # What a MANIFEST lacks at its end never was: a broker too reads it as it was before.
    sorted(
        {*product(["CURRENT", "MANIFEST", ".sst"], ["gone", "empty", "torn", "noise"])}
        - {("MANIFEST", "torn")}
    ),
)
def test_a_damaged_database_is_an_error_that_names_it(tmp_path: Path, name: str, harm: str) -> None:
    root = made(tmp_path / "store", plain())
    for path in list((root / "kvStore").iterdir()):
        if name not in path.name:
            continue
        data = path.read_bytes()
        path.unlink()
        if harm != "gone":
            noise = bytes(b ^ 0x55 for b in data)
            path.write_bytes({"empty": b"", "torn": data[:-20], "noise": noise}[harm])
    with pytest.raises(StoreError, match="kvStore"):
        read_entries(folder_of(root))


@pytest.mark.parametrize("what", ["folder", "CURRENT", "sst"])
def test_a_link_in_the_database_is_refused(tmp_path: Path, what: str) -> None:
    root = made(tmp_path / "store", plain())
    folder = root / "kvStore"
    path = folder if what == "folder" else next(folder.glob(f"*{what}"))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePathError, match="kvStore"):
        read_entries(folder_of(root))


def test_a_manifest_elsewhere_is_not_opened(tmp_path: Path) -> None:
    other = made(tmp_path / "other", plain())
    root = made(tmp_path / "store", {})
    manifest = next((other / "kvStore").glob("MANIFEST-*"))
    away = os.path.relpath(manifest, root / "kvStore")
    for named in (away, str(manifest)):
        (root / "kvStore" / "CURRENT").write_text(f"{named}\n")
        with pytest.raises(CorruptStoreError, match="kvStore"):
            read_entries(folder_of(root))


LOOK = """
import sys
from pathlib import Path
from mqstore.errors import UnsupportedStoreError
from mqstore.files.base.directory import folder_of
from mqstore.files.rocksdb.pop_entries import read_entries
try:
    read_entries(folder_of(sys.argv[1]))
except UnsupportedStoreError as error:
    print(error)
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


def looked_at(root: Path) -> list[str]:
    """What a process of its own says of the entries, and at last its memory in KiB."""
    done = subprocess.run([sys.executable, "-c", LOOK, root], capture_output=True, check=True)
    return done.stdout.decode().splitlines()


def test_huge_values_and_logs_are_refused_before_they_take_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 MiB of zeros are a small compressed file; a log is read whole when it is opened."""
    (usual,) = looked_at(made(tmp_path / "usual", plain()))
    root = made(tmp_path / "store", plain() | {key_of(A): bytes(100 << 20)})
    error, peak = looked_at(root)
    assert "TOO_LARGE]" in error
    assert "305 entries have values of" in error
    assert int(peak) < int(usual) + (50 << 10)
    root = made(tmp_path / "long", plain())
    log = root / "kvStore" / "999999.log"
    log.touch()
    os.truncate(log, (640 << 20) + 1)
    with pytest.raises(UnsupportedStoreError, match=r"TOO_LARGE\].*MANIFEST and \*\.log"):
        read_entries(folder_of(root))
    root = made(tmp_path / "many", plain())
    monkeypatch.setattr(pop_entries, "MOST_KV_ENTRIES", 304)
    with pytest.raises(UnsupportedStoreError, match=r"TOO_LARGE\].*more than 304 entries"):
        read_entries(folder_of(root))
