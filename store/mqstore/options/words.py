"""Words and kinds of text that options of reads and arguments of the command accept."""

from typing import Final


class Sql92(str):
    """A subscription that is an SQL92 expression, where other text is a tag expression."""

    __slots__ = ()


ON_CORRUPT: Final = ("fail", "skip", "rescue")
