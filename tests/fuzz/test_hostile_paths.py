"""Links, special files and hostile names in a store lead no read elsewhere."""

import os
import struct
from pathlib import Path

import pytest

from fuzz.hostile import (
    SECRET,
    everything,
    outcome,
    read,
    some,
    whole,
    write,
)
from fuzz.in_time import in_time  # noqa: F401 - a fixture
from mqstore.errors import CorruptStoreError, StoreError, UnsafePathError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig
from support import oracle
from support.opened import topics_of
from support.oracle import Message
from support.stores import lay_out, write_json

pytestmark = pytest.mark.usefixtures("in_time")

# --- paths that lead elsewhere ----------------------------------------------------------------

PLACES = [
    "commitlog",
    "commitlog/00000000000000000000",
    "commitlog/00000000000000004096",
    "consumequeue",
    "consumequeue/T",
    "consumequeue/T/0",
    "consumequeue/T/0/00000000000000000000",
    "index",
    "index/20261121030000000",
    "config",
    "config/topics.json",
    "config/consumerOffset.json",
]


@pytest.mark.parametrize("place", PLACES)
def test_a_symbolic_link_anywhere_is_refused_even_to_the_same_bytes(
    tmp_path: Path, place: str
) -> None:
    laid = whole(tmp_path, count=40)
    outside = tmp_path / "outside"
    (laid.root / place).rename(outside)
    (laid.root / place).symlink_to(outside)
    assert isinstance(outcome(lambda: everything(laid.root)), UnsafePathError)


@pytest.mark.parametrize("place", [p for p in PLACES if "." in p or "/0000" in p or "/2026" in p])
@pytest.mark.parametrize("kind", ["fifo", "directory", "socket"])
def test_what_is_no_plain_file_never_blocks(tmp_path: Path, place: str, kind: str) -> None:
    laid = whole(tmp_path, count=40)
    path = laid.root / place
    path.unlink()
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        os.mknod(path, 0o600 | 0o140000)
    found = outcome(lambda: everything(laid.root))
    # A directory named like an index file is the broker's to skip; all else is an error.
    assert isinstance(found, StoreError) or (kind == "directory" and "index" in place)


@pytest.mark.parametrize("name", ["..", "../outside", "a/b", ".", "/etc"])
def test_names_of_topics_never_become_paths(tmp_path: Path, name: str) -> None:
    laid = whole(tmp_path)
    (tmp_path / "outside").write_bytes(SECRET)
    write_json(laid.root / "config/topics.json", {"topicConfigTable": {name: {"topicName": name}}})
    offsets = {"offsetTable": {f"{name}@g": {0: 1}}}
    write_json(laid.root / "config/consumerOffset.json", offsets)
    everything(laid.root)
    assert topics_of(laid.root) == {"T"}
    assert BrokerConfig(StoreDir.at(laid.root)).consumer_offsets() == {}


def test_a_record_of_another_topic_is_not_served_as_this_one(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message(topic="Mine"), Message(topic="Evil")])
    path, position = laid.unit_of(("Mine", 0), 0)
    write(path, position, oracle.unit(laid.messages[1]))
    assert isinstance(outcome(lambda: read(laid.root)), CorruptStoreError)


def test_an_error_shows_no_control_characters_of_a_hostile_store(tmp_path: Path) -> None:
    evil = tmp_path / "a\x1b[31mred\x1b[0m\nline"
    laid = lay_out(evil, some())
    path, position = laid.unit_of(("T", 0), 3)
    write(path, position, struct.pack(">qiq", 2**63 - 1, 200, 0))
    found = outcome(lambda: read(laid.root))
    assert isinstance(found, CorruptStoreError)
    assert str(found).isprintable()


@pytest.mark.parametrize("text", [b"\xff\xfe", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\0"])
def test_text_that_is_no_text_becomes_text(tmp_path: Path, text: bytes) -> None:
    hostile = Message(properties=b"KEYS\x01" + text + b"\x02" + text + b"\x01v\x02TAGS\x01" + text)
    laid = lay_out(tmp_path / "store", [hostile])
    (row,) = read(laid.root)
    expected = text.decode(errors="replace")
    assert (row["keys"], row["tags"]) == (expected, expected)
    assert row["properties"][expected] == "v"
