"""How far behind every consumer group is: planned on the driver, measured in tasks.

``plan`` tells which queues of which groups there are rows for, ``split`` shares them out,
``measure`` counts: in one pass over a ConsumeQueue for all the groups that read it.
"""

from mqstore.backlog.measure import measure
from mqstore.backlog.plan import BacklogItem, plan, plan_all, split
from mqstore.backlog.request import LAG_MODES, BacklogRequest
from mqstore.backlog.schema import COLUMNS, SCHEMA

__all__ = [
    "COLUMNS",
    "LAG_MODES",
    "SCHEMA",
    "BacklogItem",
    "BacklogRequest",
    "measure",
    "plan",
    "plan_all",
    "split",
]
