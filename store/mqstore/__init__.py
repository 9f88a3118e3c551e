"""Read and write the store directories of Apache RocketMQ, without a broker and without Spark.

A read takes a ``Snapshot`` of a store with ``take``, chooses ``QueueSlice``s of it, and ``scan``s
them to record batches. A write calls ``mqstore.write.prepare``, ``mqstore.stage.task`` and
``mqstore.write.commit`` in turn. ``mqstore.backlog``, ``mqstore.tables``, ``mqstore.check`` and
``mqstore.copy`` are the other entry points.
"""

from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueBounds, QueueSlice, Snapshot, slices_of

__version__ = "0.1.0"

__all__ = ["QueueBounds", "QueueSlice", "ScanSettings", "Snapshot", "scan", "slices_of", "take"]
