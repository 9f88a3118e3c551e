"""Limits a sender to a number of messages and bytes a second.

After each request the next one waits as long as its messages take at that rate, so that no second
has more. Requests that are small beside the rate keep it even.
"""

import time
from dataclasses import dataclass
from typing import Final

NO_LIMIT: Final = float("inf")


@dataclass(slots=True)
class Pace:
    """Limits of messages and bytes a second, NO_LIMIT for none; times are of time.monotonic."""

    messages_per_s: float = NO_LIMIT
    bytes_per_s: float = NO_LIMIT
    ready_at: float = 0.0
    """When the next request may be sent; a time that is over if it may be now."""

    def sent(self, messages: int, size: int) -> None:
        """Note that a request with so many messages and bytes was sent now."""
        pause = max(messages / self.messages_per_s, size / self.bytes_per_s)
        self.ready_at = max(self.ready_at, time.monotonic()) + pause
