"""A rebuild as a whole: where it begins, what it costs, and that nothing else is touched."""

import struct
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from derive.rebuilds import derived, rebuilt, sizes_of
from mqstore.check import check
from mqstore.derive.rebuild import recovery_start
from mqstore.files.base import durable
from mqstore.files.store import Store
from support import oracle, soak
from support.dying import killed
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore, lay_out

NOW_MS = 1_700_000_000_000
PROPERTIES = b"KEYS\x01a b\x02UNIQ_KEY\x01u\x02TAGS\x01t\x02"


def over_files(root: Path, count: int = 60) -> Laid:
    """A store of several CommitLog files, a record every second."""
    batch = [
        Message(body=bytes(200), properties=PROPERTIES, store_timestamp_ms=NOW_MS + 1000 * n)
        for n in range(count)
    ]
    return lay_out(root, batch, Layout(index_units=500))


def note(root: Path, physic_ms: int, logics_ms: int, index_ms: int) -> None:
    page = struct.pack(">qqqqqq", physic_ms, logics_ms, index_ms, 0, 0, 0)
    (root / "checkpoint").write_bytes(page.ljust(4096, b"\0"))


def first_of(laid: Laid, file: int) -> Message:
    start = file * laid.layout.commit_log_bytes
    return next(m for m in laid.messages if m.physical_offset == start)


def start_of(laid: Laid, *, with_index: bool = True) -> int:
    with Store.open(laid.root) as store:
        return recovery_start(store, with_index=with_index)


def test_recovery_begins_in_the_newest_file_the_checkpoint_has_seen(tmp_path: Path) -> None:
    laid = over_files(tmp_path / "s")
    third = first_of(laid, 2)
    seen = third.store_timestamp_ms + 3000
    for physic, logics, start in (
        (seen, seen, third.physical_offset),
        (seen, seen + 10**6, third.physical_offset),
        (seen + 10**6, seen, third.physical_offset),
        (seen - 1, seen, 4096),
        (seen, seen - 1, 4096),
        (3000, 3000, 0),
        (0, 0, 0),
    ):
        note(laid.root, physic, logics, 0)
        assert start_of(laid, with_index=False) == start
        assert start_of(laid) == 0
        note(laid.root, physic, logics, NOW_MS + 10**7)
        assert start_of(laid) == start
    note(laid.root, seen, seen, first_of(laid, 1).store_timestamp_ms)
    assert start_of(laid) == 4096


def test_recovery_begins_at_the_log_s_start_when_in_doubt(tmp_path: Path) -> None:
    laid = over_files(tmp_path / "s")
    (laid.root / "checkpoint").unlink()
    assert start_of(laid) == 0
    note(laid.root, 2**60, 2**60, 2**60)
    assert start_of(laid) == 0
    third = first_of(laid, 2)
    note(laid.root, third.store_timestamp_ms + 3000, third.store_timestamp_ms + 3000, 2**60)
    path, position = laid.file_of(third)
    with path.open("r+b") as file:
        file.seek(position + 28)
        file.write(struct.pack(">q", 77))  # It says that it lies elsewhere.
    assert start_of(laid) == 4096


def test_a_preallocated_file_is_passed_over(tmp_path: Path) -> None:
    laid = over_files(tmp_path / "s")
    last = max(int(p.name) for p in (laid.root / "commitlog").iterdir())
    (laid.root / "commitlog" / f"{last + 4096:020d}").write_bytes(bytes(4096))
    note(laid.root, NOW_MS + 10**8, NOW_MS + 10**8, NOW_MS + 10**8)
    assert start_of(laid) == last


def test_nothing_but_queues_and_index_is_touched(tmp_path: Path) -> None:
    laid = over_files(tmp_path / "s")
    (laid.root / "abort").write_bytes(b"4711")
    for path in [*(laid.root / "consumequeue").rglob("0*"), *(laid.root / "index").iterdir()]:
        if path.is_file():
            path.unlink()
    kept = {k: v for k, v in derived(laid.root, ".").items() if not k.startswith(("index", "cons"))}
    rebuilt(laid.root, sizes_of(laid.layout))
    after = derived(laid.root, ".")
    assert {k: v for k, v in after.items() if k in kept} == kept
    assert all(k.startswith(("index", "consumequeue")) for k in set(after) - set(kept))
    assert [f for f in check(laid.root) if f.severity == "error"] == []


def test_a_store_that_agrees_is_not_written_to(store: MakeStore) -> None:
    laid = store([Message(properties=PROPERTIES) for _ in range(40)], Layout(index_units=500))
    with killed(0, syncs=False):
        found = rebuilt(laid.root, sizes_of(laid.layout))
    assert (found.records, found.tail) == (40, laid.high)
    assert found.last_store_timestamp_ms == laid.messages[-1].store_timestamp_ms


def test_what_is_found_right_is_made_durable_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote it may have been killed before it was on the disk; then power fails."""
    laid = over_files(tmp_path / "s")
    start = first_of(laid, 2).physical_offset
    synced: set[str] = set()
    real, real_directory = durable.fsync, durable.fsync_directory

    def fsync(fd: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    def fsync_directory(path: str) -> None:
        synced.add(path)
        real_directory(path)

    monkeypatch.setattr(durable, "fsync", fsync)
    monkeypatch.setattr(durable, "fsync_directory", fsync_directory)
    rebuilt(laid.root, sizes_of(laid.layout), start, fsync=True)
    late = [m for m in laid.messages if m.physical_offset >= start]
    units = {str(laid.unit_of(("T", 0), m.queue_offset)[0]) for m in late}
    folders = [f"{laid.root}{path}" for path in ("", "/index", "/consumequeue", "/consumequeue/T")]
    index = [str(path) for path in (laid.root / "index").iterdir()]
    assert synced == {*units, *folders, f"{laid.root}/consumequeue/T/0", *index}
    assert len(units) < len(list((laid.root / "consumequeue" / "T" / "0").iterdir()))


def test_the_walk_goes_on_behind_a_blank_record_to_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The next record goes where the next file will start."""
    laid = over_files(tmp_path / "s")
    files = sorted((laid.root / "commitlog").iterdir())
    for path in files[2:]:
        path.unlink()
    assert rebuilt(laid.root, sizes_of(laid.layout)).tail == 2 * 4096


@pytest.mark.parametrize("size", [2 << 20, 9 << 20])
def test_records_larger_than_what_is_read_at_once_are_walked(tmp_path: Path, size: int) -> None:
    small = Message(body=bytes(100), properties=PROPERTIES)
    batch = [small, replace(small, body=bytes(size)), small, replace(small, body=bytes(size))]
    laid = lay_out(tmp_path / "s", batch, Layout(commit_log_bytes=20 << 20))
    found = rebuilt(laid.root, sizes_of(laid.layout))
    assert (found.records, found.tail, found.units_written, found.keys_put) == (4, laid.high, 0, 0)


@soak.not_in_check
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """64 MiB of CommitLog in 250,000 records, rebuilt whole; the growth of the process is told."""
    record = Message(body=bytes(120), properties=b"KEYS\x01k\x02TAGS\x01t\x02")
    root, count = tmp_path / "s", 250_000
    (root / "commitlog").mkdir(parents=True)
    (root / "consumequeue").mkdir()
    size = record.size
    data = bytearray(oracle.encode(record) * count)
    for number in range(count):
        struct.pack_into(">qq", data, number * size + 20, number, number * size)
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(data) + bytes(4096))
    program = """
        import resource, sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[2])
        from mqstore.files.base.file_sizes import FileSizes
        from derive.rebuilds import rebuilt
        root = Path(sys.argv[1])
        sizes = FileSizes(0, 6_000_000, 50_000, 300_000)
        rebuilt(root, sizes, 2**40)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = rebuilt(root, sizes)
        assert (found.records, found.units_written) == (250_000, 250_000), found
        assert found.keys_put == 500_000, found
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(root), tests],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 128 * 1024, f"{done.stdout.strip()} KiB"
