"""The partitions of a read: how many tasks it has, and what each of them reads."""

import logging
import os
from collections.abc import Sequence
from typing import Final

from mqstore.errors import shown
from mqstore.read.plan import SplitLimits, split, weigh
from mqstore.read.source import QueueSlice
from mqstore.request.read_options import ReadOptions

_LOG = logging.getLogger(__name__)
_MIB: Final = 1 << 20
_MANY_PARTITIONS: Final = (
    10_000  # Their plan takes 0.3 s of CPU time, 2.6 s of 100,000; Spark more.
)
_VERY_MANY_PARTITIONS: Final = 100_000
_SIZES_OF_PARTITIONS: Final = ("maxRecordsPerPartition", "maxBytesPerPartition", "minPartitions")
_OF_PARTITIONS: Final = (
    "the read has %d partitions, and each costs time to plan and to start; fewer are made by a "
    "larger maxRecordsPerPartition or maxBytesPerPartition, or a smaller minPartitions (set: %s)"
)
_OF_VERY_MANY: Final = "; maxBytesPerPartition=%dm makes about %d"


def in_partitions(
    options: ReadOptions, slices: Sequence[QueueSlice]
) -> list[tuple[QueueSlice, ...]]:
    """Return slices in partitions, as the options bound them."""
    limits = SplitLimits(
        max_bytes=options.max_bytes_per_partition,
        max_records=options.max_records_per_partition,
        min_partitions=options.min_partitions,
        parallelism=cores(),
    )
    strict = options.on_corrupt == "fail"
    partitions = split(weigh(slices, strict=strict), limits)
    if len(partitions) >= _MANY_PARTITIONS:
        _warn_of_many(options, len(partitions))
    return partitions


def _warn_of_many(options: ReadOptions, count: int) -> None:
    """Log a warning that names the options that bound partitions; of very many also a value."""
    given = [f"{n}={options.given[n]}" for n in _SIZES_OF_PARTITIONS if n in options.given]
    text = _OF_PARTITIONS % (count, shown(", ".join(given) or "their defaults"))
    if count > _VERY_MANY_PARTITIONS and options.max_records_per_partition is None:
        times = -(-count // _MANY_PARTITIONS)
        larger = -(-options.max_bytes_per_partition * times // _MIB)
        text += _OF_VERY_MANY % (larger, -(-count // times))
    _LOG.warning("%s", text)


def tasks_of_table(options: ReadOptions) -> int:
    """Return how many tasks may read a table: as many as cores, or what a cluster bounds."""
    bounds = [cluster.max_tasks_per_broker for cluster in options.places.clusters]
    return min([cores(), *(bound for bound in bounds if bound is not None)])


def cores() -> int:
    """Return the assumed number of parallel tasks; the API does not give Spark's own."""
    return os.cpu_count() or 1
