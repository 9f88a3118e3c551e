r"""What strangers typed into messages, in characters that a terminal only shows.

Control characters (C0, C1), bidi controls and line ends of all kinds are those that Unicode does
not call printable (``str.isprintable``). They become escapes: ``\x1b``, ``\u202e``.
"""

import json


def printable(text: str, kept: str = "") -> str:
    r"""Return ``text`` with an escape for each character that is not printable, nor in ``kept``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def json_text(value: object) -> str:
    r"""Return ``value`` as JSON in one line, with ``\uXXXX`` for what is not printable.

    What reads it gets the same value: other characters stand as they are (RFC 8259, section 7).
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
