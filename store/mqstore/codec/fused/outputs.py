"""The outputs of the decode kernel that some columns are made of, and their places in one memory.

A field here has the name of the member of ``Decoding`` in decode.h.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from mqstore.codec.fused.rooms import ENTRIES
from mqstore.native.declarations import constant

_ALIGNMENT: Final = 64
_EDGE: Final = 4


class Fixed(NamedTuple):
    """Numbers of ``width`` bytes each."""

    field: str
    width: int


class Texts(NamedTuple):
    """A string or binary column."""

    field: str


class Pick(NamedTuple):
    """One property; where a record lacks it, null or the broker's id for the message."""

    name: str
    or_msg_id: bool = False


class AllProperties(NamedTuple):
    """Names and values of all properties."""


Output: TypeAlias = Fixed | Texts | Pick | AllProperties | None
"""None: no output of the kernel is needed."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Outputs by their kind, each once."""

    fixed: dict[str, int]
    texts: tuple[str, ...]
    picks: tuple[Pick, ...]
    entries: bool

    @classmethod
    def of(cls, wanted: Iterable[Output]) -> "Outputs":
        """Return those outputs without repeats."""
        each = list(dict.fromkeys(wanted))
        return cls(
            dict(one for one in each if isinstance(one, Fixed)),
            tuple(one.field for one in each if isinstance(one, Texts)),
            tuple(one for one in each if isinstance(one, Pick)),
            AllProperties() in each,
        )


@dataclass(frozen=True, slots=True)
class TextSlot:
    """Positions of a text column's edges and bytes, and how many bytes there may be."""

    edges: int
    data: int
    room: int


class Slots:
    """The outputs of one call for ``rows`` rows; ``size`` is the memory they need together."""

    def __init__(self, outputs: Outputs, rows: int, rooms: Mapping[str, int]) -> None:
        self.size = 0
        self.outputs = outputs
        self.rows = rows
        self._step = constant("STEP")
        self.fixed = {name: self._take(rows * width) for name, width in outputs.fixed.items()}
        self.texts = {name: self._text(rows, rooms[name]) for name in outputs.texts}
        self.picks = [self._text(rows, rooms[pick.name]) for pick in outputs.picks]
        self.valid = [self._take((rows + 7) // 8) for _ in outputs.picks]
        if outputs.entries:
            self.entry_room = rooms[ENTRIES]
            self.entry_edges = self._take(_EDGE * (rows + 1))
            self.names = self._text(self.entry_room, rooms["names"])
            self.values = self._text(self.entry_room, rooms["values"])

    def place(self, call: Any, start: int) -> None:
        """Put the addresses into a ``Decoding``, for a memory that starts at ``start``."""
        for name, at in self.fixed.items():
            setattr(call, name, start + at)
        for name, slot in self.texts.items():
            _place(getattr(call, name), slot, start)
        for pick, slot, valid in zip(call.pick, self.picks, self.valid, strict=False):
            _place(pick.text, slot, start)
            pick.valid = start + valid
            pick.missing = 0
        if self.outputs.entries:
            _place(call.names, self.names, start)
            _place(call.values, self.values, start)
            call.entry_edges = start + self.entry_edges
            call.entry_room = self.entry_room

    def _take(self, size: int) -> int:
        start = self.size
        self.size = (start + size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        return start

    def _text(self, count: int, room: int) -> TextSlot:
        room += self._step
        return TextSlot(self._take(_EDGE * (count + 1)), self._take(room), room)


def _place(text: Any, slot: TextSlot, start: int) -> None:
    text.edges, text.data = start + slot.edges, start + slot.data
    text.used, text.room = 0, slot.room
