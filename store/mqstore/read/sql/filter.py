"""The filter of an SQL92 expression over a column of properties."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

import mqstore.codec.compute as pc
from mqstore.format.arrays import Mask
from mqstore.read.sql.grammar import compiled
from mqstore.read.sql.machine import Machine
from mqstore.read.sql.program import Program


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """The messages for which an SQL92 expression is true. Pickles."""

    program: Program

    def matches(self, properties: pa.MapArray) -> Mask:
        """Tell for each message (a map<string, string>) whether it passes: bool[n]."""
        column = partial(property_of, properties)
        return Machine(len(properties), column).run(self.program)


def parse_sql(
    text: str | None, *, option: str = "sql", as_broker: bool = False
) -> SqlFilter | None:
    """Return the filter of an expression, None for null. Raises InvalidOptionError.

    The error has the name ``option`` and the place that is not accepted. With ``as_broker``,
    text behind the condition is ignored, as RocketMQ does with the subscription of a group.
    """
    return None if text is None else SqlFilter(compiled(text, option, as_broker=as_broker))


def property_of(properties: pa.MapArray, name: str) -> pa.StringArray:
    """Return the value of one property for every message, null where there is none."""
    edges = properties.offsets.to_numpy()
    places = np.full(len(properties), -1, np.int64)
    hits = np.flatnonzero(pc.equal(properties.keys, name).to_numpy(zero_copy_only=False))
    hits = hits[(hits >= edges[0]) & (hits < edges[-1])]
    places[np.searchsorted(edges, hits, side="right") - 1] = hits
    return pc.take(properties.items, pa.array(places, mask=places < 0))
