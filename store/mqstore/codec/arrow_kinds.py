"""Kinds of Arrow types, by name: versions of pyarrow before 16 lack the tests for views."""

from typing import Final

import pyarrow as pa

_TEXTS: Final = frozenset({"string", "large_string", "string_view"})
_BYTES: Final = frozenset({"binary", "large_binary", "binary_view"})


def is_any_text(kind: pa.DataType) -> bool:
    """Tell whether values of the type are texts, in any layout."""
    return str(kind) in _TEXTS


def is_any_binary(kind: pa.DataType) -> bool:
    """Tell whether values of the type are bytes of any length, in any layout."""
    return str(kind) in _BYTES
