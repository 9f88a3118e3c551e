"""The option changesSchema: the columns, types and keys of tables that messages do not tell.

It is the text, or the path, of statements CREATE TABLE as a database prints them, or of the columns
of one table (``id BIGINT, amount DECIMAL(18,4)``), or the word ``message``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from mqstore.bodies.schema_text import body_schema
from mqstore.changes.column_types import arrow_fields, column_type
from mqstore.errors import InvalidOptionError, shown

CHANGES_SCHEMA: Final = "changesSchema"
BY_MESSAGE: Final = "message"
_SCHEMA_TOKEN: Final = re.compile(
    r"\s+|--[^\n]*|\#[^\n]*|/\*.*?\*/"
    r"|(?P<name>`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\")"
    r"|(?P<text>'(?:[^'\\]|''|\\.)*')"
    r"|(?P<word>[^\W\d]\w*|\d[\w.]*|[+-]\d[\w.]*)"
    r"|(?P<sign>.)",
    re.DOTALL,
)
_MOST_COLUMNS: Final = 10_000
_NO_COLUMN: Final = frozenset({
    "primary", "unique", "key", "index", "constraint", "foreign", "fulltext", "spatial", "check",
    "period", "like", "exclude",
})  # fmt: skip
"""The words with which what is no column begins."""
_TYPE_WORDS_BEHIND: Final = frozenset({
    "unsigned", "signed", "zerofill", "precision", "varying", "without", "with", "time", "zone",
})  # fmt: skip
"""The words of a type behind its first."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table, each with its type, and its key; no name: of any table."""

    columns: Mapping[str, str]
    keys: tuple[str, ...] = ()
    database: str | None = None
    table: str | None = None

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow struct of a row."""
        return arrow_fields(self.columns)

    def is_of(self, database: str | None, table: str | None) -> bool:
        """Tell whether a change of a table is of this one; one without a name may be."""
        if self.table is None or table is None:
            return True
        return self.table == table and self.database in {None, database}


@dataclass(frozen=True, slots=True)
class TableSchemas:
    """The tables of an option's value; ``source`` is for errors. No table: ``message``."""

    source: str
    tables: tuple[TableSchema, ...] = field(default=())

    def of(self, database: str | None, table: str | None) -> TableSchema | None:
        """Return the schema of a table, None for one that is not there."""
        return next((one for one in self.tables if one.is_of(database, table)), None)

    @property
    def only(self) -> TableSchema | None:
        """The schema of the only table, None if there are several or none."""
        return self.tables[0] if len(self.tables) == 1 else None


def table_schemas(name: str, text: str) -> TableSchemas:
    """Return the schemas of the option; a path is read here, once. Raises InvalidOptionError."""
    if text.strip().lower() == BY_MESSAGE:
        return TableSchemas(text)
    schema = body_schema(name, text)
    if schema.files or not schema.text.strip():
        raise InvalidOptionError(name, text, "must be CREATE TABLE, columns, or a file of them")
    try:
        return TableSchemas(text, tuple(_tables(schema.text)))
    except ValueError as error:
        raise InvalidOptionError(name, shown(text, 200), str(error)) from None


def _tables(text: str) -> Iterator[TableSchema]:
    tokens = _tokens(text)
    places = [at for at in range(len(tokens) - 1) if _is_create(tokens, at)]
    if not places:
        columns, keys, _ = _columns(tokens, 0)
        yield TableSchema(columns, keys)
        return
    for at in places:
        begin = next((n for n in range(at, len(tokens)) if tokens[n] == ("sign", "(")), None)
        if begin is None:
            raise ValueError("CREATE TABLE has no columns")
        names = [word for kind, word in tokens[at + 1 : begin] if kind in {"name", "word"}]
        names = [word for word in names if word.lower() not in {"table", "if", "not", "exists"}]
        if not 1 <= len(names) <= 2:
            raise ValueError(f"CREATE TABLE has no name before its columns: {' '.join(names)}")
        columns, keys, _ = _columns(tokens, begin + 1)
        yield TableSchema(columns, keys, names[-2] if len(names) > 1 else None, names[-1])


def _is_create(tokens: list[tuple[str, str]], at: int) -> bool:
    if tokens[at][1].lower() != "create" or tokens[at][0] != "word":
        return False
    behind = [word.lower() for _, word in tokens[at + 1 : at + 3]]
    return "table" in behind


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens = []
    for match in _SCHEMA_TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is None:
            continue
        word = match[0]
        if kind == "name":
            quote = word[0]
            word = word[1:-1].replace(quote * 2, quote)
        tokens.append((kind, word))
    return tokens


def _columns(tokens: list[tuple[str, str]], at: int) -> tuple[dict[str, str], tuple[str, ...], int]:
    """Return columns, the key, and the place behind them, from the first column on."""
    columns: dict[str, str] = {}
    keys: tuple[str, ...] = ()
    for definition, end in _definitions(tokens, at):
        at = end
        kind, name = definition[0]
        words = [word.lower() for of, word in definition if of == "word"]
        if kind == "word" and name.lower() in _NO_COLUMN and definition[1:2] != [("sign", ":")]:
            if {"primary", "key"} <= set(words):
                keys = _key_names(definition)
            continue
        if kind not in {"name", "word"}:
            raise ValueError(f"the name of a column is missing before {shown(name, 40)}")
        if name in columns:
            raise ValueError(f"two columns have the name {name}")
        columns[name] = _type_text(name, definition[1:])
        if len(columns) > _MOST_COLUMNS:
            raise ValueError(f"more than {_MOST_COLUMNS:,} columns")
        if any(words[n : n + 2] == ["primary", "key"] for n in range(len(words))):
            keys = (name,)
    if not columns:
        raise ValueError("has no column")
    missing = [name for name in keys if name not in columns]
    if missing:
        raise ValueError(f"its key names {missing[0]}, which is no column")
    return columns, keys, at


def _definitions(
    tokens: list[tuple[str, str]], at: int
) -> Iterator[tuple[list[tuple[str, str]], int]]:
    """Yield the tokens of each column or key, up to the end of the list."""
    depth, start = 0, at
    for place in range(at, len(tokens)):
        kind, word = tokens[place]
        if kind != "sign":
            continue
        if word in "(<":
            depth += 1
        elif word in ")>" and depth:
            depth -= 1
        elif word in ",);" and not depth:
            if place > start:
                yield tokens[start:place], place + 1
            start = place + 1
            if word in ");":
                return
    if len(tokens) > start:
        yield tokens[start:], len(tokens)


def _key_names(definition: list[tuple[str, str]]) -> tuple[str, ...]:
    begin = next((n for n, token in enumerate(definition) if token == ("sign", "(")), None)
    if begin is None:
        return ()
    names, depth = [], 0
    for kind, word in definition[begin:]:
        depth += (word == "(") - (word == ")") if kind == "sign" else 0
        if depth == 0:
            break
        if depth == 1 and kind in {"name", "word"} and word.lower() not in {"asc", "desc"}:
            names.append(word)
    return tuple(names)


def _type_text(name: str, tokens: list[tuple[str, str]]) -> str:
    """Return the text of a column's type, as ``column_type`` reads it. Raises ValueError."""
    parts: list[str] = []
    depth = 0
    for kind, word in tokens:
        if kind == "sign" and word == ":" and not parts:
            continue
        if not depth and parts and kind == "word" and word.lower() not in _TYPE_WORDS_BEHIND:
            break
        if not depth and kind in {"text", "name"}:
            break
        depth += (word == "(") - (word == ")") if kind == "sign" else 0
        is_word = kind == "word" and parts and parts[-1] not in {"(", ","} and not depth
        parts.append(f" {word}" if is_word else word)
    text = "".join(parts)
    if not text:
        raise ValueError(f"the column {name} has no type")
    if not column_type(text).known:
        raise ValueError(f"the column {name} has an unknown type: {shown(text, 60)}")
    return text
