"""Spark's DDL as Arrow types, and Arrow types as DDL.

Reference: org.apache.spark.sql.catalyst.parser.DataTypeParserInterface; the words of its types.
"""

import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

UTC: Final = pa.timestamp("us", tz="UTC")
LOCAL: Final = pa.timestamp("us")
MOST_FIELDS: Final = 10_000
MOST_DEPTH: Final = 50
MAX_PRECISION: Final = 38
PLAIN_TYPES: Final = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), UTC),
    "timestamp_ntz": LOCAL,
}
"""The types without parameters, by their words in lower case."""
KNOWN_TYPES: Final = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), STRING, BINARY, DATE, "
    "TIMESTAMP, TIMESTAMP_NTZ, ARRAY<…>, MAP<STRING,…>, STRUCT<…>"
)
_TYPE_WORDS: Final = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    UTC: "TIMESTAMP",
    LOCAL: "TIMESTAMP_NTZ",
}
_DDL_TOKEN: Final = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|(\w+)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([<>(),:]))"
)
_TEXT_WORDS: Final = ("char", "character", "varchar")
_DECIMALS: Final = ("decimal", "dec", "numeric")


def parse_ddl(text: str) -> pa.DataType:
    """Return the struct of ``text``: ``id BIGINT, at TIMESTAMP``, or ``STRUCT<…>`` around it.

    All fields may be null. Raises ValueError with the reason.
    """
    return _DdlParser(text).struct()


def struct_of(fields: list[pa.Field]) -> pa.DataType:
    """Return a struct; raises ValueError where it has no field, or two of one name."""
    names = [field.name for field in fields]
    if not fields:
        raise ValueError("a struct has no field")
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise ValueError(f"two fields have the name {twice}")
    return pa.struct(fields)


def list_of(kind: pa.DataType) -> pa.DataType:
    """Return the type of a list as Spark names its element."""
    return pa.list_(pa.field("element", kind))


def decimal_of(precision: int, scale: int) -> pa.DataType:
    """Return a decimal of Spark; raises ValueError for one that Spark does not have."""
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        raise ValueError(f"there is no DECIMAL({precision},{scale}): 1 to 38 digits")
    return pa.decimal128(precision, scale)


def to_ddl(kind: pa.DataType) -> str:
    """Return the DDL of a struct, ``id BIGINT, at TIMESTAMP``; raises ValueError for a type."""
    return ", ".join(f"{_name(field.name)} {type_ddl(field.type)}" for field in kind)


def type_ddl(kind: pa.DataType) -> str:
    """Return a type in the words of DDL; raises ValueError for one that Spark does not have."""
    if kind in _TYPE_WORDS:
        return _TYPE_WORDS[kind]
    if pa.types.is_decimal128(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        fields = (f"{_name(field.name)}: {type_ddl(field.type)}" for field in kind)
        return f"STRUCT<{', '.join(fields)}>"
    if pa.types.is_map(kind):
        return f"MAP<{type_ddl(kind.key_type)}, {type_ddl(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{type_ddl(kind.value_type)}>"
    raise ValueError(f"no type of DDL is {kind}")


def _name(name: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return name
    return "`" + name.replace("`", "``") + "`"


class _DdlParser:
    """Reads one DDL text, token by token."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._fields = 0
        self._depth = 0

    def struct(self) -> pa.DataType:
        """Return the type of the whole text."""
        wrapped = self._peek_word() == "struct" and self._tokens[1:2] == [("sign", "<")]
        kind = self._type() if wrapped else struct_of(self._columns(until=None))
        if self._at < len(self._tokens):
            raise ValueError(f"{self._tokens[self._at][1]} stands behind the end of the schema")
        return kind

    def _columns(self, until: str | None) -> list[pa.Field]:
        fields = []
        while True:
            kind, name = self._next("the name of a field")
            if kind not in {"word", "name"}:
                raise ValueError(f"the name of a field is missing before {name}")
            self._skip(":")
            fields.append(pa.field(name, self._type()))
            self._fields += 1
            if self._fields > MOST_FIELDS:
                raise ValueError(f"more than {MOST_FIELDS:,} fields")
            self._attributes()
            if self._skip(","):
                continue
            if until is not None:
                self._take(until)
            elif self._at < len(self._tokens):
                near = self._tokens[self._at][1]
                raise ValueError(f"a comma is missing before {near}")
            return fields

    def _attributes(self) -> None:
        """Pass by NOT NULL, as from_json does, and COMMENT 'text'."""
        while self._peek_word() in {"not", "comment"}:
            _, word = self._next("")
            if word.lower() == "not":
                _, null = self._next("NULL")
                if null.lower() != "null":
                    raise ValueError(f"NOT NULL is meant by NOT {null}")
            elif self._next("the text of COMMENT")[0] != "text":
                raise ValueError("COMMENT needs a text in quotes")

    def _type(self) -> pa.DataType:
        kind, word = self._next("a type")
        if kind != "word":
            raise ValueError(f"a type is missing before {word}")
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise ValueError(f"types lie more than {MOST_DEPTH} deep")
        try:
            return self._named_type(word.lower(), word)
        finally:
            self._depth -= 1

    def _named_type(self, word: str, written: str) -> pa.DataType:
        if word in PLAIN_TYPES:
            return PLAIN_TYPES[word]
        if word in _TEXT_WORDS:
            self._numbers()
            return pa.string()
        if word in _DECIMALS:
            return decimal_of(*[*self._numbers(), *((10, 0) if not self._had else (0,))][:2])
        if word == "array":
            self._take("<")
            inner = self._type()
            self._take(">")
            return list_of(inner)
        if word == "map":
            self._take("<")
            key = self._type()
            self._take(",")
            value = self._type()
            self._take(">")
            if key != pa.string():
                raise ValueError("the keys of a MAP must be STRING: names in JSON are text")
            return pa.map_(key, value)
        if word == "struct":
            self._take("<")
            return struct_of(self._columns(until=">"))
        raise ValueError(f"{written} is no type: there are {KNOWN_TYPES}")

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        if self._skip("("):
            while True:
                _, text = self._next("a number")
                if not text.isdecimal() or len(text) > 9:
                    raise ValueError(f"{text} is no number of a type")
                numbers.append(int(text))
                if not self._skip(","):
                    break
            self._take(")")
        self._had = bool(numbers)
        return numbers

    def _peek_word(self) -> str:
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("", "")
        return text.lower() if kind == "word" else ""

    def _next(self, wanted: str) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise ValueError(f"{wanted} is missing at the end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _skip(self, sign: str) -> bool:
        has = self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign)
        self._at += has
        return has

    def _take(self, sign: str) -> None:
        if not self._skip(sign):
            rest = self._tokens[self._at :]
            raise ValueError(f"{sign} is missing before {rest[0][1] if rest else 'the end'}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        token = _DDL_TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"{text[at:].strip()[:20]!r} is not understood")
        at = token.end()
        if token[1] is not None:
            yield "name", token[1].replace("``", "`")
        elif token[2] is not None:
            yield "word", token[2]
        elif token[3] is not None:
            yield "text", token[3][1:-1]
        else:
            yield "sign", token[4]
