"""Repeats failed requests: the pauses between them, and the time until the last."""

import math
import time
from typing import Final

from mqstore.errors import StoreError
from mqstore.live.remoting.connection import NotUnderstoodError
from mqstore.live.remoting.errors import BrokerTimeoutError

_FIRST_PAUSE_S: Final = 0.1
_LAST_PAUSE_S: Final = 5.0
NEW_ROUTE_AFTER: Final = 2


class Retry:
    """Counts failures since the last success and pauses between tries, ever longer."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        self._since: float | None = None
        self._begun: float | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._was_silent = False
        self.failures = 0

    def begins(self) -> None:
        """Note that a try begins: what it waits in vain counts as time of failures."""
        self._begun = time.monotonic()

    def succeeded(self) -> None:
        """Begin anew: the next failure is the first."""
        self._since, self._pause_s, self.failures = None, _FIRST_PAUSE_S, 0
        self._was_silent = False

    def failed(self, error: StoreError) -> None:
        """Pause, then return to try again; raises ``error`` when the time is over.

        The time counts from the begin of the first try that failed. What no retry mends, such as
        TLS on one side only (NotUnderstoodError), is raised at once.
        """
        now = time.monotonic()
        if self._since is None:
            self._since = now if self._begun is None else self._begun
        self._was_silent = isinstance(error, BrokerTimeoutError)
        self.failures += 1
        is_hopeless = isinstance(error, NotUnderstoodError)
        if is_hopeless or now + self._pause_s - self._since > self._timeout_s:
            raise error
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LAST_PAUSE_S)

    @property
    def until(self) -> float:
        """Return when the next try must have its answer (monotonic seconds).

        Infinite for the first one, and where the one before did not fail by silence.
        """
        if self._since is None or not self._was_silent:
            return math.inf
        return self._since + self._timeout_s

    @property
    def wants_new_route(self) -> bool:
        """Tell whether it is time to ask the name servers where the broker is."""
        return self.failures >= NEW_ROUTE_AFTER
