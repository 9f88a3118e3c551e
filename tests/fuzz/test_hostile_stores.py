"""Stores that somebody made to harm: each ends in the error that names it, and nothing outside.

The table of threats and the tests of each row are in README.md. Readers are shown every store in
all ways that mutants are (looks.py); writers append to it, recover it, and abort.
"""

import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import appending
import goldens
import oracle
from fuzz.looks import LOOKS
from mqstore.errors import (
    CommitInDoubtError,
    CorruptConfigError,
    CorruptStoreError,
    StoreError,
    UnsafePathError,
    UnsupportedStoreError,
)
from mqstore.files import config, intent
from mqstore.write.recover import RecoverSettings, recover
from oracle import Message
from stores import Laid, Layout, lay_out, topics_json, write_json

SECRET = b"secret of another directory"
OLD = 1_000_000_000  # a time long ago: what is that old, nobody is at work on
JOB = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory beside the store that must stay as it is."""
    folder = tmp_path / "outside"
    (folder / JOB).mkdir(parents=True)
    for name in ("secret", "00000000000000000000", "topics.json", f"{JOB}/secret"):
        (folder / name).write_bytes(SECRET)
    before = goldens.digest(folder)
    yield folder
    assert goldens.digest(folder) == before, "something outside the store was changed"


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    """A small store with a bit of everything."""
    messages = [Message(body=b"%d" % n, properties=b"KEYS\x01k%d\x02" % n) for n in range(30)]
    laid = lay_out(tmp_path / "store", messages, Layout(queue_units=8))
    appending.append(laid.root, appending.rows(2), txn_app_id="a", txn_version=1, fsync="none")
    for folder in (".mqlog/staging", ".mqlog/tmp", ".mqlog/txn"):
        (laid.root / folder).mkdir(exist_ok=True)
    return laid


def write(root: Path) -> None:
    appending.append(root, appending.rows(3), txn_app_id="a", txn_version=2, fsync="none")


def put_in_order(root: Path) -> None:
    recover(root, RecoverSettings())


WRITERS: dict[str, Callable[[Path], None]] = {"append": write, "recover": put_in_order}


def error_of(act: Callable[[Path], object], root: Path) -> StoreError | None:
    try:
        act(root)
    except StoreError as error:
        assert str(error).startswith("[MQLOG_")
        assert SECRET.decode() not in str(error)
        return error
    return None


# --- links, and what is no file ---------------------------------------------------------------

FOLDERS = ("commitlog", "consumequeue", "consumequeue/T", "consumequeue/T/0", "index", "config")
OUR_FOLDERS = (".mqlog", ".mqlog/txn", ".mqlog/tmp", ".mqlog/staging")
FILES = (
    "commitlog/00000000000000000000",
    "commitlog/00000000000000004096",
    "consumequeue/T/0/00000000000000000000",
    "consumequeue/T/0/00000000000000000480",
    "config/topics.json",
    "checkpoint",
    "lock",
    ".mqlog/txn/SEQ",
    ".mqlog/store.json",
    "abort",
    ".mqlog/lock",
    ".mqlog/txn/pending.json",
)


def link(laid: Laid, place: str, target: Path, *, keep: bool) -> None:
    """Put a link where a part of the store was; with `keep` that part is what it leads to."""
    path = laid.root / place
    if keep:
        target = laid.root.parent / f"moved-{len(place)}"
        path.rename(target)
    elif path.is_dir():
        path.rename(laid.root.parent / "away")
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("place", FOLDERS + OUR_FOLDERS)
def test_no_writer_follows_a_link_to_a_folder(
    laid: Laid, outside: Path, place: str, writer: str
) -> None:
    link(laid, place, outside, keep=False)
    before = goldens.digest(laid.root / "commitlog")
    error = error_of(WRITERS[writer], laid.root)
    assert isinstance(error, UnsafePathError) or writer == "recover"
    if place != "commitlog" and error is not None:
        assert goldens.digest(laid.root / "commitlog") == before


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("place", FILES)
def test_no_writer_follows_a_link_to_a_file(
    laid: Laid, outside: Path, place: str, writer: str
) -> None:
    link(laid, place, outside / "secret", keep=False)
    error = error_of(WRITERS[writer], laid.root)
    assert isinstance(error, StoreError) or writer == "recover"


@pytest.mark.parametrize("kind", ["hard link", "fifo", "directory"])
@pytest.mark.parametrize("place", FILES)
def test_no_writer_writes_to_what_is_no_plain_file_of_the_store(
    laid: Laid, outside: Path, place: str, kind: str
) -> None:
    path = laid.root / place
    data = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    if kind == "hard link":
        other = laid.root.parent / "other"
        other.write_bytes(data)
        path.hardlink_to(other)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    error_of(write, laid.root)
    if kind == "hard link":
        assert other.read_bytes() == data, "the other name of the file has changed"


@pytest.mark.parametrize("place", [".mqlog/tmp", ".mqlog/staging"])
@pytest.mark.parametrize("writer", WRITERS)
def test_cleaning_up_stays_in_the_store(laid: Laid, outside: Path, place: str, writer: str) -> None:
    left = laid.root / place / JOB
    left.symlink_to(outside)
    os.utime(left, (OLD, OLD), follow_symlinks=False)
    for path in (outside / JOB, *outside.iterdir()):
        os.utime(path, (OLD, OLD))
    os.utime(outside, (OLD, OLD))
    error_of(WRITERS[writer], laid.root)
