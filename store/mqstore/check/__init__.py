"""Check a store: every invariant that a broker relies on, as findings. The fsck of a store."""

from mqstore.check.finding import Finding
from mqstore.check.store import check

__all__ = ["Finding", "check"]
