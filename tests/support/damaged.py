"""Damage to a laid-out store, chosen by a seed, and the records that are whole in spite of it.

What is whole is told by the bytes alone: a record that was laid out is whole if its bytes lie, all
of them, in some file of the damaged log.
"""

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from support.oracle import Message, encode
from support.stores import Laid

MIN_HOLE = 64
"""Holes are at least so long: fewer bytes may fall between all checksums."""
EDGE = 16
"""So many bytes changed at a record's end may look like properties."""


@dataclass(slots=True)
class Damaged:
    """What was done, in words, and the messages whose bytes are still there."""

    done: list[str] = field(default_factory=list)
    whole: list[Message] = field(default_factory=list)
    unsure: list[Message] = field(default_factory=list)
    """Changed in a few last bytes only, which no checksum covers."""


def messages_of_six_queues(seed: int, count: int) -> list[Message]:
    """Messages of three topics with two queues each, chosen by a seed."""
    chance = random.Random(seed)
    return [
        Message(
            topic=f"Topic{chance.randrange(3)}",
            queue_id=chance.randrange(2),
            body=chance.randbytes(chance.choice([1, 60, 700])),
            properties=b"KEYS\x01k%d\x02TAGS\x01Tag%d\x02" % (number, number % 3),
        )
        for number in range(count)
    ]


def damage(laid: Laid, seed: int, kinds: tuple[str, ...] = ()) -> Damaged:
    """Damage a store."""
    chance = random.Random(seed)
    done = Damaged()
    usual = ("zeros", "garbage", "cut", "long", "gone", "renamed", "queue", "queues", "json")
    for _ in range(chance.randrange(1, 5)):
        kind = chance.choice(kinds or usual)
        folder = laid.root / laid.layout.log_folder
        files = [path for path in sorted(folder.iterdir()) if path.name.isdecimal()]
        if not files:
            break
        path = chance.choice(files)
        done.done.append(f"{kind} {path.name}")
        _DAMAGES[kind](laid, path, chance)
    _tell_whole(laid, done)
    return done


def _hole(path: Path, chance: random.Random, *, zeros: bool) -> None:
    data = bytearray(path.read_bytes())
    start = chance.randrange(len(data))
    end = min(len(data), start + chance.choice([MIN_HOLE, 300, 1500]))
    data[start:end] = bytes(end - start) if zeros else chance.randbytes(end - start)
    path.write_bytes(data)


def _zeros(_: Laid, path: Path, chance: random.Random) -> None:
    _hole(path, chance, zeros=True)


def _garbage(_: Laid, path: Path, chance: random.Random) -> None:
    _hole(path, chance, zeros=False)


def _cut(_: Laid, path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: chance.randrange(len(data))])


def _long(_: Laid, path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes() + chance.randbytes(700))


def _gone(_: Laid, path: Path, __: random.Random) -> None:
    path.unlink()


def _renamed(_: Laid, path: Path, chance: random.Random) -> None:
    path.rename(path.with_name(f"#{chance.randrange(10**6)}"))


def _queue(laid: Laid, _: Path, chance: random.Random) -> None:
    files = sorted((laid.root / "consumequeue").rglob("0*"))
    files = [file for file in files if file.is_file()]
    if files:
        chance.choice(files).write_bytes(chance.randbytes(77))


def _queues(laid: Laid, _: Path, __: random.Random) -> None:
    shutil.rmtree(laid.root / "consumequeue", ignore_errors=True)


def _json(laid: Laid, _: Path, chance: random.Random) -> None:
    path = laid.root / "config" / chance.choice(["topics.json", "consumerOffset.json"])
    path.write_bytes(path.read_bytes()[:20])


_DAMAGES = {
    "zeros": _zeros,
    "garbage": _garbage,
    "cut": _cut,
    "long": _long,
    "gone": _gone,
    "renamed": _renamed,
    "queue": _queue,
    "queues": _queues,
    "json": _json,
}


def _tell_whole(laid: Laid, done: Damaged) -> None:
    files = [path.read_bytes() for path in (laid.root / laid.layout.log_folder).iterdir()]
    for m in laid.held:
        record = encode(m)
        if any(record in data for data in files):
            done.whole.append(m)
        elif any(record[:-EDGE] in data for data in files):
            done.unsure.append(m)
