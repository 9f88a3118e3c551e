"""Real brokers through `import mqlog`: every engine has the rows of the broker's directory."""

import duckdb
import pyarrow as pa
import pytest

import mqlog
from live.real import Live

pytestmark = pytest.mark.broker

COLUMNS = ["queueId", "queueOffset", "body", "tags", "keys", "msgId", "properties"]
ORDER = [("queueId", "ascending"), ("queueOffset", "ascending")]


def test_every_engine_reads_of_a_cluster_what_the_directory_has(live: Live) -> None:
    cluster = mqlog.open(f"rocketmq://{','.join(live.name_servers)}")
    directory = mqlog.open(live.root)
    read = 0
    for topic in directory.topics():
        held = directory.scan(topic, columns=COLUMNS)
        if not held.count():
            continue
        scan = cluster.scan(topic, columns=COLUMNS)
        wanted = held.to_table().sort_by(ORDER)
        found = {
            "pyarrow": scan.to_table(),
            "DuckDB": duckdb.sql("FROM scan").to_arrow_table().cast(scan.schema),
            "splits": of_splits(scan),
        }
        assert {name: rows.sort_by(ORDER).equals(wanted) for name, rows in found.items()} == (
            dict.fromkeys(found, True)
        )
        assert scan.to_polars_lazy().collect().equals(scan.to_polars())
        assert scan.count() == held.count() == wanted.num_rows
        read += wanted.num_rows
    assert read > 1_000


def of_splits(scan: mqlog.Scan) -> pa.Table:
    return pa.concat_tables([split.to_table() for split in scan.splits(3)])
