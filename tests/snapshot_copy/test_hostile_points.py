"""Manifests made to harm, and bytes that are no manifest: named errors, and nothing outside."""

import copy
import io
import json
import os
import shutil
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from mqlog_jobs.output import render
from mqlog_jobs.work import keep_views
from mqstore.copy.check_points import check_points
from mqstore.copy.hold_points import Budget, guard_once
from mqstore.copy.keep_rules import KeepRule
from mqstore.copy.prune_points import prune_named, prune_points
from mqstore.copy.take_point import take_point
from mqstore.errors import (
    CorruptStoreError,
    NotARepositoryError,
    StoreError,
    UnsafePathError,
    UnsupportedStoreError,
)
from mqstore.files.points.backing import LocalBacking
from mqstore.files.points.manifest import (
    PointFile,
    PointHead,
    PointManifest,
    PointPart,
    decode,
    encode,
)
from mqstore.files.points.repository import Repository, WantedPoint, point_path
from snapshot_copy.copied import SMALL, messages
from snapshot_copy.pointed import at, backing, files, kept_at, needed, restored, rows_of
from support import goldens, soak
from support.stores import lay_out

FAR = 2**63
PATH = "commitlog/00000000000000000000"


def rewritten(repository: Path, change: Callable[[list[Any]], None]) -> None:
    """Change the list of files of point 1; its checksum is made again."""
    path = repository / point_path(1)
    _, head, body = path.read_bytes().split(b"\n", 2)
    folders, *files = map(json.loads, zlib.decompress(body).splitlines())
    listed = [folders, files]
    change(listed)
    lines = [listed[0], *(listed[1] if len(listed) > 1 else ["no files"])]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    rest = head + b"\n" + zlib.compress(text)
    path.write_bytes(b"mqlog-point 1 " + sha256(rest).hexdigest().encode() + b"\n" + rest)


def first(listed: list[Any]) -> Any:
    return next(row for row in listed[1] if row[2])


def to(place: list[int], value: object) -> Callable[[list[Any]], None]:
    def change(listed: list[Any]) -> None:
        found = first(listed)
        for number in place[:-1]:
            found = found[number]
        found[place[-1]] = value

    return change


HARMFUL = {
    **{f"the path {p!r}": to([0], p) for p in ("../x", "/etc/x", "a/../../x", "a//b", "", "a\0b")},
    "a path of very many folders": to([0], "/".join("a" * 10_000)),
    "a folder of very many folders": lambda listed: listed[0].append("/".join("a" * 10_000)),
    "a path longer than any": to([0], "a" * 5_000),
    "a path that is a number": to([0], 7),
    **{f"the object {p!r}": to([2, 0, 0], p) for p in ("../../x", "1/pack", "00000001/../x", None)},
    **{f"the size {n}": to([1], n) for n in (FAR, -1, 1.5, True, 10**400)},
    **{f"a part at {n}": to([2, 0, 2], n) for n in (FAR, -1)},
    **{f"a part of {n} bytes": to([2, 0, 3], n) for n in (FAR, -1, 2**42)},
    "a part from the middle of nowhere": to([2, 0, 1], FAR),
    "a digest that is none": to([2, 0, 4], "no"),
    "a file twice": lambda listed: listed[1].append(listed[1][0]),
    "a file that is a folder": lambda listed: listed[1].append([f"{PATH}/x", 0, [], [], 0, ""]),
    "two parts in one place": lambda listed: first(listed)[2].append(first(listed)[2][0]),
    "a folder outside": lambda listed: listed[0].append("../x"),
    "no files": lambda listed: listed.pop(),
    "a list of nothing": lambda listed: listed[1].append([]),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_manifest_made_to_harm_is_refused_by_name(tmp_path: Path, name: str) -> None:
    kept_at(tmp_path, [20], SMALL)
    repository = tmp_path / "repository"
    rewritten(repository, HARMFUL[name])
    before = goldens.digest(tmp_path)

    for act in (
        lambda: restored(repository, 1, tmp_path / "restored"),
        lambda: rows_of(at(backing(repository), 1)),
        lambda: prune_points(backing(repository), [KeepRule(1, 0)]),
        lambda: take_point(tmp_path / "store", backing(repository)),
    ):
        with pytest.raises(CorruptStoreError, match=r"points/00000001 at byte 0"):
            act()
        assert goldens.digest(tmp_path) == before
    assert [p.points for p in check_points(Repository(backing(repository)))] == [(1,)]


ODD = [None, True, -1, 0, 7, 1.5, 2**31, 253_402_300_800_000, 2**63 - 1, 2**63, 10**400, "", "x"]
ODD += ["\x1b[2J\n", "a/../b", "0" * 32, "\ud800", [], [1], ["x"], [[]], {}, {"a": 1}]


def paths_in(value: Any, most: int = 3) -> Iterator[list[Any]]:
    """The places of a JSON value, of lists the first few."""
    found = value.items() if isinstance(value, dict) else enumerate(value[:most])
    for key, inner in found:
        yield [key]
        if isinstance(inner, dict | list):
            yield from ([key, *rest] for rest in paths_in(inner, most))


def resealed(path: Path, head: Any, lines: list[Any]) -> None:
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    rest = json.dumps(head).encode() + b"\n" + zlib.compress(text)
    path.write_bytes(b"mqlog-point 1 " + sha256(rest).hexdigest().encode() + b"\n" + rest)


def acts(root: Path) -> Iterator[Callable[[], object]]:
    """What reads a repository, prunes it, or adds to it."""
    place = backing(root / "repository")
    yield lambda: keep_views.history(Console(file=io.StringIO()), "x", heads_of(place))
    yield lambda: render.json_lines(map(keep_views.row_of_point, heads_of(place)), io.StringIO())
    yield lambda: [Repository(place).find(WantedPoint("time", ms)) for ms in (0, 2**62)]
    yield lambda: rows_of(at(place, 1))
    yield lambda: check_points(Repository(place))
    yield lambda: restored(root / "repository", 1, root / "restored")
    yield lambda: prune_points(place, [KeepRule(10**12, 3_600_000)], dry_run=True)
    yield lambda: take_point(root / "store", place)
    yield lambda: guard_once(root / "store", place, Budget(10**12))
    yield lambda: prune_named(place, [1])


def heads_of(place: LocalBacking) -> list[PointHead]:
    return [Repository(place).head(number) for number in Repository(place).numbers()]


@pytest.mark.soak
def test_any_field_of_a_manifest_may_say_anything(tmp_path: Path) -> None:
    """Its checksum is right: each act gives rows or a named error."""
    kept_at(tmp_path / "ready", [20], SMALL)
    _, head, body = (tmp_path / "ready/repository" / point_path(1)).read_bytes().split(b"\n", 2)
    lines = [json.loads(line) for line in zlib.decompress(body).splitlines()]
    whole = {"head": json.loads(head), "lines": lines}
    places = [path for path in paths_in(whole) if path != ["lines"]]
    tried = soak.sample([(place, value) for place in places for value in ODD], check=20, test=150)
    for number, (place, value) in enumerate(tried):
        root = tmp_path / f"{number}"
        shutil.copytree(tmp_path / "ready", root)
        changed = copy.deepcopy(whole)
        inner: Any = changed
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        manifest = root / "repository" / point_path(1)
        manifest.unlink()
        resealed(manifest, changed["head"], changed["lines"])
        for act in acts(root):
            with suppress(StoreError):
                act()
        shutil.rmtree(root)
    soak.tell(f"{len(tried)} changes of {len(places)} fields")


def test_a_list_of_files_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_at(tmp_path, [20], SMALL)
    monkeypatch.setattr("mqstore.files.points.manifest.MOST_MANIFEST_BYTES", 100)
    with pytest.raises(CorruptStoreError, match="more than 100 bytes"):
        rows_of(at(backing(tmp_path / "repository"), 1))


@pytest.mark.parametrize("bomb", ["[]", "{}"])
def test_a_list_of_very_many_empty_lists_is_refused_before_it_is_in_memory(
    tmp_path: Path, bomb: str
) -> None:
    kept_at(tmp_path, [20], SMALL)
    repository = tmp_path / "repository"
    rewritten(repository, to([2], [json.loads(bomb)] * 100_000))
    with pytest.raises(CorruptStoreError, match="made of empty lists"):
        rows_of(at(backing(repository), 1))
    # Nothing that mqlog writes is: a store of empty files with the shortest names.
    files = {name: PointFile(name, 0, ()) for name in (f"{n:x}" for n in range(5_000))}
    head = PointHead(1, 5, 6, "broker-a", "/data/store", 1, 1, 0, 1, 10, 0, 10)
    assert decode("x", encode(PointManifest(head, ("zz",), files))).files == files


def test_a_file_larger_than_its_objects_is_refused(tmp_path: Path) -> None:
    kept_at(tmp_path, [20], SMALL)
    repository = tmp_path / "repository"

    def grow_part(listed: list[Any]) -> None:
        row = first(listed)
        row[1] = 2**40
        row[2][-1][3] = 2**30

    rewritten(repository, grow_part)
    with pytest.raises(CorruptStoreError, match="the object ends before"):
        restored(repository, 1, tmp_path / "restored")
    assert not list(tmp_path.glob("restored*"))


@given(st.integers(0, 10**9), st.integers(1, 255))
def test_a_changed_manifest_is_never_believed(place: int, bits: int) -> None:
    parts = (PointPart("00000001/pack", 0, 0, 10, "0" * 32),)
    head = PointHead(1, 5, 6, "broker-a", "/data/store", 1, 1, 0, 1, 10, 0, 10)
    whole = encode(PointManifest(head, ("a",), {"a/b": PointFile("a/b", 20, parts)}))
    assert decode("x", whole).files["a/b"].parts == parts
    cut = place % len(whole)
    changed = bytearray(whole)
    changed[cut] ^= bits
    for bad in (whole[:cut], bytes(changed)):
        with pytest.raises(CorruptStoreError):
            decode("x", bad)


def test_a_manifest_of_another_point_and_a_mark_of_another_version_are_refused(
    tmp_path: Path,
) -> None:
    kept_at(tmp_path, [5, 9], SMALL)
    repository = tmp_path / "repository"
    (repository / point_path(2)).replace(repository / point_path(3))
    with pytest.raises(CorruptStoreError, match="it is the manifest of point 2"):
        rows_of(at(backing(repository), 3))
    (repository / "mqlog-repository").write_text("mqlog repository 2\n")
    with pytest.raises(NotARepositoryError, match="of another version, or damaged"):
        rows_of(at(backing(repository), 1))


MEMORY_BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "files": (12, lambda: b"".join(b'["%x",0,[],[],0,""]\n' % n for n in range(10_000))),
    "parts": (
        5,
        lambda: b"".join(
            b'["%d",%d,[%s],[],0,""]\n' % (file, 5_000, b",".join(_PART % n for n in range(5_000)))
            for file in range(2)
        ),
    ),
    "one line": (16, lambda: b'["a",0,[%s],[],0,""]\n' % b",".join([b'"ab"'] * 300_000)),
    "one line of numbers": (
        16,
        lambda: b'["a",0,[],[%s],0,""]\n' % b",".join([b"999"] * 300_000),
    ),
    "folders": (
        24,
        lambda: b"".join(
            b'["%s",0,[],[],0,""]\n' % b"/".join(b"%x" % (n * 16 + at) for at in range(14))
            for n in range(5_000)
        ),
    ),
}
_PART = b'["00000001/pack",0,%d,1,"00000000000000000000000000000000"]'


@pytest.mark.parametrize("kind", MEMORY_BOMBS)
def test_a_manifest_takes_no_more_memory_than_so_many_times_its_files(kind: str) -> None:
    """Files and folders are 2**20 at most, a line 8 MiB, parts what fits into 128 MiB."""
    times, make = MEMORY_BOMBS[kind]
    text = b"[]\n" + make()
    head = dict.fromkeys(PointHead.__slots__, 1)
    rest = json.dumps({**head, "broker_name": "b", "source": "s", "left_out": []}).encode()
    rest += b"\n" + zlib.compress(text)
    data = b"mqlog-point 1 " + sha256(rest).hexdigest().encode() + b"\n" + rest
    tracemalloc.start()
    try:
        with suppress(CorruptStoreError):
            decode("x", data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= times * len(text) + (6 << 20)  # It is unpacked a MiB at a time.


def test_a_manifest_of_more_files_or_a_longer_line_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = (PointPart("00000001/pack", 0, 0, 10, "0" * 32),)
    head = PointHead(1, 5, 6, "broker-a", "/data/store", 1, 1, 0, 1, 10, 0, 10)
    files = {path: PointFile(path, 20, parts) for path in ("a/b/c", "a/d/e")}
    manifest = PointManifest(head, (), files)
    whole = encode(manifest)
    for name, most, told in (
        ("MOST_FILES", 1, "too many files"),
        ("MOST_FILES", 2, "too many folders"),
        ("MOST_LINE_BYTES", 60, "a line of more than 60 bytes"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"mqstore.files.points.manifest.{name}", most)
            with pytest.raises(CorruptStoreError, match=told):
                decode("x", whole)


@pytest.mark.parametrize(
    ("name", "most", "told"),
    [
        ("MOST_FILES", 3, "more than 3 files and folders"),
        ("MOST_MANIFEST_BYTES", 2000, "Begin another repository"),
        ("MOST_LINE_BYTES", 50, "Begin another repository"),
        ("MOST_PATH_CHARS", 20, "no path that a store has"),
    ],
)
def test_a_point_whose_manifest_would_be_refused_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int, told: str
) -> None:
    laid = lay_out(tmp_path / "store", messages(40), SMALL)
    monkeypatch.setattr(f"mqstore.files.points.manifest.{name}", most)
    with pytest.raises(UnsupportedStoreError, match=told):
        take_point(laid.root, backing(tmp_path / "repository"))
    monkeypatch.undo()
    assert Repository(backing(tmp_path / "repository")).numbers() == []
    assert files(tmp_path / "repository") == {"mqlog-repository"}


@pytest.mark.parametrize("name", ["objects/00000002", "objects/00000009", "objects", "points"])
def test_nothing_is_removed_or_made_where_a_link_leads(tmp_path: Path, name: str) -> None:
    repository, elsewhere = tmp_path / "repository", tmp_path / "elsewhere"
    kept_at(tmp_path, [5, 40, 60], SMALL)
    elsewhere.mkdir()
    (elsewhere / "1").write_text("keep")
    if (repository / name).exists():
        (repository / name).rename(tmp_path / "moved")
    (repository / name).symlink_to(elsewhere)
    for act in (
        lambda: prune_points(backing(repository), [KeepRule(1, 0)]),
        lambda: take_point(tmp_path / "store", backing(repository)),
    ):
        with pytest.raises(UnsafePathError):
            act()
        assert [path.name for path in elsewhere.iterdir()] == ["1"]
    (repository / name).unlink()
    if (tmp_path / "moved").exists():
        (tmp_path / "moved").rename(repository / name)
    prune_points(backing(repository), [KeepRule(1, 0)])
    assert Repository(backing(repository)).numbers() == [3]
    assert files(repository) == needed(repository)


def test_an_object_that_is_no_plain_file_has_no_path_for_others(tmp_path: Path) -> None:
    kept_at(tmp_path, [40], SMALL)
    point, lost = (
        at(backing(tmp_path / "repository"), 1),
        tmp_path / "repository/objects/00000001/1",
    )
    path = next(
        f.path for f in point.files.manifest.files.values() if f.parts[0].name.endswith("/1")
    )
    assert point.local_path(path) == str(lost)
    lost.rename(tmp_path / "elsewhere")
    assert point.local_path(path) is None
    lost.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePathError):
        point.local_path(path)
    lost.unlink()
    os.mkfifo(lost)
    with pytest.raises(UnsafePathError):
        point.local_path(path)


def test_a_link_in_a_repository_is_not_followed(tmp_path: Path) -> None:
    kept_at(tmp_path, [40], SMALL)
    lost = tmp_path / "repository" / "objects" / "00000001" / "1"
    lost.rename(tmp_path / "elsewhere")
    lost.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="MQLOG_UNSAFE_PATH"):
        restored(tmp_path / "repository", 1, tmp_path / "restored")
