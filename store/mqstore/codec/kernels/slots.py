"""The layout of the outputs of a decode call in one block of memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mqstore.codec.kernels.abi import STEP, Decoding, Text
from mqstore.codec.kernels.rooms import ENTRIES
from mqstore.codec.kernels.wanted import Wanted

_ALIGNMENT: Final = 64
_EDGE: Final = 4


@dataclass(frozen=True, slots=True)
class TextSlot:
    """Positions of a text column's edges and bytes, and how many bytes there may be."""

    edges: int
    data: int
    room: int


class Slots:
    """The outputs of one call for ``rows`` rows; ``size`` is the memory they need together."""

    def __init__(self, wanted: Wanted, rows: int, rooms: Mapping[str, int]) -> None:
        self.size = 0
        self.wanted = wanted
        self.rows = rows
        self.fixed = {name: self._take(rows * width) for name, width in wanted.fixed.items()}
        self.texts = {name: self._text(rows, rooms[name]) for name in wanted.texts}
        self.picks = [self._text(rows, rooms[name]) for name, _ in wanted.picks]
        self.valid = [self._take((rows + 7) // 8) for _ in wanted.picks]
        if wanted.entries:
            self.entry_room = rooms[ENTRIES]
            self.entry_edges = self._take(_EDGE * (rows + 1))
            self.names = self._text(self.entry_room, rooms["names"])
            self.values = self._text(self.entry_room, rooms["values"])

    def place(self, call: Decoding, start: int) -> None:
        """Put the addresses into ``call``, for a memory that starts at ``start``."""
        for name, at in self.fixed.items():
            setattr(call, name, start + at)
        for name, slot in self.texts.items():
            _place(getattr(call, name), slot, start)
        for pick, slot, valid in zip(call.pick, self.picks, self.valid, strict=False):
            _place(pick.text, slot, start)
            pick.valid = start + valid
            pick.missing = 0
        if self.wanted.entries:
            _place(call.names, self.names, start)
            _place(call.values, self.values, start)
            call.entry_edges = start + self.entry_edges
            call.entry_room = self.entry_room

    def _take(self, size: int) -> int:
        start = self.size
        self.size = (start + size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        return start

    def _text(self, count: int, room: int) -> TextSlot:
        return TextSlot(self._take(_EDGE * (count + 1)), self._take(room + STEP), room + STEP)


def _place(text: Text, slot: TextSlot, start: int) -> None:
    text.edges, text.data = start + slot.edges, start + slot.data
    text.used, text.room = 0, slot.room
