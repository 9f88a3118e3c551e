"""A stream that is named in its errors: a full disk there is not one of the store."""

import io
from typing import Any


class NamedStream(io.FileIO):
    """Writes to a descriptor; errors have ``shown_name`` as their file."""

    def __init__(self, fd: int, shown_name: str, *, closefd: bool = True) -> None:
        """Take the descriptor; ``closefd``: close it too."""
        super().__init__(fd, "w", closefd=closefd)
        self._shown_name = shown_name

    def write(self, data: Any) -> int:
        """Write as FileIO does."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self._shown_name
            raise
