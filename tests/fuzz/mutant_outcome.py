"""Looks at one mutant and judges what came of it: named errors or right rows, nothing written."""

import os
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fuzz.bases import LOGS, SECRET, Base, Key, keys_of
from fuzz.looks import LOOKS, TIER, Rows
from fuzz.mutate import Edit, Mutant
from mqstore.errors import CorruptStoreError, StoreError
from mqstore.format.epochs import EPOCH_FILE, IDENTITY_FILE

Signature = list[tuple[str, int, int, int, int, int, int]]
# Files in which nothing that a reader of messages follows is kept.
_LEDGER = tuple(f"dledger-n0/{name}" for name in ("index/", "checkpoint", "currterm"))
_BESIDE = (
    *_LEDGER,
    "index/",
    "checkpoint",
    "lock",
    "config/",
    ".mqlog/groups",
    ".mqlog/store.json",
    EPOCH_FILE,
    IDENTITY_FILE,
    f"{TIER}/",
)
LOOK_BEGINS, LOOK_ENDS = "/mqlog-look-begins", "/mqlog-look-ends"
_PLACES = ["physicalOffset", "offsetMsgId"]
_FILLER, _GAP = 2**31 - 1, 2
_NUMBER = re.compile(
    r"(commitlog|dledger-n0/data|consumequeue/.*)/[0-9]{20}"
)  # a file that may lie over others


class MutantError(AssertionError):
    """What a store must never do to whoever looks at it."""


def look_at_mutant(base: Base, edits: Sequence[Edit], look: str) -> str:
    """Do the edits, look, put all back; return what came of it. Raises MutantError."""
    mutant = Mutant(base)
    try:
        mutant.apply(edits)
        signature_before = signature(base.root, linked=look == "copy")
        outcome, rows = _look(base, look)
        # A copy gives full files a second name for a while, which they tell as a change.
        if signature(base.root, linked=look == "copy") != signature_before:
            raise MutantError("a look changed the store")
        if rows is not None:
            _judge_rows(base, mutant, look, rows)
    finally:
        mutant.undo()
    return outcome


def _look(base: Base, look: str) -> tuple[str, Rows]:
    os.path.lexists(LOOK_BEGINS)  # Who traces system calls sees where a look begins and ends.
    try:
        rows = LOOKS[look](base.root)
    except StoreError as error:
        _judge_error(base, error)
        return f"{look}: {type(error).__name__}", None
    except Exception as error:
        raise MutantError(f"not a named error: {type(error).__name__}: {error}") from error
    finally:
        os.path.lexists(LOOK_ENDS)
    return f"{look}: done", rows


def _judge_error(base: Base, error: StoreError) -> None:
    text = str(error)
    if not text.startswith("[MQLOG_") or not text.isprintable():
        raise MutantError(f"an error that is not fit to print: {text!r}") from error
    if SECRET.decode() in text:
        raise MutantError(f"an error that tells what lies elsewhere: {text!r}") from error
    if len(text) > 2000:
        raise MutantError(f"an error of {len(text)} characters") from error
    if isinstance(error, CorruptStoreError):
        inside = error.path.startswith(str(base.root.parent))
        if not inside or not isinstance(error.position, int):
            raise MutantError(f"names no place in the store: {text}") from error


def signature(root: Path, *, linked: bool = False) -> Signature:
    """What is in a directory: names, kinds, sizes, times of the last change of each.

    With ``linked``, without what a second name of a file changes.
    """
    found: Signature = []
    folders = [str(root)]
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                s = entry.stat(follow_symlinks=False)
                changed = 0 if linked else s.st_ctime_ns
                told = (s.st_mode, s.st_ino, s.st_size, s.st_mtime_ns, changed, s.st_nlink)
                found.append((entry.path, *told))
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return sorted(found)


def _judge_rows(base: Base, mutant: Mutant, look: str, table: pa.Table) -> None:
    touched = _touched(base, mutant)
    keys, held = keys_of(table), base.held
    if not look.startswith("tiered"):
        held = {key: h for key, h in held.items() if not h.record[0].startswith(TIER)}
    whole = [row for row, key in enumerate(keys) if key in held and key not in touched]
    whole = _comparable(base, look, table, whole)
    expected = base.table.take(rows_of([held[keys[row]].row for row in whole]))
    found = table.take(rows_of(whole))
    if look.startswith("tiered"):  # What a local queue seems to have lost, the tier has elsewhere.
        found, expected = found.drop_columns(_PLACES), expected.drop_columns(_PLACES)
    if not found.equals(expected):
        _tell_first(found.to_pylist(), expected.to_pylist())
    known = set(whole)
    others = [row for row in range(len(keys)) if row not in known]
    for row in (
        table.select(["topic", "queueId", "body", "crcOk"]).take(rows_of(others)).to_pylist()
    ):
        if SECRET in bytes(row["body"] or b""):
            raise MutantError("a row with what lies elsewhere")
        if row["crcOk"] and not touched and not row["topic"].startswith("%LMQ%"):
            raise MutantError(f"a row that was never there: {row}")
    if len({keys[row] for row in whole}) < len(whole):
        raise MutantError("a message twice")
    if look.startswith("scan rescue") and _is_framed(base, mutant):
        lost = set(held) - set(keys) - (touched if base.is_unclean else set())
        if lost:
            raise MutantError(f"not rescued: {sorted(lost)[:5]} of {len(lost)}")


def _comparable(base: Base, look: str, table: pa.Table, whole: list[int]) -> list[int]:
    """Leave out rows in place of messages that others hide.

    A record that was touched may claim the queue offset of another one: by the log the last one
    counts. A local queue may name a message that the local log lost, and the tier has.
    """
    if look.startswith("tiered"):
        return [row for row in whole if table["crcOk"][row].as_py()]
    if not look.startswith("by log"):
        return whole
    at = base.table["physicalOffset"]
    keys = keys_of(table)
    return [row for row in whole if table["physicalOffset"][row] == at[base.held[keys[row]].row]]


def rows_of(rows: list[int]) -> pa.Array:
    return pa.array(rows, pa.int64())


def _tell_first(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for one, other in zip(found, expected, strict=True):
        if one != other:
            raise MutantError(f"untouched, and read as {one}, not {other}")
    raise MutantError("rows that look alike differ")


def _touched(base: Base, mutant: Mutant) -> set[Key]:
    """Return the messages of whose record or unit a byte is not as it was, or not there."""
    now = {path: _now(mutant, path) for path in mutant.touched}
    folders = [f"{path}/" for path in mutant.touched if path in base.directories]
    shadows = [path for path in now if _NUMBER.fullmatch(path)]

    def is_touched(place: tuple[str, int, int]) -> bool:
        path, start, size = place
        if _is_shadowed(place, shadows) or path.startswith(tuple(folders)):
            return True
        if path not in now:
            return False
        return now[path][start : start + size] != base.files[path][start : start + size]

    return {h.key for h in base.held.values() if is_touched(h.record) or is_touched(h.unit)}


def _is_shadowed(place: tuple[str, int, int], shadows: list[str]) -> bool:
    """Tell whether a file among ``shadows`` begins before the end of what lies at a place."""
    path, start, size = place
    folder, _, name = path.rpartition("/")
    for shadow in shadows:
        beside, _, other = shadow.rpartition("/")
        if beside == folder and int(name) < int(other) < int(name) + start + size:
            return True
    return False


def _now(mutant: Mutant, path: str) -> bytes:
    place = mutant.base.root / path
    if place.is_symlink() or not place.is_file():
        return b""
    with place.open("rb") as file:
        return file.read(1 << 20)


def _is_framed(base: Base, mutant: Mutant) -> bool:
    """Tell whether the edits leave every file where it was and each queue's units in order.

    Then what was not touched must all be found; otherwise a store holds less than it did.
    """
    for path in mutant.touched:
        if path.startswith(_BESIDE) and path in base.files:
            continue
        place = base.root / path
        plain = path in base.files and place.is_file() and not place.is_symlink()
        if not plain or place.stat().st_size != len(base.files[path]):
            return False
        if path.startswith("consumequeue/") and not _is_in_order(base, path, place.read_bytes()):
            return False
        if not path.startswith((*LOGS, "consumequeue/")):
            return False
    return True


def _is_in_order(base: Base, path: str, data: bytes) -> bool:
    """Tell whether the bounds of a queue are where they were: sizes say so, and places."""
    low = min(int(p.rpartition("/")[2]) for p in base.files if p.startswith(LOGS))
    before = struct.iter_unpack(">qiq", base.files[path])
    for (old_place, old_size, _), (place, size, _) in zip(
        before, struct.iter_unpack(">qiq", data), strict=True
    ):
        if _kind(old_place, old_size) != _kind(place, size) or (old_size and place < low):
            return False
    return True


def _kind(place: int, size: int) -> str:
    """Return what a unit is: a queue is filler, then messages and gap units, then nothing."""
    filler = "filler" if place == 0 else "message"
    return {0: "nothing", _GAP: "gap", _FILLER: filler}.get(size, "message")
