"""Runs the steps of an SQL92 expression over the properties of many messages at once.

A condition is TRUE, FALSE, NULL or INVALID for each message, and logic looks those up in tables.
NULL is the unknown of SQL; INVALID is an exception in RocketMQ: text that is not the number it is
compared with. As there, the left side decides first: ``FALSE AND invalid`` is FALSE, ``invalid
AND FALSE`` is INVALID. A message passes if the condition is TRUE.

Reference: org.apache.rocketmq.filter.expression.ComparisonExpression#doCreateEqual, #evaluate,
#__compare, LogicExpression, UnaryExpression; ExpressionMessageFilter#isMatchedByCommitLog.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import mqstore.codec.compute as pc
from mqstore.format.arrays import Mask
from mqstore.read.sql.conversions import NumberKeys, key_of, keys_of, truths_of
from mqstore.read.sql.program import Argument, Number, Op, Program, Width

Truths: TypeAlias = NDArray[np.uint8]
"""FALSE, TRUE, NULL or INVALID of n messages, or one for all."""

FALSE: Final = 0
TRUE: Final = 1
NULL: Final = 2
INVALID: Final = 3

# Row: the left side, column: the right one.
_AND: Final = np.array([[0, 0, 0, 0], [0, 1, 2, 3], [0, 2, 2, 3], [3, 3, 3, 3]], np.uint8)
_OR: Final = np.array([[0, 1, 2, 3], [1, 1, 1, 1], [2, 1, 2, 3], [3, 3, 3, 3]], np.uint8)
_EQUAL: Final = np.array([[1, 0, 0, 3], [0, 1, 0, 3], [2, 2, 1, 3], [3, 3, 3, 3]], np.uint8)
# Where one side at least is NULL or INVALID; the first one of them decides.
_ORDER_STATES: Final = np.array([[0, 0, 2, 3], [0, 0, 2, 3], [2, 2, 2, 2], [3, 3, 3, 3]], np.uint8)
_NOT: Final = np.array([TRUE, FALSE, NULL, INVALID], np.uint8)
_NEGATE: Final = np.array([NULL, NULL, NULL, INVALID], np.uint8)
_IS_NULL: Final = np.array([FALSE, FALSE, TRUE, INVALID], np.uint8)
_COMPARED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class _Texts:
    """Text of n messages, null for none, or one text for all. Each is converted once."""

    def __init__(self, values: pa.StringArray) -> None:
        self.values = values
        self._keys: dict[Width, NumberKeys] = {}

    @property
    def nulls(self) -> Truths:
        """NULL where there is no text, TRUE where there is."""
        if not self.values.null_count:
            return np.full(1, TRUE, np.uint8)
        is_null = self.values.is_null().to_numpy(zero_copy_only=False)
        return np.where(is_null, NULL, TRUE).astype(np.uint8)

    def keys(self, width: Width) -> NumberKeys:
        """Return what the texts are as numbers."""
        if width not in self._keys:
            self._keys[width] = keys_of(self.values, width)
        return self._keys[width]


_Value: TypeAlias = _Texts | Number | Truths


@dataclass(frozen=True, slots=True)
class Machine:
    """One batch of n messages; ``column`` gives a property of all of them, null for none."""

    count: int
    column: Callable[[str], pa.StringArray]

    def run(self, program: Program) -> Mask:
        """Tell which messages pass: bool[n]."""
        stack: list[_Value] = []
        texts: dict[str, _Texts] = {}
        for op, argument in program:
            if op is Op.PROPERTY:
                name = str(argument)
                if name not in texts:
                    texts[name] = _Texts(self.column(name))
                stack.append(texts[name])
            else:
                taken, work = _WORK[op]
                operands = [stack.pop() for _ in range(taken)]
                stack.append(work(argument, *reversed(operands)))
        passed: Mask = np.broadcast_to(_truths(stack.pop()) == TRUE, self.count)
        return passed


def _one_text(argument: Argument) -> _Texts:
    return _Texts(pa.array([argument], pa.string()))


def _one_number(argument: Argument) -> Number:
    assert isinstance(argument, Number)
    return argument


def _one_truth(argument: Argument) -> Truths:
    return np.full(1, NULL if argument is None else bool(argument), np.uint8)


def _cast(value: _Value) -> Truths:
    """Return a property as a condition: text is no boolean, so it is never TRUE."""
    return np.where(_truths(value) == NULL, NULL, FALSE).astype(np.uint8)


def _negate(value: _Value) -> _Value:
    if isinstance(value, Number):
        return Number(-value.value, value.width)
    nothing: Truths = _NEGATE[_truths(value)]
    return nothing


def _truths(value: _Value) -> Truths:
    """Return a condition's truths; of text and numbers TRUE, but NULL where there is none."""
    if isinstance(value, _Texts):
        return value.nulls
    return np.full(1, TRUE, np.uint8) if isinstance(value, Number) else value


def _looked_up(table: Truths, left: Truths, right: Truths) -> Truths:
    found: Truths = table[left, right]
    return found


def _as_truths(mask: Mask, valid: Mask) -> Truths:
    return np.where(valid, mask, INVALID).astype(np.uint8)


def _equal(left: _Value, right: _Value) -> Truths:
    states = _truths(left), _truths(right)
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return _looked_up(_EQUAL, left, right)
    open_ = (states[0] < NULL) & (states[1] < NULL)
    return np.where(open_, _equal_values(left, right), _EQUAL[states]).astype(np.uint8)


def _equal_values(left: _Value, right: _Value) -> Truths:
    """Compare values that are there; what stands for others is left out by the caller."""
    if isinstance(left, _Texts) and isinstance(right, _Texts):
        return _as_truths(_same(left.values, right.values), np.ones(1, np.bool_))
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        if isinstance(left, _Texts):  # Text is read as a boolean, a boolean not as text.
            same: Truths = (truths_of(left.values) == right).astype(np.uint8)
            return same
        return np.full(1, INVALID if isinstance(right, _Texts) else FALSE, np.uint8)
    return _compared(operator.eq, left, right)


def _same(left: pa.StringArray, right: pa.StringArray) -> Mask:
    if len(right) == 1:
        right = right[0]
    elif len(left) == 1:
        left = left[0]
    found: Mask = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _order(sign: Argument, left: _Value, right: _Value) -> Truths:
    states = _truths(left), _truths(right)
    unknown = (states[0] >= NULL) | (states[1] >= NULL)
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        # Only a value with - gets here that is no number: NULL or INVALID for all messages.
        return _looked_up(_ORDER_STATES, *states)
    values = _compared(_COMPARED[str(sign)], left, right)
    return np.where(unknown, _ORDER_STATES[states], values).astype(np.uint8)


def _compared(compare: Callable[[Any, Any], Any], left: _Value, right: _Value) -> Truths:
    """Compare text and numbers: text as the number beside it, two texts as doubles."""
    widths = [value.width for value in (left, right) if isinstance(value, Number)]
    width = Width.DOUBLE
    if widths:
        width = max(widths, key=lambda width: width.value)
    left_keys, left_valid = _keys(left, width)
    right_keys, right_valid = _keys(right, width)
    return _as_truths(compare(left_keys, right_keys), left_valid & right_valid)


def _keys(value: _Value, width: Width) -> NumberKeys:
    if isinstance(value, _Texts):
        return value.keys(width)
    assert isinstance(value, Number)
    return np.array([key_of(value, width)], np.int64), np.ones(1, np.bool_)


def _between(value: _Value, low: _Value, high: _Value) -> Truths:
    return _looked_up(_AND, _order(">=", value, low), _order("<=", value, high))


def _not_between(value: _Value, low: _Value, high: _Value) -> Truths:
    return _looked_up(_OR, _order("<", value, low), _order(">", value, high))


def _is_in(texts: Argument, value: _Value) -> Truths:
    assert isinstance(value, _Texts)
    wanted = pa.array(texts, pa.string())
    found = pc.is_in(value.values, value_set=wanted).to_numpy(zero_copy_only=False)
    return np.where(value.nulls == NULL, NULL, found).astype(np.uint8)


def _finds(function: str, *, negated: bool = False) -> Callable[[Argument, _Value], Truths]:
    """Return a test of text by a function of Arrow's.

    The empty pattern, and what is no text, is FALSE either way.
    """

    def found(pattern: Argument, value: _Value) -> Truths:
        if not pattern:
            return np.full(1, FALSE, np.uint8)
        if not isinstance(value, _Texts):
            return np.where(_truths(value) == INVALID, INVALID, FALSE).astype(np.uint8)
        hits = getattr(pc, function)(value.values, pattern=pattern).fill_null(negated)
        mask: Mask = hits.to_numpy(zero_copy_only=False)
        return (mask ^ negated).astype(np.uint8)

    return found


_Work: TypeAlias = Callable[..., _Value]

_WORK: Final[dict[Op, tuple[int, _Work]]] = {
    Op.TEXT: (0, _one_text),
    Op.NUMBER: (0, _one_number),
    Op.TRUTH: (0, _one_truth),
    Op.NEGATE: (1, lambda _, value: _negate(value)),
    Op.CAST: (1, lambda _, value: _cast(value)),
    Op.NOT: (1, lambda _, value: _NOT[_truths(value)]),
    Op.IS_NULL: (1, lambda _, value: _IS_NULL[_truths(value)]),
    Op.AND: (2, lambda _, left, right: _looked_up(_AND, left, right)),
    Op.OR: (2, lambda _, left, right: _looked_up(_OR, left, right)),
    Op.EQUAL: (2, lambda _, left, right: _equal(left, right)),
    Op.ORDER: (2, _order),
    Op.BETWEEN: (3, lambda _, value, low, high: _between(value, low, high)),
    Op.NOT_BETWEEN: (3, lambda _, value, low, high: _not_between(value, low, high)),
    Op.IN: (1, _is_in),
    Op.NOT_IN: (1, lambda texts, value: _NOT[_is_in(texts, value)]),
    Op.CONTAINS: (1, _finds("match_substring")),
    Op.NOT_CONTAINS: (1, _finds("match_substring", negated=True)),
    Op.STARTSWITH: (1, _finds("starts_with")),
    Op.NOT_STARTSWITH: (1, _finds("starts_with", negated=True)),
    Op.ENDSWITH: (1, _finds("ends_with")),
    Op.NOT_ENDSWITH: (1, _finds("ends_with", negated=True)),
}
