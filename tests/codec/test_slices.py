"""Slices of a buffer: right also where the first and the last are farther apart than 2 GiB."""

import mmap
from pathlib import Path

import numpy as np

from mqstore.codec.slices import slices


def test_slices_of_a_mapped_file_may_lie_gibibytes_apart(tmp_path: Path) -> None:
    starts = np.array([10, 3 << 30, (3 << 30) + 4, (5 << 30) - 4])
    with (tmp_path / "sparse").open("w+b") as file:
        file.truncate(5 << 30)
        for number, start in enumerate(starts.tolist()):
            file.seek(start)
            file.write(b"abc%d" % number)
        file.flush()
        mapping = mmap.mmap(file.fileno(), 5 << 30, prot=mmap.PROT_READ)
    buffer = np.frombuffer(mapping, np.uint8)
    found = slices(buffer, starts, np.array([4, 4, 3, 4]))
    found.validate(full=True)
    assert found.to_pylist() == [b"abc0", b"abc1", b"abc", b"abc3"]
