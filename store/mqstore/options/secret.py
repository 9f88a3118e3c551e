"""A text that must show nowhere: not in errors, plans, logs or the bytes of a task."""

import secrets
from typing import Final

from mqstore.errors import InvalidOptionError

HIDDEN: Final = "***"


class Secret:
    """A text that shows as ``***``; ``reveal`` gives it.

    Its pickle holds the text under a pad of random bytes: no encryption, but a log or a plan that
    prints the bytes of a task does not print the secret.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[object, ...]:
        data = self._text.encode()
        pad = secrets.token_bytes(len(data))
        return (_unpadded, (pad, _xor(data, pad)))


def parse_secret(name: str, text: str) -> Secret:
    """Return the value of an option that is a secret; InvalidOptionError, without it, if empty."""
    if not text.strip():
        raise InvalidOptionError(name, "", "is empty: leave it out, or give it")
    return Secret(text)


def _unpadded(pad: bytes, data: bytes) -> Secret:
    return Secret(_xor(data, pad).decode())


def _xor(data: bytes, pad: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(data, pad, strict=True))
