"""Rows that were messages before: what they keep of what they were, and what is made anew."""

import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mqstore.check import check
from mqstore.codec.schema import PROFILES
from mqstore.errors import InvalidMessageError, InvalidSchemaError
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from support.oracle import Message, split_properties
from support.writing import SMALL, append, held, rows

MAP = pa.map_(pa.string(), pa.string())
READ = [("UNIQ_KEY", "OLD"), ("WAIT", "false"), ("a", "b")]
OLD = dict(READ)


def properties_of(root: Path) -> list[dict[str, str]]:
    return [split_properties(m.properties) for m in held(root)]


def was_read(*maps: list[tuple[str, str]] | None) -> pa.RecordBatch:
    """Return rows with these properties and a column that only a read has."""
    return rows(len(maps), brokerName="b", properties=pa.array(list(maps), MAP))


@pytest.mark.parametrize(
    "columns",
    [{"brokerName": "b"}, {"queueOffset": 7}, {"brokerName": "b", "properties": pa.nulls(1)}],
    ids=" ".join,
)
@pytest.mark.parametrize("settings", [{}, {"uniq_key": "random"}], ids=str)
def test_a_column_that_is_passed_over_takes_nothing_from_a_message(
    tmp_path: Path, columns: dict[str, Any], settings: dict[str, Any]
) -> None:
    append(tmp_path / "s", rows(1, **columns), **SMALL, **settings)
    (found,) = properties_of(tmp_path / "s")
    assert len(found.pop("UNIQ_KEY")) == 32
    assert found == {"WAIT": "true"}


def test_properties_that_were_read_are_all_there_are(tmp_path: Path) -> None:
    append(tmp_path / "s", was_read(READ, [("a", "b")], []), **SMALL, partitioner="single")
    assert properties_of(tmp_path / "s") == [OLD, {"a": "b"}, {}]


@pytest.mark.parametrize("kind", ["deterministic", "random", "none"])
def test_a_kind_of_ids_that_is_asked_for_beats_those_that_were_read(
    tmp_path: Path, kind: str
) -> None:
    batch = was_read(READ, [("a", "b")])
    append(tmp_path / "s", batch, **SMALL, partitioner="single", uniq_key=kind)
    found = properties_of(tmp_path / "s")
    ids = [p.pop("UNIQ_KEY", "") for p in found]
    assert found == [{"WAIT": "false", "a": "b"}, {"a": "b"}]
    assert [len(i) for i in ids] == ([0, 0] if kind == "none" else [32, 32])
    assert kind == "none" or ids[0] != ids[1]


def test_rows_without_a_map_among_rows_that_were_read_get_what_a_producer_adds(
    tmp_path: Path,
) -> None:
    given = {"partitioner": "single", "broker_cluster_name": "C"}
    append(tmp_path / "s", was_read(READ, None, []), **SMALL, **given)
    first, made, last = properties_of(tmp_path / "s")
    assert (first, last) == (OLD, {})
    assert len(made.pop("UNIQ_KEY")) == 32
    assert made == {"WAIT": "true", "CLUSTER": "C"}


# --- bodies that are compressed already ---------------------------------------------------------


PLAIN = b"abc" * 700


def copied(source: Path, target: Path, **settings: Any) -> list[Message]:
    """Copy all of T to a new store, with every column; return the messages."""
    columns = settings.pop("columns", PROFILES["full"])
    decompress = settings.pop("decompress", True)
    batches = list(
        scan(slices_of(take(source)), ScanSettings(columns=columns, decompress=decompress))
    )
    append(target, *batches, **SMALL, queue_nums=1, **settings)
    return held(target)


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
@pytest.mark.parametrize("settings", [{}, {"compression": "zstd", "compress_over": 1}], ids=str)
def test_bodies_that_were_not_decompressed_stay_as_they_were(
    tmp_path: Path, codec: str, settings: dict[str, Any]
) -> None:
    batch = rows(2, body=[PLAIN, b"x"])
    append(tmp_path / "s", batch, **SMALL, queue_nums=1, compression=codec, compress_over=100)
    before = held(tmp_path / "s")
    after = copied(tmp_path / "s", tmp_path / "raw", decompress=False, **settings)
    assert [(m.body, m.sys_flag) for m in after] == [(m.body, m.sys_flag) for m in before]
    assert check(tmp_path / "raw") == []


@pytest.mark.parametrize("body", [PLAIN, zlib.compress(bytes(10**6))])
@pytest.mark.parametrize("left_out", [set(), {"bodyCRC"}, {"sysFlag"}], ids=str)
def test_bodies_that_were_decompressed_are_plain_whatever_sys_flag_says(
    tmp_path: Path, body: bytes, left_out: set[str]
) -> None:
    """A body may itself look compressed: then it takes bodyCRC to tell."""
    append(tmp_path / "s", rows(1, body=[body]), **SMALL, queue_nums=1, compression="zlib",
           compress_over=1)  # fmt: skip
    assert held(tmp_path / "s")[0].sys_flag == 0x301
    columns = tuple(name for name in PROFILES["full"] if name not in left_out)
    if body != PLAIN and "bodyCRC" in left_out:
        with pytest.raises(InvalidMessageError, match="may be so still: add the column bodyCRC"):
            copied(tmp_path / "s", tmp_path / "copy", columns=columns)
        return
    (found,) = copied(tmp_path / "s", tmp_path / "copy", columns=columns)
    assert (found.body, found.sys_flag) == (body, 0)


def crc_of(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF


@pytest.mark.parametrize("flag", [0x001, 0x101, 0x201, 0x301, 0x401])
def test_a_body_that_no_consumer_could_open_is_refused(tmp_path: Path, flag: int) -> None:
    batch = rows(2, body=b"plain", sysFlag=[0, flag], bodyCRC=crc_of(b"plain"))
    with pytest.raises(InvalidMessageError, match=r"row 1, .*body is compressed, and it does not"):
        append(tmp_path / "s", batch, **SMALL)
    done = append(tmp_path / "s", batch, **SMALL, on_invalid="skip")
    assert (done.messages, done.skipped) == (1, 1)


def test_only_compression_is_taken_from_sys_flag(tmp_path: Path) -> None:
    packed = zlib.compress(PLAIN)
    flags = [0x30 | 0xC | 0x2 | 0x301, 0x30 | 0xC, None]
    columns = {"sysFlag": flags, "bodyCRC": crc_of(packed), "body": packed}
    append(tmp_path / "s", rows(3, **columns), **SMALL, partitioner="single")
    assert [m.sys_flag for m in held(tmp_path / "s")] == [0x301, 0, 0]


def test_a_sys_flag_that_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSchemaError, match=r"column sysFlag.*an integer is needed"):
        append(tmp_path / "s", rows(1, sysFlag="0"), **SMALL)
