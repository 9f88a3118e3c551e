"""The words of an SQL92 expression: names, literals, operators, each with its place.

Reserved words stand in any case, names of properties are case-sensitive. ``-- …`` up to the end
of its line and ``/* … */`` are comments. As in RocketMQ, a comment with ``--`` on a last line that
has no line end is no comment.

Reference: the token definitions of org.apache.rocketmq.filter.parser.SelectorParser.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from mqstore.errors import InvalidOptionError

MAX_SQL_CHARS: Final = 65_536
END: Final = "end"
NAME: Final = "name"
TEXT: Final = "text"
DECIMAL: Final = "decimal"
FLOAT: Final = "float"
RESERVED_WORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "IS", "TRUE", "FALSE", "NULL"}
    | {"CONTAINS", "STARTSWITH", "ENDSWITH"}
)

_EXCERPT_CHARS: Final = 20
_SQL_TOKEN: Final = re.compile(
    r"""
      (?P<skip>  [ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) | /\*[\s\S]*?\*/ )
    | (?P<float> (?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<decimal> 0 | [1-9][0-9]*[lL]? )
    | (?P<text>  '(?:''|[^'])*' )
    | (?P<name>  [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<sign>  <> | <= | >= | [=<>(),+-] )
    """,
    re.VERBOSE,
)
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
_HINTS: Final = {
    '"': "text stands between single quotes, a property's name is not quoted",
    "'": "the text has no closing quote",
    "!": "write <> for not equal",
    "%": "there is no arithmetic",
    "*": "there is no arithmetic",
    "/": "there is no arithmetic",
    ".": "a property's name has letters, digits, _ and $ only",
}


class Token(NamedTuple):
    """``kind`` is END, NAME, TEXT, DECIMAL, FLOAT, a reserved word in upper case, or a sign."""

    kind: str
    image: str
    place: int


class Words:
    """The tokens of one expression, read one ahead; raises InvalidOptionError where none is."""

    def __init__(self, text: str, option: str) -> None:
        self._text = text
        self._option = option
        if len(text) > MAX_SQL_CHARS:
            expected = f"has {len(text):,} characters; at most {MAX_SQL_CHARS:,} are accepted"
            raise InvalidOptionError(option, text, expected)
        broken = _HALF_PAIR.search(text)
        if broken:
            raise self._refused(broken.start(), "half of a surrogate pair is no text")
        self._tokens = self._read()
        self._ahead: list[Token] = []

    def peek(self) -> Token:
        """Return the next token and leave it there."""
        if not self._ahead:
            self._ahead.append(next(self._tokens))
        return self._ahead[0]

    def take(self) -> Token:
        """Return the next token; behind the last one stands END."""
        token = self.peek()
        self._ahead.clear()
        return token

    def take_if(self, *kinds: str) -> Token | None:
        """Return the next token if it is of one of those kinds."""
        return self.take() if self.peek().kind in kinds else None

    def expect(self, kind: str, accepted: str) -> Token:
        """Return the next token. Raises InvalidOptionError if it is of another kind."""
        if self.peek().kind != kind:
            raise self.refused(self.peek(), f"expected {accepted}")
        return self.take()

    def refused(self, token: Token, reason: str) -> InvalidOptionError:
        """Return the error that names the place of ``token``, counted from 1."""
        return self._refused(token.place, reason)

    def _refused(self, place: int, reason: str) -> InvalidOptionError:
        found = self._text[place : place + _EXCERPT_CHARS]
        where = f"at character {place + 1} ({found!r})" if found else "at the end"
        return InvalidOptionError(self._option, self._text, f"{where}: {reason}")

    def _read(self) -> Iterator[Token]:
        place = 0
        while place < len(self._text):
            match = _SQL_TOKEN.match(self._text, place)
            if match is None:
                hint = _HINTS.get(self._text[place], "no such sign")
                raise self._refused(place, f"{hint}; accepted are {_ACCEPTED_WORDS}")
            image, kind = match[0], match.lastgroup or ""
            if kind == "sign":
                kind = image
            elif kind == NAME and image.upper() in RESERVED_WORDS:
                kind = image.upper()
            if kind != "skip":
                yield Token(kind, image, place)
            place = match.end()
        while True:
            yield Token(END, "", len(self._text))


_ACCEPTED_WORDS: Final = (
    "names of properties, 'text', numbers, TRUE, FALSE, NULL, NOT, AND, OR, =, <>, <, <=, >, >=, "
    "IS NULL, BETWEEN, IN, CONTAINS, STARTSWITH, ENDSWITH, + - ( ) ,"
)


def text_of(token: Token) -> str:
    """Return the text of a TEXT literal, in which a quote is written twice."""
    return token.image[1:-1].replace("''", "'")
