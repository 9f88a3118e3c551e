"""What a DDL statement asks of a table of a lake.

Reference: ALTER TABLE of MySQL and MariaDB; of its shapes those that change columns are read.
"""

import re
from dataclasses import dataclass
from typing import Final

_SQL_COMMENT: Final = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_ALTER: Final = re.compile(
    r"\s*ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s+(?:IF\s+EXISTS\s+)?"
    r"(?:`[^`]+`|[\w$]+)(?:\s*\.\s*(?:`[^`]+`|[\w$]+))?\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_HARMLESS: Final = re.compile(
    r"\s*(CREATE|DROP\s+INDEX|ADD\s+(UNIQUE|INDEX|KEY|FULLTEXT|SPATIAL|CONSTRAINT|FOREIGN)|"
    r"DROP\s+(INDEX|KEY|FOREIGN|CONSTRAINT|CHECK)|ENGINE|COMMENT|AUTO_INCREMENT|ORDER\s+BY|"
    r"ALTER\s|(DEFAULT\s+)?(CHARACTER|CHARSET|COLLATE)|ROW_FORMAT|ENABLE|DISABLE|FORCE|"
    r"ALGORITHM|LOCK|ANALYZE|OPTIMIZE|REPLICA)\b",
    re.IGNORECASE,
)
_DROP_TABLE: Final = re.compile(r"\s*DROP\s+(TEMPORARY\s+)?TABLE\b", re.IGNORECASE)
_TRUNCATE: Final = re.compile(r"\s*TRUNCATE\b", re.IGNORECASE)
_SQL_NAME: Final = r"(`[^`]+`|[\w$]+)"
_SHAPES: Final = (
    ("add", re.compile(rf"ADD\s+(?:COLUMN\s+)?(?:IF\s+NOT\s+EXISTS\s+)?{_SQL_NAME}\s+\S", re.I)),
    ("rename", re.compile(rf"RENAME\s+COLUMN\s+{_SQL_NAME}\s+TO\s+{_SQL_NAME}", re.I)),
    (
        "rename",
        re.compile(rf"CHANGE\s+(?:COLUMN\s+)?(?:IF\s+EXISTS\s+)?{_SQL_NAME}\s+{_SQL_NAME}", re.I),
    ),
    ("drop", re.compile(rf"DROP\s+(?:COLUMN\s+)?(?:IF\s+EXISTS\s+)?{_SQL_NAME}", re.I)),
    ("modify", re.compile(rf"MODIFY\s+(?:COLUMN\s+)?(?:IF\s+EXISTS\s+)?{_SQL_NAME}", re.I)),
)
_WITH_DEFAULT: Final = re.compile(r"\bDEFAULT\s+(?!NULL\b)", re.IGNORECASE)
_MOST_SQL: Final = 100_000


@dataclass(frozen=True, slots=True)
class DdlEffects:
    """What a statement does. unapplied: what the lake lacks after it; unknown: it is not read."""

    removes_rows: bool = False
    unapplied: tuple[str, ...] = ()
    unknown: bool = False


def ddl_effects(sql: str) -> DdlEffects:
    """Return what a DDL statement does to a table of the lake."""
    text = _SQL_COMMENT.sub(" ", sql[:_MOST_SQL])
    if _DROP_TABLE.match(text) or _TRUNCATE.match(text):
        return DdlEffects(removes_rows=True)
    alter = _ALTER.match(text)
    if alter is None:
        return DdlEffects(unknown=_HARMLESS.match(text) is None)
    unapplied = []
    for part in _parts(alter[1].strip().removesuffix(";")):
        if _HARMLESS.match(part):
            continue
        shape = next(((word, m) for word, one in _SHAPES if (m := one.match(part))), None)
        if shape is None:
            return DdlEffects(unknown=True)
        word, names = shape
        column = names[1].strip("`")
        if word == "add" and _WITH_DEFAULT.search(part):
            unapplied.append(f"default of {column}")
        elif word == "rename" and column != names[2].strip("`"):
            unapplied.append(f"values of {column}, which became {names[2].strip('`')}")
    return DdlEffects(unapplied=tuple(unapplied))


def _parts(text: str) -> list[str]:
    """Return what stands between the commas that are in no brackets and no quotes."""
    parts, begin, depth, quote = [], 0, 0, ""
    for place, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"`":
            quote = sign
        elif sign in "()":
            depth += 1 if sign == "(" else -1
        elif sign == "," and depth <= 0:
            parts.append(text[begin:place].strip())
            begin = place + 1
    return [part for part in [*parts, text[begin:].strip()] if part]
