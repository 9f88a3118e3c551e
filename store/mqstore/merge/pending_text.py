"""What the state of a key has beside its row, as the text of the column ``_mqlogPending``.

``{"columns": {"note": [[0, 1, 4711, 0, 1], "known"]}, "moves": [[[0, 1, 5000, 0, 0], ["7"]]]}``:
for each column that the last change did not know the path of the value that stands in the row, an
empty one for none; and the other keys that this one became. A row without either has null.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from mqstore.merge.register import KNOWN, Register, RowKey, ValuePath

_KNOWN_WORD: Final = "known"


def pending_text(register: Register, key_texts: Callable[[RowKey], list[str | None]]) -> str | None:
    """Return the text of a state, None for one that is complete."""
    if not register.pending and not register.moves:
        return None
    columns = {column: _written(path) for column, (path, _) in register.pending.items()}
    moves = [[list(rank), key_texts(key)] for rank, key in register.moves]
    parts = {"columns": columns} | ({"moves": moves} if moves else {})
    return json.dumps(parts, ensure_ascii=False)


def set_pending(
    register: Register, text: str, row: Any, key_of: Callable[[list[str | None]], RowKey]
) -> None:
    """Set what a text says; ``row`` has the values. Raises ValueError for another text."""
    try:
        parts = json.loads(text)
        for column, path in parts["columns"].items():
            read = _read(path)
            register.pending[str(column)] = (read, row if read and read[-1] == KNOWN else None)
        for rank, key in parts.get("moves", ()):
            register.moves.append((tuple(map(int, rank)), key_of(key)))
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"_mqlogPending is not what mqlog wrote: {error}") from None


def _written(path: ValuePath) -> list[Any]:
    return [_KNOWN_WORD if rank == KNOWN else list(rank) for rank in path]


def _read(path: list[Any]) -> ValuePath:
    return tuple(KNOWN if rank == _KNOWN_WORD else tuple(map(int, rank)) for rank in path)
