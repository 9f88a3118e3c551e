"""The bytes reserved for the text columns of a chunk: as many as usual, else the maximum.

What a text column takes is known only when it is made. The usual room is what the chunk before
took of each record, and some more; a kernel that finds it too small says so, and the most that
records of those sizes can hold is enough for any.
"""

from collections.abc import Iterable, Mapping
from typing import Final

ENTRIES: Final = "entries"
"""Not bytes, but properties of all records together."""

_SPARE_SHARE: Final = 1.25
_SLACK: Final = 4096
_LONGEST_HOST: Final = 56  # Text of an IPv6 host, or the id a broker gives, in hex.
_HOSTS: Final = frozenset({"born_host", "store_host", "msg_id"})
_LEAST_ENTRY: Final = 3  # Bytes of the shortest property: name, 0x01, value.
_AT_FIRST: Final = {
    "born_host": 24.0,
    "store_host": 24.0,
    "msg_id": 32.0,
    "names": 96.0,
    "values": 192.0,
    ENTRIES: 12.0,
}
_ANY_PROPERTY_AT_FIRST: Final = 48.0


class Rooms:
    """Remembers what each text column took of a record lately, by name."""

    def __init__(self, names: Iterable[str]) -> None:
        self._each = dict.fromkeys(names, _ANY_PROPERTY_AT_FIRST) | _AT_FIRST

    def usual(self, rows: int, record_bytes: int) -> dict[str, int]:
        """Return the bytes that usually suffice for ``rows`` records of ``record_bytes``."""
        most = self.most(rows, record_bytes)
        return {
            name: min(int(rows * each * _SPARE_SHARE) + _SLACK, most[name])
            for name, each in self._each.items()
        }

    def most(self, rows: int, record_bytes: int) -> dict[str, int]:
        """Return the bytes that suffice for any ``rows`` records of ``record_bytes``."""
        hosts = _LONGEST_HOST * rows
        found = {name: hosts if name in _HOSTS else record_bytes + hosts for name in self._each}
        return found | {ENTRIES: record_bytes // _LEAST_ENTRY + rows}

    def learn(self, rows: int, used: Mapping[str, int]) -> None:
        """Take note of what ``rows`` records took."""
        self._each |= {name: size / rows for name, size in used.items()}
