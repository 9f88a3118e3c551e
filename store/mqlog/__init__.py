"""Messages and tables of Apache RocketMQ stores and clusters as Arrow, without Spark or a broker.

``open`` names a place; ``Place.scan`` and ``Place.table`` are lazy reads of it (``Scan``), which
pyarrow, DuckDB, Polars and pandas take; ``Place.follow`` yields messages as they are stored;
``write`` appends rows. Every error that a user can correct is a ``MqlogError``.

Names are loaded when they are used: importing the package imports neither numpy nor pyarrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from mqstore import __version__

if TYPE_CHECKING:
    from mqlog.place import Place, open
    from mqlog.scan import Scan
    from mqlog.scan_rows import ScanRows
    from mqlog.split import Split
    from mqlog.writing import WriteResult, write
    from mqstore.errors import StoreError as MqlogError

__all__ = [
    "MqlogError",
    "Place",
    "Scan",
    "ScanRows",
    "Split",
    "WriteResult",
    "__version__",
    "open",
    "write",
]

_HOMES = {
    "MqlogError": "mqlog.errors",
    "Place": "mqlog.place",
    "ScanRows": "mqlog.scan_rows",
    "Scan": "mqlog.scan",
    "Split": "mqlog.split",
    "WriteResult": "mqlog.writing",
    "open": "mqlog.place",
    "write": "mqlog.writing",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'mqlog' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
