"""An option: its name and how its text becomes a value, declared at the field that holds it.

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        partitioner: Annotated[str, Option("partitioner", one_of("hash", "single"))] = "hash"

A field's default is the option's default.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, get_type_hints

from mqstore.errors import InvalidOptionError
from mqstore.options import grammar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name as the user's guide spells it, the parser of its text, another name.

    ``parse`` takes the name and the text, and raises InvalidOptionError.
    """

    name: str
    parse: Callable[[str, str], Any]
    alias: str | None = None

    def value(self, text: str, name: str | None = None) -> Any:
        """Return the value of ``text``; ``name`` is the one that the user wrote, for errors."""
        if any("\ud800" <= c <= "\udfff" for c in text):
            expected = "is no text: it has half of a surrogate pair"
            raise InvalidOptionError(name or self.name, text, expected)
        return self.parse(name or self.name, text)


def any_text(_name: str, text: str) -> str:
    """Return the text of an option that takes any."""
    return text


def one_of(*words: str) -> Callable[[str, str], str]:
    """Return the parser of an option that is one of ``words``."""
    return partial(grammar.choice, words=words)


def declared(kind: type) -> dict[str, Option]:
    """Return the options among the fields of a dataclass, by field name."""
    hints = get_type_hints(kind, include_extras=True)
    found = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
    return {name: option for name, option in found.items() if isinstance(option, Option)}


def checked(settings: T) -> T:
    """Return a dataclass with each declared field as its option would parse it.

    None stays None. Values set by a program are so bound by the same rules as text that a user
    typed: raises InvalidOptionError with the option's name.
    """
    found: dict[str, Any] = {}
    for field, option in declared(type(settings)).items():
        value = getattr(settings, field)
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found[field] = option.value(text)
    return replace(settings, **found)  # type: ignore[type-var]
