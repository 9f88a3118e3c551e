"""The format book, store/README.md, shows bytes of a golden store: these, and no others."""

import re
from pathlib import Path

import pytest

BOOK = (Path(__file__).parents[2] / "store" / "README.md").read_text(encoding="utf-8")
DUMP = re.compile(r"^`(\S+)` at (\d+)\n\n```text\n(.*?)```$", re.MULTILINE | re.DOTALL)
WIDTH = 16


def dump(data: bytes, position: int) -> str:
    lines = []
    for start in range(0, len(data), WIDTH):
        row = data[start : start + WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{position + start:06x}  {row.hex(' '):<47}  {text}".rstrip() + "\n")
    return "".join(lines)


@pytest.mark.parametrize(("name", "position", "shown"), DUMP.findall(BOOK))
def test_every_dump_in_the_book_is_in_the_golden_store(
    golden_550: Path, name: str, position: str, shown: str
) -> None:
    count = sum(len(bytes.fromhex(line[8:55])) for line in shown.splitlines())
    with (golden_550 / name).open("rb") as file:
        file.seek(int(position))
        data = file.read(count)

    assert shown == dump(data, int(position))


def test_the_book_has_a_dump_for_every_binary_structure() -> None:
    kinds = {name.split("/")[0] for name, _, _ in DUMP.findall(BOOK)}

    assert kinds == {"commitlog", "consumequeue", "index", "checkpoint"}
