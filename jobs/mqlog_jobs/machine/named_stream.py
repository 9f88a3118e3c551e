"""Streams for people: named in their errors, and able to take any character.

A full disk there is not one of the store. What the encoding of a terminal or a pipe does not have
is written by its code, dashes and the like by what looks like them.
"""

import codecs
import io
from typing import Any, Final

REPLACING: Final = "mqlog.replacing"
"""The name of an error handler of encodings."""

_ALIKE: Final = {
    "–": "-",
    "—": "-",
    "…": "~",
    "≈": "~",
    "·": ".",
    "×": "x",
    "→": ">",
    "µ": "u",
    "▏": "|",
    "▲": "^",
    "▼": "v",
}


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    if error.object[error.start] in _ALIKE:
        return _ALIKE[error.object[error.start]], error.start + 1
    return codecs.backslashreplace_errors(error)


codecs.register_error(REPLACING, _replaced)


class NamedStream(io.FileIO):
    """Writes to a descriptor; errors have ``shown_name`` as their file."""

    def __init__(self, fd: int, shown_name: str, *, closefd: bool = True) -> None:
        """Take the descriptor; ``closefd``: close it too."""
        super().__init__(fd, "w", closefd=closefd)
        self._shown_name = shown_name

    def write(self, data: Any) -> int:
        """Write as FileIO does."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self._shown_name
            raise
