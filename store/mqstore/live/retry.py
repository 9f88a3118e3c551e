"""Repeats failed requests: the pauses between them, and the time until the last."""

import time
from typing import Final

from mqstore.errors import StoreError
from mqstore.live.connection import NotUnderstoodError

_FIRST_PAUSE_S: Final = 0.1
_LAST_PAUSE_S: Final = 5.0
_NOT_UNDERSTOOD: Final = 2  # A server killed before its first answer looks the same.
NEW_ROUTE_AFTER: Final = 2


class Misunderstandings:
    """Tells a server that will never understand from one that goes away, or comes back."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._has_answered = False

    def answered(self) -> None:
        """Note an answer."""
        self._has_answered = True

    def is_hopeless(self, error: StoreError) -> bool:
        """Note a failure; tell whether there were only NotUnderstoodErrors of late, and no answer.

        So a server that was killed, with something in front of it that accepts connections in
        its place, is not taken for one that speaks TLS only.
        """
        self._in_a_row = self._in_a_row + 1 if isinstance(error, NotUnderstoodError) else 0
        return self._in_a_row > _NOT_UNDERSTOOD and not self._has_answered


class Retry:
    """Counts failures since the last success and pauses between tries, ever longer."""

    def __init__(self, timeout_ms: int, *, understood: bool = False) -> None:
        """``understood``: a server that is spoken to in the same way answered before."""
        self._timeout_s = timeout_ms / 1000
        self._since: float | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._misunderstandings = Misunderstandings()
        if understood:
            self._misunderstandings.answered()
        self.failures = 0

    def succeeded(self) -> None:
        """Begin anew: the next failure is the first."""
        self._since, self._pause_s, self.failures = None, _FIRST_PAUSE_S, 0

    def failed(self, error: StoreError) -> None:
        """Pause, then return to try again; raises ``error`` when the time is over.

        The time counts from the first failure. What no retry mends, such as TLS on one side
        only, is raised after a few.
        """
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        self.failures += 1
        hopeless = self._misunderstandings.is_hopeless(error)
        if hopeless or now + self._pause_s - self._since > self._timeout_s:
            raise error
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LAST_PAUSE_S)

    @property
    def wants_new_route(self) -> bool:
        """Tell whether it is time to ask the name servers where the broker is."""
        return self.failures >= NEW_ROUTE_AFTER
