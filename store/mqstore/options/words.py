"""Words that options of reads and arguments of the command accept."""

from typing import Final

ON_CORRUPT: Final = ("fail", "skip", "rescue")
