"""The judge of stores that were written: every rule of a writer's contract, by the oracle alone.

It knows nothing of mqstore, so it may judge mqstore.check as well. A rule broken is an
AssertionError. The rules are those that make RocketMQ 4.9.7 to 5.5.0 serve every message:
DefaultMessageStore#load, CommitLog#recoverNormally, ConsumeQueue#recover, IndexService#load.
"""

import json
import re
import struct
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support import oracle
from support.oracle import Message
from support.stores import UNIT_BYTES, Queue, is_blank, is_consumable, stored

BROKERS_OWN = (oracle.SCHEDULE_TOPIC, "RMQ_SYS_")


def assert_contract(root: Path, *, index: tuple[int, int] | None = None) -> list[Message]:
    """Return the records of a store that keeps every rule, in log order.

    `index` is (maxHashSlotNum, maxIndexNum) of a store whose IndexFiles must be complete.
    """
    assert not (root / "abort").exists()
    messages = assert_commit_log(root)
    assert_consume_queues(root, messages)
    assert_topics(root, messages)
    if index:
        files = oracle.index_files(messages, slots=index[0], units=index[1], tags=True)
        paths = sorted((root / "index").iterdir())
        assert all(re.fullmatch(r"\d{17}", path.name) for path in paths)
        assert [path.read_bytes() for path in paths] == [file.bytes() for file in files]
    if (root / "checkpoint").exists():
        assert_checkpoint(root, messages)
    return messages


def assert_commit_log(root: Path) -> list[Message]:
    """Files of one size, in a row, each but the last closed by a blank; records dense in them."""
    files = list(stored(root))
    assert len({len(data) for _, data in files}) <= 1, "all files of one size"
    found, ends = walked(files)
    for (_, data), end in zip(files[:-1], ends, strict=False):
        assert is_blank(data[end:]), "a file that is not the last ends with a blank record"
    for (_, data), end in zip(files[-1:], ends[-1:], strict=True):
        assert not any(data[end:]), "nothing but zeros after the end"
    assert all(m.store_timestamp_ms for m in found), "a store timestamp of 0 never matches"
    return found


def walked(files: Sequence[tuple[int, bytes]]) -> tuple[list[Message], list[int]]:
    """The records of CommitLog files, each where it says that it lies, and where each file ends."""
    found: list[Message] = []
    ends = []
    for number, (start, data) in enumerate(files):
        assert start == files[0][0] + number * len(data), "no gap between files"
        end = 0
        for position, message in oracle.walk(data):
            assert message.physical_offset == start + position
            assert message.body_crc is None, "the CRC is that of the body"
            assert message.size + 8 <= len(data) - position, "room for a blank is left"
            end = position + message.size
            found.append(message)
        ends.append(end)
    times = [message.store_timestamp_ms for message in found]
    assert times == sorted(times), "the store's clock does not go back"
    return found, ends


def assert_consume_queues(root: Path, messages: list[Message]) -> None:
    """Every queue complete: unit k is message k's; files full-size, none of them all zero."""
    low = min((start for start, _ in stored(root)), default=0)
    queues: dict[Queue, list[Message]] = defaultdict(list)
    for message in filter(is_consumable, messages):
        queues[message.topic, message.queue_id].append(message)
    sizes = set()
    on_disk = {(p.parent.name, int(p.name)): p for p in (root / "consumequeue").glob("*/*")}
    assert set(queues) <= set(on_disk), "no queue is missing"
    for queue, folder in on_disk.items():
        of_queue = queues[queue]
        numbers = [message.queue_offset for message in of_queue]
        first = numbers[0] if numbers else 0
        assert numbers == list(range(first, first + len(numbers))), "queue offsets are dense"
        paths = sorted(folder.iterdir())
        data = b"".join(path.read_bytes() for path in paths)
        base = int(paths[0].name) // UNIT_BYTES
        for number, path in enumerate(paths):
            size = path.stat().st_size
            sizes.add(size)
            assert int(path.name) == int(paths[0].name) + number * size
            assert any(path.read_bytes()), "an all-zero file is a phantom message"
        skipped = (first - base) * UNIT_BYTES
        units = b"".join(map(oracle.unit, of_queue))
        assert data[skipped:] == units.ljust(len(data) - skipped, b"\0")
        for phy, size, _ in struct.iter_unpack(">qiq", data[:skipped]):
            assert (phy, size) == (0, 2**31 - 1) or phy < low, "filler, or expired"
    assert len(sizes) <= 1, "all files of one size"


def assert_topics(root: Path, messages: list[Message]) -> None:
    """Every topic can be pulled: it is in topics.json, by name, with queues enough."""
    text = (root / "config" / "topics.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(re.sub(r"([{,]\s*)(-?\d+)\s*:", r'\1"\2":', text))
    assert table["dataVersion"] is not None
    for message in filter(is_consumable, messages):
        if message.topic.startswith(BROKERS_OWN):
            continue  # a broker adds these when it starts
        entry = table["topicConfigTable"][message.topic]
        assert entry["topicName"] == message.topic
        assert entry["readQueueNums"] > message.queue_id
        assert entry["perm"] & 4


def assert_checkpoint(root: Path, messages: list[Message]) -> None:
    """The clock of a checkpoint never runs before the last record."""
    page = (root / "checkpoint").read_bytes()
    assert len(page) == 4096
    physic, logics, index, *_ = struct.unpack_from(">qqqqqq", page)
    last = messages[-1].store_timestamp_ms if messages else 0
    assert max(physic, logics, index) <= last
