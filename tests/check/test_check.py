"""The checker: silent about whole stores, and about each kind of damage it names the place."""

import os
import shutil
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from check.damages import (
    DAMAGES,
    FIRST,
    errors,
    flip,
    where,
    write,
)
from mqstore.check import check
from mqstore.codec.compression import MAX_DECOMPRESSED_BYTES
from mqstore.codec.schema import PROFILES
from mqstore.errors import CorruptStoreError, NotAStoreError, StoreNotFoundError
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from support import goldens, oracle, strategies
from support.oracle import Message
from support.stores import Laid, Layout, lay_out


def test_a_golden_store_is_whole(golden: tuple[str, Path]) -> None:
    assert errors(golden[1]) == []


@given(
    batch=strategies.batches(max_size=40, topics=strategies.TOPICS),
    layout=strategies.layouts(),
    expired=st.integers(0, 2),
)
def test_any_store_a_broker_leaves_is_whole(
    tmp_path_factory: pytest.TempPathFactory, batch: list[Message], layout: Layout, expired: int
) -> None:
    plain = [replace(m, store_timestamp_ms=m.store_timestamp_ms + 1, sys_flag=m.sys_flag & ~0x80)
             for m in batch]  # fmt: skip
    full = bytes(layout.commit_log_bytes - 200)  # one file each
    filling = [Message(topic="Fill", body=full) for _ in range(expired + 1)]
    root = tmp_path_factory.mktemp("store") / "store"
    lay_out(root, [*plain, *filling], replace(layout, expired_files=expired))
    assert errors(root) == []


def test_checking_changes_nothing(tmp_path: Path) -> None:
    root = goldens.unpack("5.5.0", tmp_path)
    before = goldens.digest(root)
    check(root)
    assert goldens.digest(root) == before


@pytest.mark.parametrize("what", DAMAGES)
def test_each_damage_is_found_where_it_is(tmp_path: Path, what: str) -> None:
    messages = [
        Message(body=f"body {i}".encode() * 40, properties=b"TAGS\x01A\x02KEYS\x01k")
        for i in range(40)
    ]
    laid = lay_out(tmp_path / "store", messages)
    if what == "a topics.json that cannot be parsed":
        (laid.root / "config/topics.json.bak").unlink()
    path, position = DAMAGES[what](laid)
    found = errors(laid.root)
    files = [finding.file for finding in found]
    near = str(path.relative_to(laid.root))
    assert any(file.startswith(near) or near.startswith(file) for file in files if file), found
    if position is not None and what != "a record of another queue":
        assert any(finding.position in (position, None) or finding.file != near
                   for finding in found)  # fmt: skip


def test_an_open_store_is_a_finding(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()], Layout(abort=True))
    assert any("abort" in finding.file for finding in check(laid.root))


def test_a_clock_that_goes_back_is_a_finding(tmp_path: Path) -> None:
    laid = lay_out(
        tmp_path / "store", [Message(store_timestamp_ms=10_000_000 + i) for i in range(9)]
    )
    path, position = laid.file_of(laid.messages[6])
    write(path, position + where("store"), struct.pack(">q", 5))
    assert any("timestamp" in finding.problem.lower() for finding in check(laid.root))


@given(data=st.data())
def test_any_changed_byte_is_survived(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    laid = lay_out(tmp_path_factory.mktemp("hostile") / "store", [Message(body=b"x" * 50)] * 30)
    paths = sorted(p for p in laid.root.rglob("*") if p.is_file())
    for _ in range(data.draw(st.integers(1, 8))):
        path = data.draw(st.sampled_from(paths))
        write(
            path,
            data.draw(st.integers(0, path.stat().st_size - 1)),
            bytes([data.draw(st.integers(0, 255))]),
        )
    check(laid.root)


@pytest.mark.parametrize("sys_flag", [0, oracle.COMPRESSED | oracle.ZLIB, oracle.LZ4, 0xC0])
def test_of_a_store_that_is_whole_every_row_can_be_read(tmp_path: Path, sys_flag: int) -> None:
    """No checksum covers sysFlag: each of its bits is flipped in turn, of a plain and a packed."""
    body = zlib.compress(b"body " * 20) if sys_flag & oracle.COMPRESSED else b"a plain body"
    sent = [Message(body=b"first"), Message(body=body, sys_flag=sys_flag), Message(body=b"last")]
    laid = lay_out(tmp_path / "store", sent)
    path, position = laid.file_of(laid.messages[1])
    told = 0
    for bit in range(32):
        write(path, position + where("sys_flag"), struct.pack(">I", sys_flag ^ 1 << bit))
        packed = [f for f in errors(laid.root) if "decompressed" in f.problem]
        told += len(packed)
        assert {f.position for f in packed} <= {position}
        if packed:
            with pytest.raises(CorruptStoreError, match=r"body is broken|unknown compression"):
                read_all(laid.root)
        elif not errors(laid.root):
            read_all(laid.root)
    assert told == (3 if sys_flag & oracle.COMPRESSED else 1)


def read_all(root: Path) -> None:
    for _ in scan(slices_of(take(root)), ScanSettings(columns=PROFILES["standard"])):
        pass


def test_a_body_that_is_longer_than_a_read_takes_is_no_damage(tmp_path: Path) -> None:
    long = zlib.compress(bytes(MAX_DECOMPRESSED_BYTES + 1))
    sent = [Message(body=long, sys_flag=oracle.COMPRESSED | oracle.ZLIB)]
    laid = lay_out(tmp_path / "store", sent, Layout(commit_log_bytes=1 << 17))
    assert check(laid.root) == []


def test_what_is_no_store_is_not_checked(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        check(tmp_path)
    with pytest.raises(StoreNotFoundError):
        check(tmp_path / "nowhere")


def test_the_findings_of_a_ruined_store_are_bounded(tmp_path: Path) -> None:
    messages = [Message(body=b"x") for _ in range(1500)]
    laid = lay_out(tmp_path / "store", messages, Layout(index=False))
    for message in laid.messages:
        path, position = laid.file_of(message)
        flip(path, position + where("body"))
    found = check(laid.root)
    assert len(found) == 1001
    assert found[-1].problem == "and 500 more of this severity"


def three_files(tmp_path: Path) -> Laid:
    return lay_out(tmp_path / "store", [Message(body=bytes(400)) for _ in range(20)])


def test_findings_name_files_relative_to_the_root(tmp_path: Path) -> None:
    """Also where the queues are gone, and with them what else tells the root."""
    laid = three_files(tmp_path)
    shutil.rmtree(laid.root / "consumequeue")
    for number in (0, 4096):
        os.truncate(laid.root / "commitlog" / f"{number:020d}", 0)
    found = check(laid.root)
    assert "the queue has no ConsumeQueue" in {f.problem for f in found}
    assert {f.file for f in found if "commitlog" in f.file} == {
        f"commitlog/{number:020d}" for number in (0, 4096, 8192)
    }


def test_findings_in_another_folder_of_the_log_name_it(tmp_path: Path) -> None:
    laid, other = three_files(tmp_path), tmp_path / "other"
    other.mkdir()
    (laid.root / "commitlog" / f"{4096:020d}").rename(other / f"{4096:020d}")
    (other / "notes.txt").write_text("hello")
    (laid.root / "consumequeue/T/0" / FIRST).unlink()
    found = check(laid.root, (str(laid.root / "commitlog"), str(other)))
    assert str(other / "notes.txt") in {f.file for f in found}
    told = {f.file for f in found if f.problem == "the record has no unit"}
    assert told == {f"commitlog/{FIRST}", str(other / f"{4096:020d}")}


def test_an_empty_file_that_is_not_the_last_keeps_every_broker_from_starting(
    tmp_path: Path,
) -> None:
    """MappedFileQueue#doLoad passes over the last one only, and over none before 5.1.3."""
    laid = three_files(tmp_path)
    files = [f"commitlog/{number:020d}" for number in (4096, 12288)]
    files += [f"consumequeue/T/0/{number:020d}" for number in (0, 640)]
    for file in files:
        (laid.root / file).write_bytes(b"")
    told = {f.file: f.problem for f in errors(laid.root) if f.problem.startswith("an empty")}
    middle = "an empty file, and not the last one: brokers do not start"
    last = "an empty file, the last one: brokers before 5.1.3 do not start"
    assert told == dict(zip(files, (middle, last, middle, last), strict=True))


def test_an_index_file_without_a_byte_is_a_finding(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(properties=b"KEYS\x01k")])
    (laid.root / "index" / "20261121030000999").write_bytes(b"")
    (found,) = check(laid.root)
    assert (found.severity, found.file) == ("warning", "index/20261121030000999")


def test_a_name_cannot_colour_the_reader_s_screen(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    (laid.root / "commitlog" / "\x1b[31mred\n").write_bytes(b"!")
    (found,) = errors(laid.root)
    assert found.file == "commitlog/\\x1b[31mred\\n"
