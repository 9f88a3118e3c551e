"""The seal of a file that grows: the digest of the last bytes that a point has of it."""

from typing import Final

SEAL_BYTES: Final = 4096


def seal_start(end: int) -> int:
    """Return where the bytes of a seal begin that end at ``end``."""
    return max(end - SEAL_BYTES, 0)
