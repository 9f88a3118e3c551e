"""The errors of copies and points.

StoreError
├── OtherStoreError           a store that does not go on from the points of a repository
└── ClockJumpError            a clock that is far ahead of the last point and of the store
"""

from mqstore.errors import StoreError


class OtherStoreError(StoreError):
    """A store whose CommitLog does not go on from the last point of a repository.

    ``number``, ``source`` and ``broker_name`` are the point's; ``reason`` says what differs.
    """

    condition = "MQLOG_OTHER_STORE"
    text = (
        "{path}: not the store whose points are in {repository}: {reason!s}. Point {number} was "
        "made of {source}, broker {broker_name}. Name another repository; if this store is meant "
        "to go on there, --accept-other-store says so"
    )
    path: str
    repository: str
    number: int
    source: str
    broker_name: str
    reason: str


class ClockJumpError(StoreError):
    """The clock of the machine is more than a day ahead of the last point and of the store."""

    condition = "MQLOG_CLOCK_JUMP"
    text = (
        "the clock of this machine says {now}, more than a day after point {number} and after "
        "what the store's broker wrote last, at {seen}. If the clock is right, --accept-clock says "
        "so; rules of --keep and REPO@TIME go by it"
    )
    now: str
    number: int
    seen: str
