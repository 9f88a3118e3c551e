"""Text of a store, a server or a user, made fit for a terminal and for a message."""

from typing import Final

_SHOWN_CHARS: Final = 200


def printable(text: str, keep: str = "") -> str:
    r"""Return ``text`` with an escape for each character that a terminal would not just show.

    Control characters (C0, C1), bidi controls and line ends of all kinds, which Unicode does not
    call printable (``str.isprintable``), become ``\x1b``, ``\u202e``; those in ``keep`` stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def shown(value: object, most: int = _SHOWN_CHARS) -> str:
    """Return ``value`` fit for a message: printable, at most ``most`` characters."""
    text = printable(str(value)[: most + 1])  # A body may be large.
    return text if len(text) <= most else text[: most - 1] + "…"
