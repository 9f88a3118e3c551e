"""Read and write the store directories of Apache RocketMQ, without a broker and without Spark.

A read takes a ``Snapshot`` of a store with ``take``, chooses ``QueueSlice``s of it, and ``scan``s
them to record batches. A write calls ``mqstore.write.prepare``, ``mqstore.stage.task`` and
``mqstore.write.commit`` in turn. ``mqstore.backlog``, ``mqstore.tables``, ``mqstore.check`` and
``mqstore.copy`` are the other entry points.

Names are imported when they are first used: importing the package imports neither numpy nor
pyarrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mqstore.read.directory import take
    from mqstore.read.queues import QueueBounds
    from mqstore.read.scan import scan
    from mqstore.read.settings import ScanSettings
    from mqstore.read.source import QueueSlice, Snapshot, slices_of

__version__ = "0.1.0"

__all__ = ["QueueBounds", "QueueSlice", "ScanSettings", "Snapshot", "scan", "slices_of", "take"]

_HOMES: Final = {
    "take": "mqstore.read.directory",
    "scan": "mqstore.read.scan",
    "ScanSettings": "mqstore.read.settings",
    "QueueBounds": "mqstore.read.queues",
    "QueueSlice": "mqstore.read.source",
    "Snapshot": "mqstore.read.source",
    "slices_of": "mqstore.read.source",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
