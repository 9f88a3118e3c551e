"""The end of what is written of a CommitLog: as long as it stands, no queue has a new message.

A broker fills its files with zeros and maps them, the next one ahead of its time, so that neither
their lengths nor their times tell of a message. What lies behind the last byte that is not zero
does: a record, and the blank that ends a file, begin with their sizes.

Reference: CommitLog#asyncPutMessage, MappedFile#appendMessage, AllocateMappedFileService.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Final

from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.log.commit_log import CommitLog

_STEP_BYTES: Final = 8 << 20  # Longer than the zeros of a record of the default largest size.
_AHEAD_BYTES: Final = 64 * 1024
"""What is looked at. A record that ends with more zeros hides the next one from such a look."""
_SIZE_BYTES: Final = 8


class WrittenEnd:
    """Where the written part of a store's CommitLog ended when it was last marked."""

    def __init__(self, place: StoreDir) -> None:
        self._place = place
        self._names: list[str] = []
        self._number = 0
        self._position = 0

    def mark(self) -> None:
        """Find the end as it is now. Raises FileNotFoundError if a broker deletes the file."""
        files = self._files()
        number = next((n for n in range(len(files) - 1, 0, -1) if _is_begun(files[n])), 0)
        known = self._names[self._number] if self._names else ""
        if files:
            low = self._position if files[number].name == known else None
            self._position = _end(files[number], low)
        self._names, self._number = [file.name for file in files], number

    def is_same(self) -> bool:
        """Tell whether nothing is written behind the end that was marked.

        False where it cannot be told: files have come or gone, or there is none. Raises
        FileNotFoundError as ``mark``.
        """
        files = self._files()
        if not files or [file.name for file in files] != self._names:
            return False
        ahead = _read(files[self._number], self._position, _AHEAD_BYTES)
        return _is_zero(ahead) and not any(map(_is_begun, files[self._number + 1 :]))

    def _files(self) -> Sequence[MappedFile]:
        with CommitLog(self._place.commit_log) as log:
            return log.files.files


def _end(file: MappedFile, known: int | None) -> int:
    """Return the position behind the last byte that is not zero; ``known`` is one before it."""
    if known is None:
        for first in range((file.size - 1) // _STEP_BYTES * _STEP_BYTES, -1, -_STEP_BYTES):
            written = len(_read(file, first, _STEP_BYTES).rstrip(b"\0"))
            if written:
                return first + written
        return 0
    end = known
    while written := len(_read(file, end, _STEP_BYTES).rstrip(b"\0")):
        end += written
    return end


def _is_begun(file: MappedFile) -> bool:
    return not _is_zero(_read(file, 0, _SIZE_BYTES))


def _is_zero(data: bytes) -> bool:
    return data.count(0) == len(data)


def _read(file: MappedFile, position: int, size: int) -> bytes:
    with closing(file.open()) as opened:
        return opened.read(min(size, file.size - position), position)
