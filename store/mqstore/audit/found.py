"""A difference that an audit found: its kind, and the messages on both sides."""

from dataclasses import dataclass
from typing import Final

NOT_IN_SECOND: Final = "missing"
NOT_IN_FIRST: Final = "extra"
DOUBLED: Final = "doubled"
ALTERED: Final = "altered"


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """Where a message lies, and when it was stored (epoch ms)."""

    broker: str
    topic: str
    queue_id: int
    queue_offset: int
    stored_ms: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One message in which the places differ: in ``kind``, of which ``fields``.

    ``missing`` lies in the first place only, ``extra`` in the second only; ``doubled`` lies more
    often in one than in the other. ``first`` and ``second`` say where, None where not.
    """

    kind: str
    first: MessagePlace | None
    second: MessagePlace | None
    message_id: str | None = None
    fields: tuple[str, ...] = ()
