"""Change a record that is in the CommitLog already, durably.

Only recovery does this, to records of ours that a broker brought to life out of their order. The
body's CRC covers neither field, and nothing behind the body.
"""

import numpy as np

from mqstore.files import durable
from mqstore.files.log.commit_log import CommitLog
from mqstore.files.new_file import opened
from mqstore.format.message import HEADER


def restore(log: CommitLog, physical_offset: int, record: bytes) -> None:
    """Write a record of ours again to its place. Raises OSError, UnsafePathError."""
    path, position = log.where(physical_offset)
    with opened(path) as fd:
        durable.write_at(fd, record, position)
        durable.fsync(fd)


def amend(log: CommitLog, physical_offset: int, field: str, value: int) -> None:
    """Set one field of the record's header. Raises OSError, UnsafePathError."""
    path, position = log.where(physical_offset)
    kind, at = HEADER.fields[field][:2]  # type: ignore[index]
    with opened(path) as fd:
        durable.write_at(fd, np.array(value, kind).tobytes(), position + at)
        durable.fsync(fd)
