"""The option ``subscriptions`` from a DataFrame of the groups' subscriptions.

Brokers do not store subscriptions. If a table has them, no JSON needs to be written by hand:

``option("subscriptions", from_frame(spark.table("ops.subscriptions")))``
"""

import json
from typing import TYPE_CHECKING, Final

from mqstore.errors import InvalidOptionError, InvalidSchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REQUIRED_COLUMNS: Final = ("group", "topic", "expression")
TYPE_COLUMN: Final = "expressiontype"
MAX_ROWS: Final = 1_000_000


def from_frame(frame: "DataFrame") -> str:
    """Return the option for a DataFrame with string columns group, topic and expression.

    The topic ``*`` means all topics of the group that have no row of their own; a null
    expression means all messages. A column ``expressionType`` may say SQL92, in any case, of an
    expression that is no tag expression. Other columns are ignored. Raises InvalidSchemaError for
    a missing column, InvalidOptionError for a group or topic that is null, for another type than
    SQL92, TAG or null, for two expressions of one group and topic, and for more than a million
    rows.
    """
    known = {name.lower(): name for name in frame.columns}
    needed = ", ".join(REQUIRED_COLUMNS)
    for name in REQUIRED_COLUMNS:
        if name not in known:
            expected = f"the frame has {', '.join(frame.columns)}; it needs {needed}"
            raise InvalidSchemaError(name, "missing", expected)
    columns = [*REQUIRED_COLUMNS, *({TYPE_COLUMN} & known.keys())]
    chosen = frame.select(*(frame[f"`{known[name]}`"] for name in columns))
    rows = chosen.distinct().limit(MAX_ROWS + 1).collect()
    if len(rows) > MAX_ROWS:
        raise InvalidOptionError("subscriptions", "frame", f"more than {MAX_ROWS:,} rows")
    found: dict[str, dict[str, str | dict[str, str]]] = {}
    for group, topic, expression, *kind in rows:
        if group is None or topic is None:
            row = json.dumps([group, topic, expression])
            raise InvalidOptionError("subscriptions", row, "a row without group or topic")
        text = "*" if expression is None else expression
        if _is_sql(kind[0] if kind else None) and expression is not None:
            text = {"sql": expression}
        if found.setdefault(group, {}).setdefault(topic, text) != text:
            both = json.dumps([found[group][topic], text])
            expected = f"group {group} must have one expression for topic {topic}, not two"
            raise InvalidOptionError("subscriptions", both, expected)
    return json.dumps(found, ensure_ascii=False)


def _is_sql(kind: str | None) -> bool:
    word = "TAG" if kind is None else str(kind).upper()
    if word not in ("TAG", "SQL92"):
        raise InvalidOptionError("subscriptions", kind, "expressionType must be TAG or SQL92")
    return word == "SQL92"
