"""Read and write the store directories of Apache RocketMQ, without a broker and without Spark.

A read takes a ``Snapshot`` of a store (``mqstore.read.directory.take``), chooses ``QueueSlice``s
of it (``mqstore.read.source.slices_of``), and scans them to record batches
(``mqstore.read.scan.scan``). A write calls ``mqstore.write.prepare``, ``mqstore.write.stage.task``
and ``mqstore.write.commit`` in turn. ``mqstore.backlog``, ``mqstore.tables``, ``mqstore.check``
and ``mqstore.copy`` are the other entry points.

Importing the package imports neither numpy nor pyarrow.
"""

__version__ = "0.1.0"
