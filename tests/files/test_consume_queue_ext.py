"""The tags codes that a broker with enableConsumeQueueExt keeps beside its ConsumeQueue."""

import struct
from pathlib import Path

import numpy as np
import pytest

from mqstore.codec.hashing import tags_codes
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.queue.consume_queue import ConsumeQueue
from mqstore.files.queue.extension import ConsumeQueueExt
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from support import oracle
from support.oracle import LEVELS_S, SCHEDULE_TOPIC, Message
from support.stores import Laid, Layout, lay_out

ADDRESS = -(2**63)
FILE_BYTES = 200
TAGS = ("TagA", "TagB", "标签C", "", "Aa", "BB")


def extend(laid: Laid) -> None:
    """Move every unit's tags code into extension files, as ConsumeQueueExt#put does.

    Unit k has a filter of k % 3 * 8 bytes; -1 fills what is left of a file.
    """
    for (topic, queue_id), messages in laid.queues.items():
        folder = laid.root / "consumequeue_ext" / topic / str(queue_id)
        folder.mkdir(parents=True)
        files: list[bytes] = [b""]
        for k, m in enumerate(messages):
            bits = bytes([0xA5]) * (k % 3 * 8)
            entry = struct.pack(
                ">hqqh", 20 + len(bits), oracle.tags_code(m), m.store_timestamp_ms, len(bits)
            )
            if len(files[-1]) + len(entry + bits) + 4 > FILE_BYTES:
                files.append(b"")
            address = ADDRESS + (len(files) - 1) * FILE_BYTES + len(files[-1])
            files[-1] += entry + bits
            path, position = laid.unit_of((topic, queue_id), m.queue_offset)
            with path.open("r+b") as file:
                file.seek(position)
                file.write(struct.pack(">qiq", m.physical_offset, m.size, address))
        for number, data in enumerate(files):
            filled = (data + struct.pack(">h", -1)).ljust(FILE_BYTES, b"\0")
            (folder / f"{number * FILE_BYTES:020d}").write_bytes(filled)


def tagged(topic: str = "T", queue_id: int = 0, count: int = 60) -> list[Message]:
    tags = [TAGS[k % len(TAGS)] for k in range(count)]
    return [
        Message(topic=topic, queue_id=queue_id, properties=f"TAGS\x01{tag}\x02".encode())
        if tag
        else Message(topic=topic, queue_id=queue_id)
        for tag in tags
    ]


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    made = lay_out(tmp_path / "store", tagged() + tagged(queue_id=1, count=7))
    extend(made)
    return made


def test_units_have_the_tags_code_of_the_extension(laid: Laid) -> None:
    for (topic, queue_id), messages in laid.queues.items():
        units = ConsumeQueue(StoreDir.at(laid.root), topic, queue_id).read(0, len(messages))
        assert units["tags_code"].tolist() == [oracle.tags_code(m) for m in messages]
        assert units["physical_offset"].tolist() == [m.physical_offset for m in messages]


@pytest.mark.parametrize("start", [0, 1, 31, 59])
def test_units_are_found_from_anywhere(laid: Laid, start: int) -> None:
    messages = laid.queues["T", 0][start:]
    units = ConsumeQueue(StoreDir.at(laid.root), "T", 0).read(start, 60)
    assert units["tags_code"].tolist() == [oracle.tags_code(m) for m in messages]


def test_rows_of_such_a_store_are_those_of_a_plain_one(laid: Laid) -> None:
    snapshot = take(laid.root)
    pieces = slices_of(snapshot)
    (batch,) = scan(pieces, ScanSettings(columns=("tags", "tagsCode")))
    assert batch.num_rows == 67
    assert batch["tagsCode"].to_pylist() == tags_codes(batch["tags"]).tolist()


def test_a_delayed_message_has_its_delivery_time(tmp_path: Path) -> None:
    properties = b"DELAY\x013\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02"
    waiting = Message(topic=SCHEDULE_TOPIC, queue_id=2, properties=properties)
    made = lay_out(tmp_path / "store", [waiting])
    extend(made)
    unit = ConsumeQueue(StoreDir.at(made.root), SCHEDULE_TOPIC, 2).read(0, 1)[0]
    (stored,) = made.messages
    assert int(unit["tags_code"]) == stored.store_timestamp_ms + 1000 * LEVELS_S[2]


def test_an_address_without_a_unit_stays_an_address(laid: Laid) -> None:
    extension = ConsumeQueueExt(StoreDir.at(laid.root), "T", 0)
    first = oracle.tags_code(laid.queues["T", 0][0])
    asked = [ADDRESS + 2**40, ADDRESS, ADDRESS + FILE_BYTES - 3, -(2**31) - 1, ADDRESS + 10_000]
    told = extension.tags_codes(np.array(asked, np.int64)).tolist()
    assert told == [asked[0], first, *asked[2:]]


@pytest.mark.parametrize("lost", ["a file", "all files", "the folder"])
def test_what_is_lost_of_an_extension_leaves_addresses(laid: Laid, lost: str) -> None:
    folder = laid.root / "consumequeue_ext" / "T" / "0"
    for path in sorted(folder.iterdir())[: 1 if lost == "a file" else None]:
        path.unlink()
    if lost == "the folder":
        folder.rmdir()
    messages = laid.queues["T", 0]
    codes = ConsumeQueue(StoreDir.at(laid.root), "T", 0).read(0, 60)["tags_code"].tolist()
    found = [code for code in codes if code > ADDRESS + 2**40]
    assert found == [oracle.tags_code(m) for m in messages[len(messages) - len(found) :]]
    assert bool(found) == (lost == "a file")


def test_a_store_without_an_extension_is_not_asked_for_one(tmp_path: Path) -> None:
    made = lay_out(tmp_path / "store", tagged(), Layout())
    codes = ConsumeQueue(StoreDir.at(made.root), "T", 0).read(0, 60)["tags_code"].tolist()
    assert codes == [oracle.tags_code(m) for m in made.messages]
