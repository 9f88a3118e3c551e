"""Our filter beside RocketMQ's letters: T true, F false, N null, E an exception, or refused."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from mqstore.codec.schema import PROPERTIES_MAP
from mqstore.errors import InvalidOptionError
from mqstore.read.sql.filter import parse_sql

REFUSED = "refused"


def column(messages: Sequence[Mapping[str, str]]) -> pa.MapArray:
    """Return the properties of messages as a scan has them."""
    return pa.array([list(message.items()) for message in messages], PROPERTIES_MAP)


def ours(expression: str, properties: pa.MapArray) -> str:
    """Return REFUSED, or T for each message that passes and a dot for each other."""
    try:
        found = parse_sql(expression, as_broker=True)
    except InvalidOptionError:
        return REFUSED
    assert found is not None
    return "".join("T" if passes else "." for passes in found.matches(properties).tolist())


def theirs(verdict: str) -> str:
    """Return RocketMQ's letters in the same form: only what is true is delivered."""
    return verdict if verdict == REFUSED else "".join("T" if c == "T" else "." for c in verdict)
