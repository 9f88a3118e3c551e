"""A few bytes of a CommitLog that a task compares, so that it reads the store that was planned.

Tasks run on other machines and open the store under its path there. Another store may lie there, or
an older copy of it: with the same topics and offsets its rows would be wrong and no error told it.
"""

from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final

from mqstore.derive.log_walk import LogWalk
from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.log.commit_log import CommitLog
from mqstore.format.message import MIN_RECORD_BYTES
from mqstore.read.errors import StoreNotSharedError

_DAMAGED_BITS: Final = 8
"""So many bits of a header may be broken: of another record its CRC and its times differ."""
_LAST_FILES: Final = 4
"""A broker makes a file or two before they are needed."""


@dataclass(frozen=True, slots=True)
class LogWitness:
    """The first bytes of a CommitLog file, which do not change while the file is there."""

    physical_offset: int
    data: bytes

    def check(self, log: CommitLog, root: str) -> None:
        """Raise StoreNotSharedError where a log has another record there, or ends before.

        A log that begins behind it lost the file to retention, as the store itself may have. What
        is damaged there, or cannot be read, is left to those who read messages of it.
        """
        if log.low > self.physical_offset:
            return
        if log.high <= self.physical_offset:
            why = f"its CommitLog ends at {log.high}, and was longer than {self.physical_offset}"
            raise StoreNotSharedError(root, why)
        with suppress(OSError):
            file = log.files.find(self.physical_offset)
            if file is not None and (
                file.start != self.physical_offset or self._is_another(log, file)
            ):
                raise StoreNotSharedError(root, f"{file.name} has another record there")

    def _is_another(self, log: CommitLog, file: MappedFile) -> bool:
        data = _head(file)
        if data == self.data:
            return False
        differing = int.from_bytes(data) ^ int.from_bytes(self.data)
        if differing.bit_count() <= _DAMAGED_BITS:
            return False
        return next(LogWalk(log, self.physical_offset).records(), None) is not None


def witness_of(log: CommitLog) -> LogWitness | None:
    """Return the witness of a log; None of a log without records and of one in an object store.

    It is of the last file that was written full, else of the only file: a broker that runs may be
    writing the first record of a newer one. Also None where a file cannot be read.
    """
    files = log.files.files[-_LAST_FILES:]
    if not all(file.folder.is_by_path for file in files):
        return None
    with suppress(OSError):
        heads = list(map(_head, files))
        written = [number for number, head in enumerate(heads) if any(head)]
        if written:
            number = max(written[-1] - 1, 0)
            return LogWitness(files[number].start, heads[number])
    return None


def _head(file: MappedFile) -> bytes:
    """Return the first bytes of a file, which is closed again: it may expire meanwhile."""
    with closing(file.open()) as opened:
        return opened.read(min(MIN_RECORD_BYTES, file.size), 0)
