"""Work that may take long, in a thread of its own, which its caller does not wait for."""

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

GLANCE_S: Final = 0.2
"""So long the caller is held up at the start: most work is done by then."""
_Result = TypeVar("_Result")


class Background(Generic[_Result]):
    """One call in a daemon thread."""

    def __init__(self, call: Callable[[], _Result]) -> None:
        """Start it, and wait for ``GLANCE_S`` at most."""
        self._call = call
        self._results: list[_Result] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="background", daemon=True)
        self._thread.start()
        self._thread.join(GLANCE_S)

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except Exception as error:  # noqa: BLE001 - raised where the result is asked for
            self._error = error

    @property
    def is_done(self) -> bool:
        """Tell whether ``result`` returns at once."""
        return not self._thread.is_alive()

    def result(self) -> _Result:
        """Return what the call returned, when it has; raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]
