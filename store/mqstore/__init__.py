"""Read and write Apache RocketMQ store directories, without a broker and without Spark.

The way of a read: ``take`` a Snapshot of a store, choose QueueSlices of it, ``scan`` them to
record batches. The other doors are modules: ``mqstore.check``, ``mqstore.backlog``,
``mqstore.tables``, ``mqstore.write.prepare``, ``mqstore.stage.task``, ``mqstore.write.commit``.
"""

from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import QueueBounds, QueueSlice, Snapshot, slices_of

__version__ = "0.1.0"

__all__ = ["QueueBounds", "QueueSlice", "ScanSettings", "Snapshot", "scan", "slices_of", "take"]
