"""The grammar of SQL92 expressions, as RocketMQ 5.x has it, and what it refuses.

    condition   and (OR and)*
    and         equality (AND equality)*
    equality    comparison ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison  unary ( (> | >= | < | <=) unary | [NOT] BETWEEN unary AND unary
                      | [NOT] IN ('text', …) | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) 'text' )*
    unary       (+ | - | NOT)* ( 'text' | 5 | 1.5 | TRUE | FALSE | NULL | property | (condition) )

So NOT binds closer than a comparison: ``NOT a = 5`` compares ``NOT a`` with 5.

Differs from RocketMQ, whose parser stops where a condition ends and never looks at the rest:
``a > 5 AMD b = 3`` filters by ``a > 5`` there, and is refused here unless ``as_broker``.

Reference: org.apache.rocketmq.filter.parser.SelectorParser, ComparisonExpression#createBetween,
#checkLessThanOperand, #checkEqualOperand, #checkEqualOperandCompatability, #createInFilter,
ConstantExpression#createFromDecimal, #createFloat.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from mqstore.read.sql.program import (
    INT_MAX,
    LONG_MAX,
    Argument,
    Number,
    Op,
    Program,
    SqlStep,
    Width,
)
from mqstore.read.sql.tokens import DECIMAL, END, FLOAT, NAME, TEXT, Token, Words, text_of

MAX_NESTING: Final = 64
_LONG_DIGITS: Final = 19
_ORDERS: Final = (">", ">=", "<", "<=")
_TEXT_TESTS: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_NEGATABLE: Final = ("BETWEEN", "IN", *_TEXT_TESTS)
_OPERAND: Final = "a property, 'text', a number, TRUE, FALSE, NULL, NOT, -, + or ("
_GOES_ON: Final = (
    "AND, OR, =, <>, <, <=, >, >=, IS NULL, BETWEEN, IN, CONTAINS, STARTSWITH, ENDSWITH or the end"
)


class _Kind(Enum):
    """What an operand is to the checks; the value is its name in an error."""

    PROPERTY = "a property"
    NUMBER = "a number"
    TEXT = "text"
    TRUTH = "TRUE or FALSE"
    NULL = "NULL"
    NEGATED = "a value with -"
    CONDITION = "a condition"


_CONSTANTS: Final = frozenset({_Kind.NUMBER, _Kind.TEXT, _Kind.TRUTH, _Kind.NULL})
_CONDITIONS: Final = frozenset({_Kind.CONDITION, _Kind.TRUTH, _Kind.NULL})
_ORDERED: Final = frozenset({_Kind.PROPERTY, _Kind.NUMBER, _Kind.NEGATED})


class _Operand(NamedTuple):
    kind: _Kind
    token: Token
    number: Number | None = None


def compiled(text: str, option: str, *, as_broker: bool = False) -> Program:
    """Return the steps of an expression. Raises InvalidOptionError, which names the place.

    ``as_broker`` ignores what stands behind the condition, as RocketMQ does.
    """
    return _Parser(Words(text, option)).program(as_broker=as_broker)


class _Parser:
    """Recurses at parentheses only, at most MAX_NESTING deep."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._steps: list[SqlStep] = []
        self._depth = 0

    def program(self, *, as_broker: bool) -> Program:
        self._as_condition(self._condition())
        rest = self._words.peek()
        if rest.kind != END and not as_broker:
            hint = ""
            if rest.image.upper() == "LIKE":
                hint = "there is no LIKE: use CONTAINS, STARTSWITH or ENDSWITH; "
            raise self._words.refused(rest, f"{hint}expected {_GOES_ON}")
        return tuple(self._steps)

    def _emit(self, op: Op, argument: Argument = None) -> None:
        self._steps.append((op, argument))

    def _condition(self) -> _Operand:
        left = self._and()
        while self._words.take_if("OR"):
            left = self._logic(Op.OR, left, self._and)
        return left

    def _and(self) -> _Operand:
        left = self._equality()
        while self._words.take_if("AND"):
            left = self._logic(Op.AND, left, self._equality)
        return left

    def _logic(self, op: Op, left: _Operand, parse: Callable[[], _Operand]) -> _Operand:
        self._as_condition(left)
        self._as_condition(parse())
        self._emit(op)
        return _Operand(_Kind.CONDITION, left.token)

    def _equality(self) -> _Operand:
        left = self._comparison()
        while sign := self._words.take_if("=", "<>", "IS"):
            if sign.kind == "IS":
                negated = self._words.take_if("NOT")
                self._words.expect("NULL", "NULL" if negated else "NULL or NOT NULL")
                self._emit(Op.IS_NULL)
            else:
                negated = sign if sign.kind == "<>" else None
                self._check_equal(left, self._comparison())
                self._emit(Op.EQUAL)
            if negated:
                self._emit(Op.NOT)
            left = _Operand(_Kind.CONDITION, left.token)
        return left

    def _comparison(self) -> _Operand:
        left = self._unary()
        while sign := self._words.take_if("NOT", *_ORDERS, *_NEGATABLE):
            if sign.kind in _ORDERS:
                self._check_ordered(left, self._unary())
                self._emit(Op.ORDER, sign.kind)
            elif sign.kind == "NOT":
                test = self._words.take_if(*_NEGATABLE)
                if test is None:
                    accepted = ", ".join(_NEGATABLE)
                    raise self._words.refused(self._words.peek(), f"expected one of {accepted}")
                self._test(left, test, negated=True)
            else:
                self._test(left, sign, negated=False)
            left = _Operand(_Kind.CONDITION, left.token)
        return left

    def _test(self, left: _Operand, test: Token, *, negated: bool) -> None:
        op = Op[f"NOT_{test.kind}" if negated else test.kind]
        if test.kind == "BETWEEN":
            low = self._unary()
            self._words.expect("AND", "AND and the upper end of BETWEEN")
            high = self._unary()
            self._check_ordered(left, low)
            self._check_ordered(left, high)
            if not negated:
                self._check_ends(low, high)
            self._emit(op)
        elif test.kind == "IN":
            if left.kind is not _Kind.PROPERTY:
                raise self._words.refused(left.token, f"IN needs a property, not {left.kind.value}")
            self._emit(op, self._texts())
        else:
            self._emit(op, text_of(self._words.expect(TEXT, "'text'")))

    def _texts(self) -> tuple[str, ...]:
        self._words.expect("(", "('text', …)")
        found = [text_of(self._words.expect(TEXT, "'text'"))]
        while self._words.take_if(","):
            found.append(text_of(self._words.expect(TEXT, "'text'")))
        self._words.expect(")", ", or )")
        return tuple(found)

    def _unary(self) -> _Operand:
        prefixes = []
        while prefix := self._words.take_if("+", "-", "NOT"):
            prefixes.append(prefix)
        found = self._primary()
        for prefix in reversed(prefixes):
            if prefix.kind == "-":
                self._emit(Op.NEGATE)
                found = _Operand(_Kind.NEGATED, prefix)
            elif prefix.kind == "NOT":
                self._as_condition(found)
                self._emit(Op.NOT)
                found = _Operand(_Kind.CONDITION, prefix)
        return found

    def _primary(self) -> _Operand:
        token = self._words.take()
        if token.kind == "(":
            return self._nested(token)
        if token.kind == NAME:
            self._emit(Op.PROPERTY, token.image)
            return _Operand(_Kind.PROPERTY, token)
        if token.kind == TEXT:
            self._emit(Op.TEXT, text_of(token))
            return _Operand(_Kind.TEXT, token)
        if token.kind in (DECIMAL, FLOAT):
            number = self._decimal(token) if token.kind == DECIMAL else self._float(token)
            self._emit(Op.NUMBER, number)
            return _Operand(_Kind.NUMBER, token, number)
        if token.kind in _TRUTHS:
            truth = _TRUTHS[token.kind]
            self._emit(Op.TRUTH, truth)
            return _Operand(_Kind.NULL if truth is None else _Kind.TRUTH, token)
        raise self._words.refused(token, f"expected {_OPERAND}")

    def _nested(self, token: Token) -> _Operand:
        if self._depth == MAX_NESTING:
            raise self._words.refused(token, f"more than {MAX_NESTING} parentheses in one another")
        self._depth += 1
        found = self._condition()
        self._words.expect(")", f") or {_GOES_ON}")
        self._depth -= 1
        return found

    def _decimal(self, token: Token) -> Number:
        digits = token.image.rstrip("lL")
        if len(digits) > _LONG_DIGITS or int(digits) > LONG_MAX:
            raise self._words.refused(token, f"a whole number may be at most {LONG_MAX}")
        value = int(digits)
        return Number(value, Width.INT if value <= INT_MAX else Width.LONG)

    def _float(self, token: Token) -> Number:
        value = float(token.image)
        if not 0 < value < float("inf"):
            raise self._words.refused(
                token, "a number with a point or exponent is of 4.9E-324 to 1.8E308"
            )
        return Number(value, Width.DOUBLE)

    def _as_condition(self, operand: _Operand) -> None:
        if operand.kind is _Kind.PROPERTY:
            self._emit(Op.CAST)
        elif operand.kind not in _CONDITIONS:
            raise self._words.refused(
                operand.token, f"expected a condition, not {operand.kind.value}"
            )

    def _check_ordered(self, *operands: _Operand) -> None:
        for operand in operands:
            if operand.kind not in _ORDERED:
                accepted = "<, <=, >, >= and BETWEEN compare properties and numbers"
                raise self._words.refused(operand.token, f"{accepted}, not {operand.kind.value}")

    def _check_ends(self, low: _Operand, high: _Operand) -> None:
        if low.number is None or high.number is None:
            return
        ends = low.number.value, high.number.value
        if Width.DOUBLE in (low.number.width, high.number.width):
            ends = float(ends[0]), float(ends[1])
        if ends[1] < ends[0]:
            raise self._words.refused(low.token, "the lower end of BETWEEN is above the upper one")

    def _check_equal(self, left: _Operand, right: _Operand) -> None:
        for operand in (left, right):
            if operand.kind is _Kind.NULL:
                raise self._words.refused(operand.token, "nothing equals NULL: write IS NULL")
        if left.kind is _Kind.TRUTH and right.kind in _CONSTANTS - {_Kind.TRUTH}:
            accepted = f"TRUE and FALSE do not compare with {right.kind.value}"
            raise self._words.refused(left.token, accepted)


_TRUTHS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
