"""A tally of units by key and start."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mqstore.backlog.tally import NONE, Tally
from mqstore.read.units import units_at


@given(data=st.data())
def test_a_tally_counts_as_a_loop_does(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 12), max_size=6))
    begin, total = data.draw(st.integers(0, 5)), sum(lengths)
    starts = sorted(data.draw(st.sets(st.integers(0, begin + total + 3), max_size=6)))
    tally = Tally(np.array(starts, np.int64))
    key_count, position = 1, begin
    units: list[tuple[int, int, int]] = []
    for length in lengths:
        key_count += data.draw(st.sampled_from([0, 0, 1, 90]))
        keys = data.draw(st.lists(st.integers(0, key_count - 1), min_size=length, max_size=length))
        sizes = np.arange(position, position + length, dtype=np.int64) + 7
        batch = units_at(("T", 0, "b"), np.arange(position, position + length), sizes * 10, sizes)
        tally.add(batch, np.array(keys, np.intp), key_count)
        units += zip(range(position, position + length), keys, sizes.tolist(), strict=True)
        position += length
    tally.accumulate()
    for row, start in enumerate(starts):
        for key in range(tally.counts.shape[1]):
            behind = [unit for unit in units if unit[0] >= start and unit[1] == key]
            assert tally.counts[row, key] == len(behind)
            assert tally.bytes[row, key] == sum(size for *_, size in behind)
            assert tally.first[row, key] == min((unit[0] for unit in behind), default=NONE)
            if behind:
                where, places, sizes = tally.noted(tally.first[row])
                index = where.tolist().index(behind[0][0])
                assert (places[index], sizes[index]) == (behind[0][2] * 10, behind[0][2])
