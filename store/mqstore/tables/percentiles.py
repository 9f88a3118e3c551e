"""Percentiles of durations: exact of a hundred thousand values, beyond that by a sketch.

The sketch is a t-digest of Apache DataSketches: its bytes do not grow with the values, and its
percentiles are off by less than one percent of the values, at the tail by less. The largest value
is always exact.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from mqstore.errors import InvalidOptionError
from mqstore.format.arrays import Int64s

if TYPE_CHECKING:
    from datasketches import tdigest_double

MAX_EXACT: Final = 100_000
PERCENTILES: Final = (0.5, 0.95, 0.99)
_DIGEST_K: Final = 1_000  # 22 KB a digest.


class Durations:
    """Durations in ms, of which the percentiles are asked. Values come in any number of parts."""

    def __init__(self) -> None:
        self.count = 0
        self._parts: list[Int64s] = []
        self._digest: tdigest_double | None = None
        self._largest: int | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the percentiles are those of the values themselves."""
        return self._digest is None

    @property
    def held(self) -> int:
        """The number of values that are kept as they are."""
        return self.count if self.is_exact else 0

    def add(self, values: Int64s) -> None:
        """Add values; raises InvalidOptionError where more than MAX_EXACT need a sketch."""
        if not len(values):
            return
        self.count += len(values)
        largest = int(values.max())
        self._largest = largest if self._largest is None else max(self._largest, largest)
        self._parts.append(values)
        if self._digest is not None or self.count > MAX_EXACT:
            self.sketch()

    def sketch(self) -> None:
        """Keep a sketch of the values in their place."""
        if self._digest is None:
            self._digest = _digest()
        for part in self._parts:
            self._digest.update(part.astype(np.float64))
        self._parts.clear()

    def percentiles(self) -> tuple[float | None, ...]:
        """Return those of PERCENTILES, then the largest value; None without values.

        Exact ones are the least value that at least that share of the values does not exceed.
        """
        if self._largest is None:
            return (None,) * (len(PERCENTILES) + 1)
        if self._digest is not None:
            found = [float(self._digest.get_quantile(share)) for share in PERCENTILES]
        else:
            every = np.concatenate(self._parts)
            found = np.quantile(every, PERCENTILES, method="inverted_cdf").tolist()
        return (*(float(value) for value in found), float(self._largest))


def _digest() -> "tdigest_double":
    try:
        from datasketches import tdigest_double  # noqa: PLC0415 - only large data needs it
    except ImportError:
        expected = (
            f"has more than {MAX_EXACT:,} durations of one kind, for which percentiles need a "
            "package: pip install datasketches; or choose fewer messages (startingTimestamp, "
            "subscribe, interval, byQueue)"
        )
        raise InvalidOptionError("table", "latency", expected) from None
    return tdigest_double(_DIGEST_K)
