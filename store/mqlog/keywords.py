"""Options as keywords: their names in snake_case, Python's values, and errors in these words.

The option ``startingTimestamp`` of the Spark source is the keyword ``starting_timestamp``. A value
is the option's own text, or a value of Python that stands for one::

    bool                 True                             true
    int                  4, numpy.int64(4)                4
    datetime             datetime(2026, 11, 21, tzinfo=UTC)   ISO-8601; a zone is required
    timedelta            timedelta(minutes=-10)           a duration; negative: before now
    path                 Path("/data/log2")               its text
    list, tuple, set     ["SHOP_ORDERS", "PAYMENTS"]           a list of names; tags joined by ||
    dict                 {"SHOP_ORDERS": {0: 23}}              JSON
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from numbers import Integral
from typing import Any, Final

from mqstore.deliver.settings import SEND_OPTIONS
from mqstore.errors import InvalidOptionError, InvalidSchemaError, StoreError
from mqstore.options.option import Option
from mqstore.options.secret import HIDDEN
from mqstore.request.read import IN_READ
from mqstore.request.read_options import STREAM_OPTIONS
from mqstore.write.stage.settings import WRITE_OPTIONS

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DAY_BEGINS: Final = "datetime(2026, 11, 21, tzinfo=UTC) for example"
_MILLISECOND: Final = timedelta(milliseconds=1)
_JOINED: Final = {"columns": ",", "groups": ",", "tags": " || ", "subExpression": " || "}
"""Options that are lists in a grammar of their own, and what stands between their names."""
DECLARED: Final[tuple[Option, ...]] = tuple(
    option
    for options in (IN_READ, STREAM_OPTIONS, WRITE_OPTIONS, SEND_OPTIONS)
    for option in options.values()
)


def keyword(option: str) -> str:
    """Return the keyword of an option: ``maxBytesPerPartition`` is ``max_bytes_per_partition``."""
    return _HUMP.sub("_", option.removesuffix(".*")).lower()


_BY_KEYWORD: Final = {
    keyword(name): name for option in DECLARED for name in (option.name, option.alias) if name
}
_IN_PYTHON_WORDS: Final = {name: word for word, name in _BY_KEYWORD.items() if word != name} | {
    "checkpointLocation": "position",
    "spark.readStream": "follow",
    "spark.read": "scan",
    "df.write": "write",
}
_ANY_OF_THEM: Final = "|".join(sorted(map(re.escape, _IN_PYTHON_WORDS), key=len, reverse=True))
_IN_TEXT: Final = re.compile(rf"(?<![\w.])({_ANY_OF_THEM})(?![\w.]*\w)(=true|=false)?")


def texts(keywords: Mapping[str, object]) -> dict[str, str]:
    """Return options by name, in lower case, as texts; those that are None are left out.

    Raises InvalidOptionError for a value that stands for no text, and for the name of an option
    that is not written in snake_case. An unknown keyword stays as it is, for the parser to refuse.
    """
    found: dict[str, str] = {}
    for word, value in keywords.items():
        name = _BY_KEYWORD.get(word)
        if name is None:
            meant = next((k for k, n in _BY_KEYWORD.items() if n.lower() == word.lower()), None)
            if meant is not None:
                expected = f"the keyword is {meant}"
                raise InvalidOptionError(meant, word, expected)
        if value is None:
            continue
        if name is not None and name.endswith(".*"):
            found |= _of_prefix(name, value)
        else:
            found[(name or word).lower()] = text_of(name or word, value)
    return found


def text_of(option: str, value: object) -> str:
    """Return the text of a value of an option; raises InvalidOptionError where it has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        named = _named(option, value)
        return json.dumps(named, default=lambda inner: _scalar(option, inner))
    if isinstance(value, Sequence | Set) and not isinstance(value, bytes | bytearray | memoryview):
        names = [_scalar(option, one) for one in value]
        names = sorted(names) if isinstance(value, Set) else names
        if option in _JOINED:
            return _JOINED[option].join(names)
        return json.dumps(names)
    return _scalar(option, value)


def _named(option: str, value: object) -> object:
    """Return a mapping whose keys are texts, at every depth, as JSON has them."""
    if isinstance(value, Mapping):
        return {_scalar(option, key): _named(option, inner) for key, inner in value.items()}
    if isinstance(value, bool):
        return value
    return int(value) if isinstance(value, Integral) else value


def _scalar(option: str, value: object) -> str:
    if isinstance(value, bool) or type(value).__name__ in {"bool", "bool_"}:  # Of numpy too.
        return "true" if value else "false"
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value // _MILLISECOND}ms"
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, str):
        return value
    expected = "must be text, a number, a bool, a datetime, a timedelta, a list or a dict"
    if isinstance(value, date):
        expected = f"a date has no hour and no zone; a day begins at {_DAY_BEGINS}"
    raise InvalidOptionError(option, f"a {type(value).__name__}", expected)


def _of_prefix(name: str, value: object) -> dict[str, str]:
    """Return options whose names begin alike, of a dict with the rest of each name."""
    if not isinstance(value, Mapping):
        expected = f'must be a dict such as {{"region": "eu-west-1"}}: of options {name}'
        raise InvalidOptionError(keyword(name), HIDDEN, expected)
    return {name[:-1] + str(key): text_of(name, one) for key, one in value.items()}


@contextmanager
def in_keywords() -> Iterator[None]:
    """Let errors name the keywords of Python, where they name options of Spark."""
    try:
        yield
    except InvalidSchemaError:
        raise
    except StoreError as error:
        _reword(error)
        raise


def _reword(error: StoreError) -> None:
    named: Any = error
    if isinstance(error, InvalidOptionError):
        error.option = _IN_TEXT.sub(_in_python, str(error.option))
        error.expected = _IN_TEXT.sub(_in_python, str(error.expected))
    elif error.args and isinstance(error.args[0], str):
        error.args = (_IN_TEXT.sub(_in_python, error.args[0]), *error.args[1:])
    text = _IN_TEXT.sub(_in_python, error.text)
    if text != error.text:
        named.text = text


def _in_python(found: re.Match[str]) -> str:
    return _IN_PYTHON_WORDS[found[1]] + (found[2] or "").replace("t", "T", 1).replace("=f", "=F")
