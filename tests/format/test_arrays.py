"""Memory that is used again when nothing refers to it."""

import numpy as np

from mqstore.format.arrays import Recycled


def test_memory_is_used_again_once_nothing_refers_to_it() -> None:
    memory = Recycled(most=2)
    first = np.frombuffer(memory.take(1000), np.uint8)
    where, part = first.ctypes.data, first[10:20]
    del first
    other = np.frombuffer(memory.take(1000), np.uint8)
    assert other.ctypes.data != where, "a part of the first is in use"
    part[:] = 7
    other[:] = 1
    assert part.tolist() == [7] * 10
    del part
    assert np.frombuffer(memory.take(900), np.uint8).ctypes.data == where


def test_memory_that_is_much_too_large_is_let_go() -> None:
    memory = Recycled(most=1)
    assert len(memory.take(1 << 20)) == 1 << 20
    assert len(memory.take(100)) == 100
    assert [len(held) for held, _ in memory._held] == [125]
