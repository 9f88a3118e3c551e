"""Mutants: a store with a few things changed, told in a way that one line can repeat.

An edit is a list of plain values, ["set", path, position, hex] and so on; `apply` does it to a
store on disk, `Mutant.undo` puts back what was there. `draw` makes edits up.
"""

import json
import os
import random
import re
import shutil
import socket
import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fuzz.bases import Base, with_epoch_sum
from mqstore.format.epochs import EPOCH_FILE

Edit = list[Any]

NUMBERS = (
    [0, 1, 2, -1, -2, 7, 8, 19, 20, 39, 40, 90, 91, 92, 127, 128, 255, 256, 4095, 4096]
    + [32767, 32768, 65535, 65536, 1 << 20, 4 << 20, 64 << 20, (64 << 20) + 1]
    + [2**31 - 1, 2**31 - 2, -(2**31)]
    + [2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63 - 100, -(2**63), -(2**63) + 1]
    + [struct.unpack(">i", bytes.fromhex(m))[0] for m in ("daa320a7", "daa320ab", "cbd43194")]
)  # fmt: skip
NAMES = [
    "..x", "a b", "x.tmp", ".hidden", "T.x", "\n", "\x1b[31m", "\udcff", "%RETRY%" + "a" * 240,
    "00000000000000000001", "0000000000000000000", "9" * 20, "18446744073709551616", "-1", "01",
    "65535", "65536", "٠" * 20, "٣", "1e3", "0x10", "T\x01U", "CURRENT", "dledger-0", "x" * 127,
    "20261121030730218", "2026112103073021", "99999999999999999", "%LMQ%T", "a|b", "+1", " 1",
]  # fmt: skip
DOCUMENTS = {
    "empty": "",
    "blank": " \n\t",
    "null": "null",
    "list": "[]",
    "text": '"x"',
    "deep": "[" * 100_000,
    "deep objects": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "digits": '{"offsetTable":{"T@g":{0:' + "9" * 5_000 + "}}}",
    "float": '{"offsetTable":{"T@g":{"0":1e999,"1":1.5,"2":-0.0}}}',
    "nan": '{"offsetTable":{"T@g":{"0":NaN,"1":Infinity}}}',
    "wrong kinds": '{"offsetTable":[1],"topicConfigTable":"x","subscriptionGroupTable":3}',
    "wrong inside": '{"offsetTable":{"T@g":"x","U@g":null},"topicConfigTable":{"T":7,"U":[]}}',
    "paths": '{"offsetTable":{"../x@g":{0:1},"a/b@../g":{0:1}},"topicConfigTable":{"../../x":{}}}',
    "control": '{"offsetTable":{"T@g\\u0000\\u001b[31m":{0:1}},"topicConfigTable":{"T\\u0001":{}}}',
    "surrogate": '{"offsetTable":{"T@\\ud800":{0:1}},"topicConfigTable":{"T\\ud800":{}}}',
    "big keys": '{"offsetTable":{"T@g":{99999999999999999999:1,-5:2,65536:3}}}',
    "many keys": '{"a":[' + ",".join(["0"] * 20_000) + "]}",
    "twice": '{"offsetTable":{},"offsetTable":{"T@g":{0:5}},"offsetTable":null}',
    "bom": '\ufeff{"offsetTable":{}}',
    "open": '{"offsetTable":{"T@g":{0:1}',
    "backslashes": '{"a":"' + "\\" * 10_001,
    "quotes": '"' * 20_001,
    "sizes": '{"commit_log":-1,"consume_queue":1,"max_hash_slot_num":99999999999999,'
    '"max_index_num":true}',
    "group": '{"group":5,"offsetTable":{"T":{"0":1.5}}}',
    "no table": '{"group":"stream","offsetTable":{"T":[1]}}',
}
TOKENS = [
    "null",
    "true",
    "-1",
    "0",
    "1e400",
    "9" * 40,
    '""',
    '"../../x"',
    "[]",
    "{}",
    "[[[]]]",
    ",",
]
SIZES = [1, 19, 20, 4096, 1 << 20, 1 << 28, 1 << 31, 1 << 40]
_TEXT = re.compile(r'"[^"]*"|-?\d+|true|false|null|[{}\[\]:,]')


class Mutant:
    """The edits done to a base, and what to put back."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self.touched: set[str] = set()
        self._moved: list[tuple[Path, Path]] = []

    def apply(self, edits: Sequence[Edit]) -> None:
        """Do the edits; one that cannot be done any more is left out."""
        for edit in edits:
            with suppress(OSError):
                _DO[edit[0]](self, *edit[1:])

    def undo(self) -> None:
        """Put everything back."""
        for here, temp_dir in reversed(self._moved):
            _remove(here)
            temp_dir.rename(here)
        for path in sorted(self.touched):
            if path in self.base.files:
                _remove(self.base.root / path)
                (self.base.root / path).write_bytes(self.base.files[path])
            elif path not in self.base.directories:
                _remove(self.base.root / path)

    def at(self, path: str) -> Path:
        """The place of ``path``, from now on a touched one."""
        self.touched.add(path)
        return self.base.root / path

    def away(self, path: str) -> Path:
        """Take away what is at ``path``, and return the free place."""
        place = self.at(path)
        if path in self.base.directories and place.is_dir() and not place.is_symlink():
            temp_dir = self.base.root.parent / f"aside-{len(self._moved)}"
            place.rename(temp_dir)
            self._moved.append((place, temp_dir))
        _remove(place)
        return place


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _plain(mutant: Mutant, path: str) -> bytearray:
    place = mutant.at(path)
    if place.is_symlink() or not place.is_file() or place.stat().st_size > 1 << 24:
        raise FileNotFoundError(path)
    return bytearray(place.read_bytes())


def _set(mutant: Mutant, path: str, position: int, data: str) -> None:
    content = _plain(mutant, path)
    new = bytes.fromhex(data)[: max(0, len(content) - position)]
    content[position : position + len(new)] = new
    _put(mutant, path, bytes(content))


def _put(mutant: Mutant, path: str, data: bytes) -> None:
    place = mutant.away(path)
    place.write_bytes(data)


def _size(mutant: Mutant, path: str, size: int) -> None:
    _plain(mutant, path)
    os.truncate(mutant.base.root / path, size)


def _append(mutant: Mutant, path: str, data: str) -> None:
    _put(mutant, path, bytes(_plain(mutant, path)) + bytes.fromhex(data))


def _splice(mutant: Mutant, path: str, start: int, count: int, to: int) -> None:
    content = _plain(mutant, path)
    piece = content[start : start + count][: max(0, len(content) - to)]
    content[to : to + len(piece)] = piece
    _put(mutant, path, bytes(content))


def _swap(mutant: Mutant, path: str, other: str) -> None:
    one, two = _plain(mutant, path), _plain(mutant, other)
    _put(mutant, path, bytes(two))
    _put(mutant, other, bytes(one))


def _copy(mutant: Mutant, path: str, new: str) -> None:
    _put(mutant, new, bytes(_plain(mutant, path)))


def _gone(mutant: Mutant, path: str) -> None:
    mutant.away(path)


def _text(mutant: Mutant, path: str, document: str) -> None:
    data = DOCUMENTS[document].encode("utf-8", "surrogatepass")
    for each in (path, path + ".bak"):
        if each == path or each in mutant.base.files:
            _put(mutant, each, data)


def _token(mutant: Mutant, path: str, number: int, token: str) -> None:
    text = bytes(_plain(mutant, path)).decode(errors="replace")
    found = list(_TEXT.finditer(text))
    if found:
        spot = found[number % len(found)]
        text = text[: spot.start()] + token + text[spot.end() :]
        _put(mutant, path, _summed(text).encode())


def _epochs(mutant: Mutant, path: str, number: int, value: str) -> None:
    """Put another number into a file of epochs, with the right sum."""
    text = bytes(_plain(mutant, path)).decode(errors="replace")
    numbers = list(re.finditer(r"\d+", text))
    if numbers:
        spot = numbers[number % len(numbers)]
        text = with_epoch_sum(text[: spot.start()] + value + text[spot.end() :])
        _put(mutant, path, text.encode())


def _summed(text: str) -> str:
    """Make the sum of a small file of ours right again, as whoever means harm would."""
    begin, found, body = text.partition(',"body":')
    if not found or not begin.startswith('{"crc":'):
        return text
    return f'{{"crc":{zlib.crc32(body[:-1].encode())}{found}{body}'


def _link(mutant: Mutant, path: str, target: str) -> None:
    mutant.away(path).symlink_to(mutant.base.root.parent / target)


def _hard(mutant: Mutant, path: str) -> None:
    mutant.away(path).hardlink_to(mutant.base.outside / "linked")


def _fifo(mutant: Mutant, path: str) -> None:
    os.mkfifo(mutant.away(path))


def _socket(mutant: Mutant, path: str) -> None:
    place = mutant.away(path)
    with socket.socket(socket.AF_UNIX) as made:
        folder = os.open(place.parent, os.O_RDONLY)
        try:  # A socket's path is at most 107 bytes long.
            made.bind(f"/proc/self/fd/{folder}/{place.name[:40]}")
        finally:
            os.close(folder)


def _directory(mutant: Mutant, path: str) -> None:
    mutant.away(path).mkdir()


_DO: dict[str, Callable[..., None]] = {
    "set": _set, "size": _size, "append": _append, "splice": _splice, "swap": _swap,
    "copy": _copy, "gone": _gone, "text": _text, "token": _token, "epochs": _epochs,
    "link": _link, "hard": _hard, "fifo": _fifo, "socket": _socket, "directory": _directory,
}  # fmt: skip

# --- making edits up --------------------------------------------------------------------------

_ROOMS = {"commitlog": 30, "dledger-n0": 30, "consumequeue": 25, "index": 14, "config": 12,
          ".mqlog": 14, "checkpoint": 3, "abort": 1, "lock": 1, "tier": 30,
          "epochFileCheckpoint": 12, "brokerIdentity": 3}  # fmt: skip


def draw(rng: random.Random, base: Base) -> list[Edit]:
    """Make up one to four edits of a base."""
    count = rng.choices([1, 2, 3, 4], [60, 25, 10, 5])[0]
    return [_draw_one(rng, base) for _ in range(count)]


def _draw_one(rng: random.Random, base: Base) -> Edit:
    path = _draw_file(rng, base)
    if rng.random() < 0.7 and (edit := _draw_text(rng, path)):
        return edit
    roll = rng.random()
    if roll < 0.35 and path in base.fields and base.fields[path]:
        return _draw_number(rng, base, path)
    if roll < 0.65:
        return _draw_bytes(rng, base, path)
    if roll < 0.75:
        data = base.files[path]
        cut = rng.choice([rng.randint(0, len(data)), len(data) + rng.choice(SIZES)])
        return ["size", path, cut if rng.random() < 0.9 else 0]
    return _draw_place(rng, base, path)


def _draw_text(rng: random.Random, path: str) -> Edit | None:
    """Make up an edit of a file of text; None of any other file."""
    if path.startswith(EPOCH_FILE):
        return ["epochs", path, rng.randrange(100), str(rng.choice(NUMBERS))]
    if not path.endswith((".json", ".bak")) and "/txn/" not in path:
        return None
    if rng.random() < 0.5:
        return ["token", path, rng.randrange(1000), rng.choice(TOKENS)]
    return ["text", path.removesuffix(".bak"), rng.choice(list(DOCUMENTS))]


def _draw_file(rng: random.Random, base: Base) -> str:
    rooms: dict[str, list[str]] = {}
    for path in base.files:
        rooms.setdefault(path.split("/", 1)[0], []).append(path)
    names = list(rooms)
    room = rng.choices(names, [_ROOMS.get(name, 2) for name in names])[0]
    return rng.choice(rooms[room])


def _draw_number(rng: random.Random, base: Base, path: str) -> Edit:
    position, width = rng.choice(base.fields[path])
    old = int.from_bytes(base.files[path][position : position + width], signed=True)
    near = [old + 1, old - 1, -old, old * 2, old ^ (1 << rng.randrange(8 * width))]
    value = rng.choice([rng.choice(NUMBERS), rng.choice(near)])
    return ["set", path, position, (value % (1 << 8 * width)).to_bytes(width).hex()]


def _draw_bytes(rng: random.Random, base: Base, path: str) -> Edit:
    data = base.files[path]
    used = min(len(data), len(data.rstrip(b"\0")) + 64)
    if not used:
        return ["append", path, rng.randbytes(rng.randint(1, 40)).hex()]
    position = rng.randrange(used)
    kind = rng.random()
    if kind < 0.5:
        return ["set", path, position, bytes([data[position] ^ 1 << rng.randrange(8)]).hex()]
    if kind < 0.8:
        return ["set", path, position, rng.randbytes(rng.choice([1, 2, 4, 8, 64])).hex()]
    return ["splice", path, rng.randrange(used), rng.choice([1, 4, 20, 91, 400]), position]


def _draw_place(rng: random.Random, base: Base, path: str) -> Edit:
    """Make up an edit of what lies where."""
    anywhere = rng.choice([path, path, rng.choice(base.directories)])
    kind = rng.choice(
        ["swap", "copy", "copy", "gone", "link", "hard", "fifo", "socket", "directory"]
    )
    if kind == "swap":
        return ["swap", path, _draw_file(rng, base)]
    if kind == "copy":
        folder = rng.choice(base.directories)
        return ["copy", path, f"{folder}/{rng.choice(NAMES)}"]
    if kind == "link":
        inside = "store/" + _draw_file(rng, base)
        targets = ["outside/secret", "outside", "outside/topics.json", "store", inside, "nowhere"]
        return ["link", anywhere, rng.choice(targets)]
    if kind == "directory" and rng.random() < 0.5:
        return ["directory", f"{rng.choice(base.directories)}/{rng.choice(NAMES)}"]
    return [kind, anywhere if kind != "hard" else path]


def to_line(base: str, edits: Sequence[Edit], look: str) -> str:
    """The command that does this mutant again."""
    told = json.dumps([base, look, edits])
    return f"MQLOG_AGAIN='{told}' make test ARGS='-k again tests/fuzz'".replace("\udcff", "?")
