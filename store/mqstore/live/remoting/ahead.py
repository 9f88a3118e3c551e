"""Answers that were asked for ahead, of all brokers at once, for the plan that asks one by one.

A look asks every broker what its plan will need. The answers stand for ``AHEAD_S``: a plan that
takes longer asks again. What was read from an answer is kept as long as the broker gives the same
one, byte by byte.
"""

import hashlib
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import Request

AHEAD_S: Final = 30.0
_DIGEST_BYTES: Final = 16
_Answer = tuple[Frame, str]
_Read = TypeVar("_Read")


class Ahead:
    """Answers of the last look by broker and request, and what was read from them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = float("-inf")
        self._answers: dict[Hashable, _Answer] = {}
        self._made: dict[str, Any] = {}
        self._read: dict[Hashable, tuple[bytes, Any]] = {}

    def begin(self) -> None:
        """Forget the answers of the look before."""
        self._answers.clear()
        self._made.clear()
        self.settle()

    def settle(self) -> None:
        """Have the answers stand for ``AHEAD_S`` from now on."""
        self._until = self._clock() + AHEAD_S

    def made(self, name: str, make: Callable[[], _Read]) -> _Read:
        """Return ``make()``, or what it returned before in this look."""
        if self._clock() >= self._until:
            return make()
        if name not in self._made:
            self._made[name] = make()
        found: _Read = self._made[name]
        return found

    def note(self, broker: str, request: Request, answer: _Answer) -> None:
        """Keep an answer for the plan of this look."""
        self._answers[_key(broker, request)] = answer

    def get(self, broker: str, request: Request) -> _Answer | None:
        """Return the answer that was asked for ahead; None: it is to be asked for."""
        if not self._answers or self._clock() >= self._until:
            return None
        return self._answers.get(_key(broker, request))

    def forget(self, broker: str, request: Request) -> None:
        """Have a request asked anew."""
        self._answers.pop(_key(broker, request), None)

    def read(self, broker: str, name: Hashable, answer: Frame, parse: Callable[[], _Read]) -> _Read:
        """Return ``parse()``, or what it returned before for an answer with the same bytes.

        ``name`` tells apart what is read from answers of one broker. The value is shared: it must
        not be changed.
        """
        digest = body_digest(answer)
        kept = self._read.get((broker, name))
        if kept is None or kept[0] != digest:
            kept = self._read[broker, name] = digest, parse()
        found: _Read = kept[1]
        return found


def body_digest(answer: Frame) -> bytes:
    """Return what tells the body of an answer from another one."""
    return hashlib.blake2b(answer.body, digest_size=_DIGEST_BYTES).digest()


def _key(broker: str, request: Request) -> Hashable:
    return broker, request.code, tuple(request.fields.items())
