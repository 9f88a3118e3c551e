r"""Elements of HTML and SVG. A text inside one is always escaped: there is no way around it.

Control characters are shown as escapes, ``\x1b``: HTML has no form for some, and others, such as
U+202E, change how the text around them is read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final, TypeAlias

from mqstore.errors import printable

_VOID: Final = {"meta", "wbr"}
_CAMEL_CASE: Final = {"view_box": "viewBox", "preserve_aspect_ratio": "preserveAspectRatio"}


@dataclass(frozen=True, slots=True)
class Element:
    """An element with attributes and children. A child that is None is left out."""

    tag: str
    attributes: tuple[tuple[str, str], ...]
    children: "tuple[Node, ...]"

    def parts(self) -> Iterator[str]:
        """Yield the text of the element, piece by piece."""
        yield f"<{self.tag}"
        for name, value in self.attributes:
            yield f' {name}="{escape(printable(value))}"'
        yield ">"
        if self.tag in _VOID:
            return
        for child in self.children:
            if isinstance(child, Element):
                yield from child.parts()
            elif child is not None:
                yield escape(printable(str(child), keep="\n"), quote=False)
        yield f"</{self.tag}>"


Node: TypeAlias = Element | str | int | None


def element(tag: str, *children: Node, **attributes: str | float | bool | None) -> Element:
    """Return an element. ``class_`` is the attribute class, ``aria_label`` is aria-label.

    True is an attribute without a value; one that is None or False is left out.
    """
    pairs = (
        (_name(name), "" if value is True else _text(value))
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    return Element(tag, tuple(pairs), children)


@dataclass(frozen=True, slots=True)
class Stylesheet(Element):
    """A style element: its one text is our own and not escaped."""

    def parts(self) -> Iterator[str]:
        """Yield the element."""
        yield f"<style>{self.children[0]}</style>"


def stylesheet(css: str) -> Stylesheet:
    """Return the style element of a stylesheet of ours; raises ValueError if it ends itself."""
    if "</" in css:
        raise ValueError("a stylesheet must not have </")
    return Stylesheet("style", (), (css,))


def _name(name: str) -> str:
    return _CAMEL_CASE.get(name) or name.rstrip("_").replace("_", "-")


def _text(value: str | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
