"""What the C headers declare, as ctypes sees it: they are the one description of both sides.

A structure or a function is written once, in C. This module reads it there, so a field that is
added to a structure is there in Python too, and nothing has to be kept equal by hand.
"""

import ctypes
import re
from functools import cache
from typing import Any, Final

from mqstore.native.compiling import sources

_SCALARS: Final[dict[str, Any]] = {
    "uint8_t": ctypes.c_uint8,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
}
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_CONSTANT: Final = re.compile(r"\b([A-Z][A-Z0-9_]*) = (-?[\d *]+)[,\s}]")
_STRUCTURE: Final = re.compile(r"typedef struct \{(.*?)\} (\w+);", re.DOTALL)
_FUNCTION: Final = re.compile(r"^(int64_t|const char \*) ?(mq_\w+)\((.*?)\)\n\{", re.DOTALL | re.M)
_DECLARATOR: Final = re.compile(r"(\*?)(\w+)(?:\[(\w+)\])?$")


@cache
def _text() -> str:
    return _COMMENT.sub("", "\n".join(text for _, text in sources()))


@cache
def constant(name: str) -> int:
    """Return a constant of the headers that is a number, or a product of numbers."""
    product = 1
    for factor in dict(_CONSTANT.findall(_text()))[name].split("*"):
        product *= int(factor)
    return product


@cache
def structure(name: str) -> type[ctypes.Structure]:
    """Return the structure of that name, its fields in order. Raises KeyError if there is none.

    A pointer is an address, or None.
    """
    members = {found: body for body, found in _STRUCTURE.findall(_text())}[name].split(";")
    fields = [field for member in members if member.strip() for field in _fields(member.strip())]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def functions() -> dict[str, tuple[Any, list[Any]]]:
    """Return what each function of the library returns and takes."""
    return {
        name: (
            ctypes.c_char_p if result.startswith("const") else ctypes.c_int64,
            [_type_of(one) for one in arguments.split(",") if one.strip() != "void"],
        )
        for result, name, arguments in _FUNCTION.findall(_text())
    }


def _fields(member: str) -> list[tuple[str, Any]]:
    """Return the fields of one member of a structure, as ``const int64_t *sizes, *starts``."""
    kind, declarators = re.sub(r"^const ", "", member).split(None, 1)
    fields = []
    for declarator in declarators.split(","):
        found = _DECLARATOR.match(declarator.strip())
        assert found is not None, member
        pointer, name, count = found.groups()
        held = ctypes.c_void_p if pointer else _SCALARS.get(kind) or structure(kind)
        if count is not None:
            held = held * (int(count) if count.isdigit() else constant(count))
        fields.append((name, held))
    return fields


def _type_of(argument: str) -> Any:
    return ctypes.c_void_p if "*" in argument else _SCALARS[argument.split(maxsplit=1)[0]]
