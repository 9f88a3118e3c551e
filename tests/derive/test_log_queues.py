"""The cache of walked logs: what is walked again, and that nothing in it is believed."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from mqstore.derive import walked_log
from mqstore.derive.log_sections import FileWalk
from mqstore.errors import CorruptStoreError, InvalidOptionError, NoSpaceError
from mqstore.read.by_log import default_cache
from mqstore.read.log_directory import open_by_log
from support import by_log, soak
from support.oracle import Message
from support.stores import Laid, Layout, lay_out
from support.writing import SMALL, append, rows

FILES = Layout(commit_log_bytes=2048)


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The starts of the log files that are walked, as they are."""
    found: list[int] = []

    def noted(log: object, file: object, *span: object) -> FileWalk:
        found.append(file.start)  # type: ignore[attr-defined]
        return FileWalk(log, file, *span)  # type: ignore[arg-type]

    monkeypatch.setattr(walked_log, "FileWalk", noted)
    return found


def laid_out(root: Path) -> Laid:
    return lay_out(root, [Message(body=b"%03d" % n * 9) for n in range(40)], FILES)


def sections(cache: Path) -> list[Path]:
    return sorted(cache.glob("*/*.arrow"))


def test_a_second_read_walks_nothing(tmp_path: Path, walked: list[int]) -> None:
    laid = laid_out(tmp_path / "store")
    first = by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache"))
    assert sorted(walked) == [int(p.name) for p in sorted((laid.root / "commitlog").iterdir())]
    walked.clear()
    assert by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache")) == first
    assert walked == []


def test_only_the_file_that_grew_and_new_ones_are_walked(tmp_path: Path, walked: list[int]) -> None:
    root = tmp_path / "store"
    append(root, rows(20), **SMALL)
    by_log.snapshot(root, tmp_path / "cache")
    last = max(walked)
    append(root, rows(60), **SMALL)
    walked.clear()
    assert len(by_log.rows(by_log.snapshot(root, tmp_path / "cache"))) == 80
    assert walked
    assert min(walked) == last


def test_a_record_that_a_mapped_file_got_without_a_new_time_is_read(
    tmp_path: Path, walked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may keep the times of a file that a broker has mapped."""
    monkeypatch.setattr(walked_log, "_key", lambda file, *_: f"{file.start:020d}-same")
    root = tmp_path / "store"
    append(root, rows(3), **SMALL)
    by_log.snapshot(root, tmp_path / "cache")
    append(root, rows(1), **SMALL)
    assert len(by_log.rows(by_log.snapshot(root, tmp_path / "cache"))) == 4


def test_a_file_that_was_written_to_is_walked_again(tmp_path: Path, walked: list[int]) -> None:
    laid = laid_out(tmp_path / "store")
    by_log.snapshot(laid.root, tmp_path / "cache")
    walked.clear()
    path, position = laid.file_of(laid.messages[20])
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes(8))
    with pytest.raises(CorruptStoreError):
        by_log.snapshot(laid.root, tmp_path / "cache")
    assert walked == [int(path.name)]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _noise(path: Path) -> None:
    path.write_bytes(b"ARROW1\0\0" + bytes(range(256)) * 40 + b"ARROW1")


def _other_schema(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("a", pa.int8())])):
        pass


def _without_metadata(path: Path) -> None:
    with pa.OSFile(str(path)) as source:
        table = pa.ipc.open_file(source).read_all().replace_schema_metadata(None)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)


def _link(path: Path) -> None:
    path.rename(path.with_suffix(".away"))
    path.symlink_to(path.with_suffix(".away"))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _anyones(path: Path) -> None:
    path.chmod(0o666)


def _another_files(path: Path) -> None:
    other = next(p for p in sections(path.parents[1]) if p != path)
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize(
    "spoil",
    [
        _cut,
        _empty,
        _noise,
        _other_schema,
        _without_metadata,
        _link,
        _pipe,
        _anyones,
        _another_files,
    ],
)
def test_a_section_that_is_not_believable_is_made_again(
    tmp_path: Path, walked: list[int], spoil: Callable[[Path], None]
) -> None:
    laid = laid_out(tmp_path / "store")
    first = by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache"))
    path = sections(tmp_path / "cache")[1]
    spoil(path)
    walked.clear()
    assert by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache")) == first
    assert walked == [int(path.name[:20])]
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600


def test_units_that_changed_in_the_cache_are_an_error_once(tmp_path: Path) -> None:
    laid = laid_out(tmp_path / "store")
    first = by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache"))
    path = sections(tmp_path / "cache")[0]
    data = bytearray(path.read_bytes())
    place = data.rindex(laid.messages[3].size.to_bytes(8, "little"))
    data[place] ^= 1
    path.write_bytes(data)
    planned = by_log.snapshot(laid.root, tmp_path / "cache")
    with pytest.raises(CorruptStoreError, match=r"cached section .* is damaged; it is made again"):
        by_log.rows(planned)
    assert by_log.rows(planned) == first


@pytest.mark.soak
def test_any_flipped_byte_gives_the_same_rows_or_a_named_error(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(body=b"1"), Message(body=b"2")])
    first = by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache"))
    (path,) = sections(tmp_path / "cache")
    data = path.read_bytes()
    errors = []
    for place in soak.sample(range(0, len(data), 37), check=120, test=120):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        try:
            assert by_log.rows(by_log.snapshot(laid.root, tmp_path / "cache")) == first
        except CorruptStoreError as error:
            errors.append(str(error))
    assert errors
    assert all("cached section" in error for error in errors)


def test_the_cache_is_private(tmp_path: Path) -> None:
    laid = laid_out(tmp_path / "store")
    by_log.snapshot(laid.root, tmp_path / "cache")
    for path in [tmp_path / "cache", *(tmp_path / "cache").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert not list((tmp_path / "cache").rglob("*.tmp"))


def test_a_cache_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    laid = laid_out(tmp_path / "store")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(CorruptStoreError, match="this user alone may write to"):
        by_log.snapshot(laid.root, tmp_path / "cache")


def test_a_cache_that_cannot_be_made_names_the_option(tmp_path: Path) -> None:
    laid = laid_out(tmp_path / "store")
    (tmp_path / "file").touch()
    with pytest.raises(NoSpaceError, match="another directory in the option cacheDir"):
        by_log.snapshot(laid.root, tmp_path / "file" / "cache")


@pytest.mark.parametrize("inside", ["cache", "commitlog/cache", "."])
def test_a_cache_in_the_store_is_refused(tmp_path: Path, inside: str) -> None:
    laid = laid_out(tmp_path / "store")
    with pytest.raises(InvalidOptionError, match="lies in the store"):
        open_by_log(laid.root, (), str(laid.root / inside))


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == f"{tmp_path}/mqlog"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == f"{tmp_path}/.cache/mqlog"


def test_sections_that_no_read_takes_are_removed_when_a_day_old(tmp_path: Path) -> None:
    root = tmp_path / "store"
    append(root, rows(3), **SMALL)
    by_log.snapshot(root, tmp_path / "cache")
    (old,) = sections(tmp_path / "cache")
    append(root, rows(3), **SMALL)
    by_log.snapshot(root, tmp_path / "cache")
    assert old in sections(tmp_path / "cache")
    os.utime(old, (0, 0))
    by_log.snapshot(root, tmp_path / "cache")
    assert old not in sections(tmp_path / "cache")
    assert len(sections(tmp_path / "cache")) == 1
