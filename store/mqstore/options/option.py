"""An option: its name and how its text becomes a value, declared at the field that holds it.

@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
partitioner: str = option("partitioner", one_of("hash", "single"), "hash")
queue_nums: int | None = option("queueNums", grammar.count)
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from mqstore.errors import InvalidOptionError
from mqstore.options import grammar

T = TypeVar("T")
_METADATA: Final = "option"


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


def option(
    name: str,
    parse: Callable[[str, str], Any],
    default: object = None,
    *,
    alias: str | None = None,
) -> Any:
    """Return a dataclass field that holds an option; its default is the option's."""
    metadata = {_METADATA: Option(name, parse, alias)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def options_of(kind: Any) -> dict[str, Option]:
    """Return the options that the fields of a dataclass, or an instance of one, declare."""
    return {
        field.name: field.metadata[_METADATA]
        for field in dataclasses.fields(kind)
        if _METADATA in field.metadata
    }


def values_of(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of ``values``, by field, that are options of a dataclass."""
    return {field: values[field] for field in options_of(kind) if field in values}


def any_text(_name: str, text: str) -> str:
    """Return the text of an option that takes any."""
    return text


def one_of(*words: str) -> Callable[[str, str], str]:
    """Return the parser of an option that is one of ``words``."""
    return partial(grammar.choice, words=words)


def checked(settings: T) -> T:
    """Return a dataclass with the value of each option as its parser would return it.

    None stays None. Values set by a program thus follow the same rules as text that a user
    typed: raises InvalidOptionError with the option's name.
    """
    found: dict[str, Any] = {}
    for field, declared in options_of(settings).items():
        value = getattr(settings, field)
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found[field] = declared.value(text)
    return dataclasses.replace(settings, **found)  # type: ignore[type-var]
