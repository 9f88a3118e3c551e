"""Makes mqlog/options.py of the declared options.

PYTHONPATH=tests .venv/bin/python -m face.option_types
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import partial
from pathlib import Path
from typing import Final

import mqlog
from mqlog.keywords import keyword
from mqlog.place import OF_A_PLACE
from mqstore.deliver.settings import SEND_OPTIONS
from mqstore.options import grammar
from mqstore.options.option import Option
from mqstore.request.places import LIVE
from mqstore.request.read import IN_READ
from mqstore.request.stream import IN_STREAM
from mqstore.write.stage.settings import WRITE_OPTIONS

IN_WRITE: Final = [*WRITE_OPTIONS.values(), *SEND_OPTIONS.values(), *LIVE.values()]
FILE: Final = Path(mqlog.__file__).parent / "options.py"
HEAD: Final = '''"""The options of each call as keywords, for editors and checkers of types.

Made of the declared options: CONTRIBUTING.md tells how. A test compares the two.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from inspect import Parameter, signature
from os import PathLike
from typing import Any, SupportsIndex, TypeAlias, TypedDict, TypeVar

Flag: TypeAlias = bool | str | None
Whole: TypeAlias = SupportsIndex | str | None
Value: TypeAlias = (
    str
    | SupportsIndex
    | datetime
    | timedelta
    | PathLike[str]
    | Sequence[Any]
    | Set[Any]
    | Mapping[Any, Any]
    | None
)
_Call = TypeVar("_Call", bound=Callable[..., Any])
'''
TAIL: Final = '''

def shows(options: type) -> Callable[[_Call], _Call]:
    """Let help and completion show a call's options, as keywords in place of ``**options``."""

    def changed(call: _Call) -> _Call:
        found = signature(call)
        own = [one for one in found.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        names = sorted(options.__annotations__.keys() - found.parameters.keys())
        more = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in names]
        call.__signature__ = found.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return call

    return changed
'''


def text() -> str:
    """Return the module as it should be."""
    named: list[tuple[str, str, Iterable[Option]]] = [
        ("PlaceKeywords", "How a place is opened and connected to.", of_places(IN_READ.values())),
        ("ScanKeywords", "What a read takes of a place.", IN_READ.values()),
        ("FollowKeywords", "What a place is followed by.", IN_STREAM.values()),
        ("WriteKeywords", "How rows are written.", IN_WRITE),
    ]
    classes = [
        f"\n\nclass {name}(TypedDict, total=False):\n"
        f'    """{words}"""\n\n'
        + "".join(lines(options, {"table"} if name == "ScanKeywords" else set()))
        for name, words, options in named
    ]
    return HEAD + "".join(classes) + TAIL


def of_places(options: Iterable[Option]) -> Iterator[Option]:
    return (one for one in options if one.name in OF_A_PLACE)


def lines(options: Iterable[Option], without: Set[str]) -> Iterator[str]:
    by_word: dict[str, Option] = {}
    for one in options:
        by_word |= {keyword(name): one for name in (one.name, one.alias) if name}
    for word in sorted(by_word.keys() - without):
        yield f"    {word}: {kind(by_word[word])}\n"


def kind(declared: Option) -> str:
    parse = declared.parse.func if isinstance(declared.parse, partial) else declared.parse
    kinds: Mapping[object, str] = {grammar.boolean: "Flag", grammar.count: "Whole"}
    return kinds.get(parse, "Value")


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
