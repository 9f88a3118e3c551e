"""An SQL92 expression as steps for a stack machine: nothing recurses when messages are tested.

A step takes its operands off the stack and puts its result there; ``grammar`` writes steps,
``machine`` runs them over the properties of many messages at once.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class Width(Enum):
    """Java's type of a number: a property's text is read as what it is compared with."""

    INT = auto()
    LONG = auto()
    DOUBLE = auto()


class Op(Enum):
    """What a step does; a comment names its argument."""

    PROPERTY = auto()  # the name
    TEXT = auto()  # the text
    NUMBER = auto()  # a Number
    TRUTH = auto()  # True, False or None
    NEGATE = auto()
    CAST = auto()  # a property alone, as a condition
    NOT = auto()
    AND = auto()
    OR = auto()
    EQUAL = auto()
    IS_NULL = auto()
    ORDER = auto()  # the sign: > >= < <=
    BETWEEN = auto()
    NOT_BETWEEN = auto()
    IN = auto()  # the texts
    NOT_IN = auto()  # the texts
    CONTAINS = auto()  # the text, as of the five below
    NOT_CONTAINS = auto()
    STARTSWITH = auto()
    NOT_STARTSWITH = auto()
    ENDSWITH = auto()
    NOT_ENDSWITH = auto()


@dataclass(frozen=True, slots=True)
class Number:
    """A number of an expression."""

    value: int | float
    width: Width


Argument: TypeAlias = str | tuple[str, ...] | Number | bool | None
SqlStep: TypeAlias = tuple[Op, Argument]
Program: TypeAlias = tuple[SqlStep, ...]
