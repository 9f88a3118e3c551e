"""Repeats failed requests: the pauses between them, and the time until the last."""

import time
from typing import Final

from mqstore.errors import StoreError
from mqstore.live.remoting.connection import NotUnderstoodError

_FIRST_PAUSE_S: Final = 0.1
_LAST_PAUSE_S: Final = 5.0
NEW_ROUTE_AFTER: Final = 2


class Retry:
    """Counts failures since the last success and pauses between tries, ever longer."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        self._since: float | None = None
        self._pause_s = _FIRST_PAUSE_S
        self.failures = 0

    def succeeded(self) -> None:
        """Begin anew: the next failure is the first."""
        self._since, self._pause_s, self.failures = None, _FIRST_PAUSE_S, 0

    def failed(self, error: StoreError) -> None:
        """Pause, then return to try again; raises ``error`` when the time is over.

        The time counts from the first failure. What no retry mends, such as TLS on one side
        only (NotUnderstoodError), is raised at once.
        """
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        self.failures += 1
        is_hopeless = isinstance(error, NotUnderstoodError)
        if is_hopeless or now + self._pause_s - self._since > self._timeout_s:
            raise error
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LAST_PAUSE_S)

    @property
    def wants_new_route(self) -> bool:
        """Tell whether it is time to ask the name servers where the broker is."""
        return self.failures >= NEW_ROUTE_AFTER
