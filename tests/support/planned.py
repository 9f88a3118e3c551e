"""Rows of a read as Spark's tasks give them: planned, pickled and worked through, without Spark."""

import pickle
from typing import Any

from mqstore.request.plan import plan_read, read_schema
from pyspark_mqlog.options import parse_read


def rows(path: str, **options: str) -> list[dict[str, Any]]:
    """Return the rows of a batch read, all columns that are chosen, in no order of note."""
    parsed = parse_read({"path": path, **options})
    work = plan_read(parsed, read_schema(parsed).names).work()
    found: list[dict[str, Any]] = []
    for share in work:
        for batch in pickle.loads(pickle.dumps(share)).batches():
            found += batch.to_pylist()
    return found
