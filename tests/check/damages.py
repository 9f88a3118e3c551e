"""Damage to a laid-out store, each kind with the file and position where it lies."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

from mqstore.check import Finding, check
from support import oracle
from support.stores import Laid


def errors(root: Path) -> list[Finding]:
    return [finding for finding in check(root) if finding.severity == "error"]


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    data = path.read_bytes()
    write(path, position, bytes([data[position] ^ 0x55]))


def where(field: str) -> int:
    """Where that field of a record of IPv4 hosts starts."""
    return {"crc": 8, "queue_id": 12, "queue_offset": 20, "physical_offset": 28, "sys_flag": 36,
            "store": 56, "body_length": 84, "body": 88}[field]  # fmt: skip


Damage = Callable[[Laid], tuple[Path, int | None]]


def in_record(field: str, at: int) -> Damage:
    def damage(laid: Laid) -> tuple[Path, int | None]:
        path, position = laid.file_of(laid.messages[at])
        flip(path, position + where(field) + (7 if "offset" in field or field == "store" else 3))
        return path, position

    return damage


def in_unit(queue_offset: int, unit: tuple[int, int, int]) -> Damage:
    def damage(laid: Laid) -> tuple[Path, int | None]:
        path, position = laid.unit_of(("T", 0), queue_offset)
        write(path, position, struct.pack(">qiq", *unit))
        return path, position

    return damage


def cut(file: str, size: int) -> Damage:
    def damage(laid: Laid) -> tuple[Path, int | None]:
        os.truncate(laid.root / file, size)
        return laid.root / file, None

    return damage


def gone(file: str) -> Damage:
    def damage(laid: Laid) -> tuple[Path, int | None]:
        (laid.root / file).unlink()
        return (laid.root / file).parent, None

    return damage


def stray(file: str, data: bytes) -> Damage:
    def damage(laid: Laid) -> tuple[Path, int | None]:
        (laid.root / file).write_bytes(data)
        return laid.root / file, None

    return damage


def no_blank(laid: Laid) -> tuple[Path, int | None]:
    (last,) = [m for m in laid.messages if m.physical_offset < 4096][-1:]
    path, position = laid.file_of(last)
    write(path, position + last.size, bytes(8))
    return path, position + last.size


def topic_unlisted(laid: Laid) -> tuple[Path, int | None]:
    path = laid.root / "config/topics.json"
    path.write_text(json.dumps({"dataVersion": {"counter": 1}, "topicConfigTable": {}}))
    return path, None


def too_few_queues(laid: Laid) -> tuple[Path, int | None]:
    path = laid.root / "config/topics.json"
    table = {"T": {"topicName": "T", "readQueueNums": 0, "writeQueueNums": 1, "perm": 6}}
    path.write_text(json.dumps({"dataVersion": {"counter": 1}, "topicConfigTable": table}))
    return path, None


def in_index(position: int, data: bytes, file: int = 0) -> Damage:
    def damage(laid: Laid) -> tuple[Path, int | None]:
        path = sorted((laid.root / "index").iterdir())[file]
        write(path, position, data)
        return path, None

    return damage


def filler_in_front(laid: Laid) -> tuple[Path, int | None]:
    path, _ = laid.unit_of(("T", 0), 0)
    write(path, 0, struct.pack(">qiq", *oracle.FILLER))
    return path, 0


def misnamed(laid: Laid) -> tuple[Path, int | None]:
    path, _ = laid.unit_of(("T", 0), 39)
    path.rename(path.with_name(f"{int(path.name) + 20:020d}"))
    return path.with_name(f"{int(path.name) + 20:020d}"), None


def short_index(laid: Laid) -> tuple[Path, int | None]:
    path = sorted((laid.root / "index").iterdir())[-1]
    os.truncate(path, 100)
    return path, None


def index_directory(laid: Laid) -> tuple[Path, int | None]:
    path = laid.root / "index" / "20261121030000999"
    path.mkdir()
    return path, None


def checkpoint_ahead(laid: Laid) -> tuple[Path, int | None]:
    path = laid.root / "checkpoint"
    write(path, 40, struct.pack(">q", laid.high))
    return path, None


FIRST = "0" * 20
DAMAGES: dict[str, Damage] = {
    "a body that is not its CRC's": in_record("body", 5),
    "a CRC that is not its body's": in_record("crc", 5),
    "a body length that does not add up": in_record("body_length", 5),
    "a queue offset out of order": in_record("queue_offset", 5),
    "a record that says it lies elsewhere": in_record("physical_offset", 5),
    "a record of another queue": in_record("queue_id", 5),
    "no blank record at a file's end": no_blank,
    "a unit that points elsewhere": in_unit(5, (1, 200, 0)),
    "a unit with another size": in_unit(5, (0, 1, 0)),
    "a unit with another tags code": in_unit(0, (0, 0, 77)),
    "a unit in the middle that is empty": in_unit(5, (0, 0, 0)),
    "a unit after the last": in_unit(40, (0, 200, 0)),
    "a short CommitLog file": cut(f"commitlog/{4096:020d}", 4000),
    "a short ConsumeQueue file": cut(f"consumequeue/T/0/{FIRST}", 300),
    "a missing CommitLog file": gone(f"commitlog/{4096:020d}"),
    "a missing ConsumeQueue file": gone(f"consumequeue/T/0/{320:020d}"),
    "a file of zeros behind a queue": stray(f"consumequeue/T/0/{960:020d}", bytes(320)),
    "a stray file in commitlog": stray("commitlog/notes.txt", b"hello"),
    "a stray file in a queue": stray("consumequeue/T/0/.tmp", b"hello"),
    "an index begin time that is another": in_index(0, struct.pack(">q", 1_600_000_000_000)),
    "an index end time that is another": in_index(8, struct.pack(">q", 1_600_000_000_000)),
    "an index end place that is another": in_index(24, struct.pack(">q", 1)),
    "a slot that points to an old unit": in_index(40, bytes(28)),
    "index units out of order": in_index(40 + 28 + 20 * 9 + 4, struct.pack(">q", 1)),
    "a short IndexFile": short_index,
    "a directory named like an IndexFile": index_directory,
    "filler where a log begins at 0": filler_in_front,
    "a ConsumeQueue file with another's name": misnamed,
    "a checkpoint behind the log's end": checkpoint_ahead,
    "an interlock nobody needs": stray(f"commitlog/{'9' * 20}.mqlog-commit-in-progress", b"!"),
    "a topics.json that cannot be parsed": stray("config/topics.json", b"{"),
}
