"""The parts of objects that were found damaged: the next point takes them anew.

The file ``damaged`` of a repository has a line for each: the object, the first byte and how many.
It may come from anybody, and says only what is not to be relied on.
"""

import re
from collections.abc import Iterable
from typing import Final

from mqstore.files.points.manifest import PointPart

_PART_LINE: Final = re.compile(r"(\S{1,64}) ([0-9]{1,13}) ([0-9]{1,13})")
MOST_BYTES: Final = 16 << 20


class DamagedParts:
    """Which bytes of which objects are not what they were."""

    def __init__(self, parts: Iterable[tuple[str, int, int]] = ()) -> None:
        """Take the objects' names, with the first byte and the length of each part."""
        self._spans: dict[str, list[tuple[int, int]]] = {}
        for name, start, length in parts:
            self._spans.setdefault(name, []).append((start, start + length))

    def has(self, part: PointPart) -> bool:
        """Tell whether a byte of a part is among them."""
        spans = self._spans.get(part.name, ())
        return any(start < part.start + part.length and part.start < end for start, end in spans)

    def encode(self) -> bytes:
        """Return the lines of the file."""
        return b"".join(
            b"%s %d %d\n" % (name.encode(), start, end - start)
            for name, spans in sorted(self._spans.items())
            for start, end in spans
        )


def decode_damaged(data: bytes) -> DamagedParts:
    """Return what a file says; lines in another form are left out."""
    found = map(_PART_LINE.fullmatch, data.decode(errors="replace").splitlines())
    return DamagedParts((m[1], int(m[2]), int(m[3])) for m in found if m is not None)
