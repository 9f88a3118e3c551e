"""The state of brokers during a send: when to try one again, and which to pass over.

A broker that failed is tried again after a pause that grows. With latencyFaultTolerance one
that was slow, or failed, is passed over for a while by messages that any queue will do for.

Reference: MQFaultStrategy (5.x: latencyMax, notAvailableDuration), LatencyFaultToleranceImpl.
"""

import time
from dataclasses import dataclass
from typing import Final

FIRST_PAUSE_S: Final = 0.05
LAST_PAUSE_S: Final = 5.0
_PASSED_OVER_S: Final = ((15.0, 30.0), (5.0, 10.0), (3.0, 6.0), (1.8, 5.0), (0.55, 2.0))
"""A request that took so long, or longer: for how long its broker is passed over."""
_FAILED_S: Final = 10.0  # MQFaultStrategy#updateFaultItem takes a failure for one this slow.


@dataclass(slots=True)
class _State:
    failures: int = 0
    pause_s: float = FIRST_PAUSE_S
    ready_at: float = 0.0
    passed_over_until: float = 0.0


class BrokerStates:
    """The brokers of a sender by name; times are of time.monotonic."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}

    def answered(self, broker: str, seconds: float) -> None:
        """Note that a request was done in that time."""
        state = self._state(broker)
        state.failures, state.pause_s, state.ready_at = 0, FIRST_PAUSE_S, 0.0
        self._pass_over(state, seconds)

    def failed(self, broker: str) -> int:
        """Note a failure; return how many there were since the last success."""
        state = self._state(broker)
        state.failures += 1
        state.ready_at = time.monotonic() + state.pause_s
        state.pause_s = min(2 * state.pause_s, LAST_PAUSE_S)
        self._pass_over(state, _FAILED_S)
        return state.failures

    def ready_at(self, broker: str) -> float:
        """Return when the broker may be tried again; a time that is over if it may be now."""
        return self._state(broker).ready_at

    def is_passed_over(self, broker: str) -> bool:
        """Tell whether the broker was slow, or failed, a short while ago."""
        return self._state(broker).passed_over_until > time.monotonic()

    def _state(self, broker: str) -> _State:
        return self._states.setdefault(broker, _State())

    def _pass_over(self, state: _State, seconds: float) -> None:
        pause = next((pause for least, pause in _PASSED_OVER_S if seconds >= least), 0.0)
        state.passed_over_until = time.monotonic() + pause
