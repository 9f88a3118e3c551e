"""The changes of a database as a table of a terminal."""

from typing import Final

from mqlog_jobs.output.render import FieldView

CHANGE_VIEW: Final = (
    FieldView("queueId", "QUEUE", "number"),
    FieldView("queueOffset", "OFFSET", "count"),
    FieldView("sourceTimestamp", "CHANGED (UTC)", "time", rank=3),
    FieldView("op", "OP", style="cyan"),
    FieldView("database", "DATABASE", rank=2),
    FieldView("table", "TABLE"),
    FieldView("row", "ROW", stretch=True),
    FieldView("before", "BEFORE", rank=1),
    FieldView("_bodyError", "ERROR", rank=4),
)
CHANGE_VIEW_COLUMNS: Final = ("brokerName", *(column.name for column in CHANGE_VIEW))
