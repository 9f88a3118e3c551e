"""The end of a CommitLog: blank records, and the bytes behind the last record."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from mqstore.files.base.mapped_file_queue import MappedFile
from mqstore.files.log.commit_log import CommitLog
from mqstore.format import dledger
from mqstore.format.arrays import Bytes
from mqstore.format.message import BLANK, BLANK_MAGIC, MIN_RECORD_BYTES, RECORD_MAGICS

_CHUNK_BYTES: Final = 1 << 20
# A chunk starts this much before the last one's end: a magic code may lie across the two.
_OVERLAP_BYTES: Final = BLANK.itemsize


def after_blank(log: CommitLog, physical_offset: int) -> int:
    """Return where the next file starts if a blank record ends this one here.

    If none does, return ``physical_offset``.
    """
    head = log.read(physical_offset, BLANK.itemsize)
    file = log.files.find(physical_offset)
    if file is None or len(head) < BLANK.itemsize:
        return physical_offset
    blank = np.frombuffer(head, BLANK)[0]
    return file.end if int(blank["magic"]) == BLANK_MAGIC else physical_offset


def next_record(log: CommitLog, physical_offset: int) -> int:
    """Return where the record after the one at ``physical_offset`` starts, or will start."""
    header = log.header(physical_offset)
    following = physical_offset + max(0, int(header["total_size"])) if header is not None else 0
    file = log.files.find(physical_offset)
    header = log.header(following)
    if file and (header is None or int(header["magic"]) == BLANK_MAGIC):
        return file.end
    return following


def records_end(file: MappedFile, *, of_entries: bool = False) -> int:
    """Return the position behind a file's last record; its size, if a blank record is last.

    ``of_entries``: behind the last entry of a DLedger log, committed or not. Follows sizes from
    record to record; what does not look like one ends the walk. Reads the file once, a MiB at a
    time, or less where records are large.
    """
    position, buffer, base = 0, b"", 0
    opened = file.open()
    try:
        while position + BLANK.itemsize <= file.size:
            if position - base + BLANK.itemsize > len(buffer):
                base, buffer = position, opened.read(_CHUNK_BYTES, position)
            if len(buffer) < BLANK.itemsize:
                break
            head = np.frombuffer(buffer, BLANK, 1, position - base)[0]
            size, magic = int(head["total_size"]), int(head["magic"])
            if of_entries:
                size, magic = magic, size  # An entry begins with its magic.
            if magic == (dledger.BLANK_MAGIC if of_entries else BLANK_MAGIC):
                return file.size
            known = (dledger.ENTRY_MAGIC,) if of_entries else RECORD_MAGICS
            if magic not in known or size < MIN_RECORD_BYTES:
                break
            position += size
    finally:
        opened.close()
    return min(position, file.size)


def data_behind(log: CommitLog, tail: int) -> Iterator[tuple[int, Bytes]]:
    """Yield what lies behind ``tail``, in chunks that overlap, as (physical offset, bytes).

    The holes of sparse files are left out: a file of 1 GiB may hold a few KiB.
    """
    for file in log.files.files:
        if file.end <= tail:
            continue
        opened = file.open()
        try:
            position = max(tail - file.start, 0)
            while position < file.size:
                position = opened.next_data(position, file.size)
                data = opened.read(_CHUNK_BYTES, position)
                if not data:
                    break
                yield file.start + position, np.frombuffer(data, np.uint8)
                ended = len(data) < _CHUNK_BYTES
                position += len(data) - (0 if ended else _OVERLAP_BYTES)
        finally:
            opened.close()
