"""Lines of a pipe, a file or a terminal as they come, in groups that wait for a short time."""

import os
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mqlog_jobs.replays.message_lines import bad_line

_GROUP_LINES: Final = 16_384
_GROUP_BYTES: Final = 8 * 1024 * 1024
_READ_BYTES: Final = 1024 * 1024
_MOST_LINE_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LineGroup:
    """Lines without their line feeds; ``first`` is the number of the first one, from 1.

    ``more`` tells that the group is full and that input behind it can be read already.
    """

    first: int
    lines: list[bytes]
    more: bool


class ArrivingLines:
    """The lines of a file descriptor, in groups.

    A group ends ``linger_s`` seconds after its first line came, or where it is full. Behind a group
    with ``more`` the next one ends in that time even if it is empty. A byte that can be read from
    the descriptor ``interrupts`` ends the input: what can be read by then is the rest.
    """

    def __init__(self, descriptor: int, interrupts: int, linger_s: float) -> None:
        self.is_cut = False
        """Whether an interrupt ended the input."""
        self._descriptor = descriptor
        self._interrupts = interrupts
        self._linger_s = linger_s
        self._poll = select.poll()
        for number in (descriptor, interrupts):
            self._poll.register(number, select.POLLIN)
        self._is_over = False
        self._more = False
        self._taken = 0
        self._unfinished = bytearray()

    def __iter__(self) -> Iterator[LineGroup]:
        """Yield the groups; raises InvalidMessageError for an endless line, and OSError."""
        while not self._is_over:
            yield self._group()

    def _group(self) -> LineGroup:
        lines: list[bytes] = []
        first, size = self._taken + 1, 0
        end = self._end() if self._more else None
        self._more = False
        while not self._is_over and len(lines) < _GROUP_LINES and size < _GROUP_BYTES:
            data = self._read(end)
            if data is None:
                break
            lines += self._whole(data)
            size += len(data)
            if lines and end is None:
                end = self._end()
        else:
            self._more = not self._is_over and self._is_readable(0)
        return LineGroup(first, lines, self._more)

    def _end(self) -> float:
        return time.monotonic() + self._linger_s

    def _read(self, end: float | None) -> bytes | None:
        """Return the next bytes, empty at the end; None if none came until ``end``."""
        timeout_s = None if end is None else end - time.monotonic()
        if timeout_s is not None and timeout_s <= 0:
            return None
        if not self._is_readable(timeout_s):
            if not self.is_cut:
                return None
            self._is_over = True
            return b""
        data = os.read(self._descriptor, _READ_BYTES)
        self._is_over = not data or self.is_cut
        self.is_cut = self.is_cut and bool(data)
        return data

    def _is_readable(self, timeout_s: float | None) -> bool:
        """Tell whether something, or the end, can be read; return at once at an interrupt."""
        ready = dict(self._poll.poll(None if timeout_s is None else 1000 * timeout_s))
        self.is_cut = self._interrupts in ready
        return self._descriptor in ready

    def _whole(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` ends; what is behind them waits for its line feed."""
        lines: list[bytes] = []
        head, feed, tail = data.rpartition(b"\n")
        if feed:
            lines = bytes(self._unfinished + head).split(b"\n")
            self._unfinished.clear()
        self._unfinished += tail
        if not data and self._unfinished and not self.is_cut:
            lines = [bytes(self._unfinished)]
        self._taken += len(lines)
        if len(self._unfinished) > _MOST_LINE_BYTES:
            raise bad_line(self._taken + 1, f"has more than {_MOST_LINE_BYTES} bytes")
        return lines
