"""The backlog of consumer groups, planned on the driver and measured in tasks.

``plan`` tells which queues of which groups there are rows for, ``split`` shares them out,
``measure`` counts: in one pass over a ConsumeQueue for all the groups that read it. ``compare``
puts what RocketMQ's own tools would print beside it.
"""

from mqstore.backlog.compare import COLUMNS as COMPARE_COLUMNS
from mqstore.backlog.compare import SCHEMA as COMPARE_SCHEMA
from mqstore.backlog.compare import Listed, compare
from mqstore.backlog.items import BacklogItem, PackedItems
from mqstore.backlog.late import Statuses
from mqstore.backlog.measure import by_offsets, measure, measure_in_batches
from mqstore.backlog.plan import Planner, check_groups, plan, plan_all, split
from mqstore.backlog.request import LAG_MODES, BacklogRequest
from mqstore.backlog.schema import BY_OFFSETS, COLUMNS, SCHEMA

__all__ = [
    "BY_OFFSETS",
    "COLUMNS",
    "COMPARE_COLUMNS",
    "COMPARE_SCHEMA",
    "LAG_MODES",
    "SCHEMA",
    "BacklogItem",
    "BacklogRequest",
    "Listed",
    "PackedItems",
    "Planner",
    "Statuses",
    "by_offsets",
    "check_groups",
    "compare",
    "measure",
    "measure_in_batches",
    "plan",
    "plan_all",
    "split",
]
