r"""One line a message, in a shape the user types: ``-f '{topic} {keys}\t{body}'``.

A column's name in braces is replaced; ``\n`` ``\t`` ``\\`` ``\{`` stand for what they do in a
shell's printf. Null is written as nothing, text of a message as it is, for a program. On a terminal
its control characters and line ends are escaped: a message is one line, and gives no commands.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from mqlog_jobs.printable import printable
from mqstore.codec.schema import check_columns, resolve_columns

COLUMNS: Final = resolve_columns("standard")
_TOKEN: Final = re.compile(r"\\(.)|\{(\w+)\}")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


@dataclass(frozen=True, slots=True)
class Shape:
    """A parsed format: ``pieces`` are text and, at odd places, columns' names."""

    pieces: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it needs, each once."""
        return tuple(dict.fromkeys(self.pieces[1::2]))

    def fill(self, row: Mapping[str, object], *, escaped: bool = False) -> str:
        """Return the line of one message, with its line end; ``escaped`` for a terminal."""
        shape = _printable if escaped else _text
        filled = [
            shape(row[piece]) if place % 2 else piece for place, piece in enumerate(self.pieces)
        ]
        return "".join(filled) + "\n"


def parse(text: str) -> Shape:
    """Return the shape; raises InvalidSchemaError for a column that a read cannot give."""
    pieces = [""]
    end = 0
    for token in _TOKEN.finditer(text):
        pieces[-1] += text[end : token.start()]
        end = token.end()
        if token[2] is None:
            pieces[-1] += _ESCAPES.get(token[1], token[1])
        else:
            pieces += [*check_columns([token[2]]), ""]
    pieces[-1] += text[end:]
    return Shape(tuple(pieces))


def _printable(value: object) -> str:
    return printable(_text(value))


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case bytes():
            return value.decode(errors="replace")
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case list():
            return " ".join(f"{name}={item}" for name, item in value)
    return str(value)
