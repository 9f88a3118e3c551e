"""Where records lie: physical offsets of batches in files of one size, and blank records.

A batch goes where the log ends, unless the room left in that file could not hold it and a blank
record's head after it: then a blank record takes that room and the batch starts the next file.

Reference: CommitLog.DefaultAppendMessageCallback#doAppend (END_FILE_MIN_BLANK_LENGTH): a record
of exactly ``room - 8`` bytes is still written.
"""

from dataclasses import dataclass

import numpy as np

from mqstore.arrays import Int64s, Mask
from mqstore.format.message import MIN_BLANK_BYTES


@dataclass(frozen=True, slots=True)
class Placed:
    """Physical offset of each record, and of the blank records among them."""

    physical_offsets: Int64s
    blanks: tuple[int, ...]


class Placement:
    """Gives places to records in log order, from ``tail`` on. The same records, the same places."""

    def __init__(self, tail: int, file_size: int, log_start: int) -> None:
        """``log_start`` is where any file of the log starts: its name."""
        self.tail = tail
        self._file_size = file_size
        self._log_start = log_start

    def place(self, sizes: Int64s, starts_batch: Mask) -> Placed:
        """Return the places of records of those sizes; the first one starts a batch."""
        if not len(sizes):
            return Placed(np.zeros(0, np.int64), ())
        firsts = np.flatnonzero(starts_batch)
        assert firsts[0] == 0
        batch_sizes = np.add.reduceat(sizes, firsts)
        assert batch_sizes.max() <= self._file_size - MIN_BLANK_BYTES, "a batch fits one file"
        ends = np.cumsum(batch_sizes)
        batches = ends - batch_sizes
        blanks = []
        done = 0
        moved = np.empty(len(firsts), np.int64)
        while done < len(firsts):  # A loop over files, not over batches.
            room = self._room()
            before = int(batches[done])
            fits = int(np.searchsorted(ends, before + room - MIN_BLANK_BYTES, "right"))
            if fits > done:
                moved[done:fits] = batches[done:fits] + (self.tail - before)
                self.tail += int(ends[fits - 1]) - before
                done = fits
            if done < len(firsts):
                blanks.append(self.tail)
                self.tail += self._room()
        shift = np.repeat(moved - batches, np.diff(np.append(firsts, len(sizes))))
        within = np.cumsum(sizes) - sizes
        return Placed(within + shift, tuple(blanks))

    def _room(self) -> int:
        return self._file_size - (self.tail - self._log_start) % self._file_size
