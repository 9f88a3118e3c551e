"""Asks several name servers, or proxies, the same at once: a server that is silent holds up nobody.

What a server knows may be missing at another one, so all are asked and their answers are merged.
One that does not answer soon after the others is left behind: its answer is waited for in the
background, and it is asked again once it answered, or a pause after it failed.

Reference: RouteInfoManager (each name server knows what registered at itself since its start).
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from mqstore.errors import StoreError

LATE_S: Final = 1.0
"""So long, and twice the time of the first answer, the others are waited for."""
PAUSE_S: Final = 15.0
"""So long after it failed a server that was late is not asked while another one answers."""
_Reply = TypeVar("_Reply")


class _Asked(Generic[_Reply]):
    """A server that is being asked, in a thread of its own, once ``before`` is done."""

    def __init__(
        self,
        ask: Callable[[], _Reply],
        changed: threading.Condition,
        before: "_Asked[_Reply] | None" = None,
    ) -> None:
        self.answers: list[_Reply] = []
        self.error: Exception | None = None
        self.is_done = False
        self.ended_s = 0.0
        self._ask, self._changed, self._before = ask, changed, before
        self._thread = threading.Thread(target=self._run, name="ask", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        answers, error = [], None
        if self._before is not None:  # It uses the same connection.
            self._before._thread.join()
            self._before = None
        try:
            answers.append(self._ask())
        except Exception as failure:  # noqa: BLE001 - raised in the thread that asked
            error = failure
        with self._changed:
            self.answers, self.error = answers, error
            self.is_done, self.ended_s = True, time.monotonic()
            self._changed.notify_all()

    @property
    def failure(self) -> StoreError | None:
        """Why there is no answer; None: it is not known yet. Raises what is no StoreError."""
        if self.error is not None and not isinstance(self.error, StoreError):
            raise self.error
        return self.error


class SideBySide(Generic[_Reply]):
    """Asks servers side by side, and notes which of them are late."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._late: dict[str, _Asked[_Reply]] = {}

    def ask(
        self, addresses: Sequence[str], ask: Callable[[str], _Reply]
    ) -> tuple[dict[str, _Reply], dict[str, StoreError | None]]:
        """Return the answers by address, and what failed; None: it is late.

        Servers that were late before are asked only if no other one answers.
        """
        if len(addresses) == 1:
            try:
                return {addresses[0]: ask(addresses[0])}, {}
            except StoreError as error:
                return {}, {addresses[0]: error}
        self._late = {address: one for address, one in self._late.items() if self._is_late(one)}
        usable = [address for address in addresses if address not in self._late]
        answers, failures = self._round(usable, ask)
        if answers:
            return answers, failures | {a: one.failure for a, one in self._late.items()}
        left = [address for address in addresses if address not in usable]
        more, errors = self._round(left, ask)
        return more, failures | errors

    def _is_late(self, one: _Asked[_Reply]) -> bool:
        if not one.is_done:
            return True
        return one.error is not None and time.monotonic() < one.ended_s + PAUSE_S

    def _round(
        self, addresses: Sequence[str], ask: Callable[[str], _Reply]
    ) -> tuple[dict[str, _Reply], dict[str, StoreError | None]]:
        asked = {
            address: _Asked(partial(ask, address), self._changed, self._late.pop(address, None))
            for address in addresses
        }
        self._wait(list(asked.values()))
        answers: dict[str, _Reply] = {}
        failures: dict[str, StoreError | None] = {}
        for address, one in asked.items():
            if one.answers:
                answers[address] = one.answers[0]
            else:
                failures[address] = one.failure
            if not one.is_done:
                self._late[address] = one
        return answers, failures

    def _wait(self, asked: Sequence[_Asked[_Reply]]) -> None:
        """Return when all are done, or some time after the first answer."""
        begin, until = time.monotonic(), None
        with self._changed:
            while not all(one.is_done for one in asked):
                now = time.monotonic()
                if until is None and any(one.answers for one in asked):
                    until = now + LATE_S + 2 * (now - begin)
                if until is not None and now >= until:
                    return
                self._changed.wait(None if until is None else until - now)
