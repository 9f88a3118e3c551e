"""Every view of a golden store in an object store has the rows of the store's directory."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from mqstore.request.places import OBJECTS
from mqstore.request.read_options import READ_OPTIONS
from support import goldens, planned, soak
from support.s3_server import S3Server

_TABLES = [
    *("queues", "topics", "offsets", "groups", "subscriptions", "brokers", "tags", "scheduled"),
    *("halfmessages", "retries", "commits", "files", "index", "verify", "backlog", "lagcompare"),
]
_OPTIONS: list[dict[str, str]] = [
    {"columns": "full", "includeSystemTopics": "true"},
    {"startingOffsets": "-3"},
    {"startingTimestamp": "1700000000000"},
    {"requestsInFlight": "1"},
    {"maxRecordsPerPartition": "400", "batchRows": "7"},
    {"readMode": "mmap"},
]
_OF_TIME = {"asOf", "lagMs", "metricLatencyMs"}


def ordered(rows: list[dict[str, Any]], path: str) -> list[str]:
    """Rows as texts in order, without when they were made and where the store lies."""
    kept = ({k: v for k, v in row.items() if k not in _OF_TIME} for row in rows)
    return sorted(repr(sorted(row.items())).replace(path, "ROOT") for row in kept)


def same(server: S3Server, uploaded: tuple[Path, str], **options: str) -> int:
    """Check that both places have the same rows, and return how many."""
    root, address = uploaded
    local = ordered(planned.rows(str(root), **options), str(root))
    assert ordered(planned.rows(address, **server.options, **options), address) == local
    return len(local)


# Of each table one of the two versions is drawn.
@pytest.mark.soak
@pytest.mark.parametrize(
    ("table", "golden"),
    soak.sample(itertools.product(_TABLES, goldens.VERSIONS), check=3, test=len(_TABLES)),
    indirect=["golden"],
)
def test_a_table_has_the_same_rows(
    server: S3Server, uploaded: tuple[Path, str], table: str
) -> None:
    same(server, uploaded, table=table)


def test_all_tables_are_tried() -> None:
    (names,) = (o for o in READ_OPTIONS.values() if o.name == "table")
    for table in _TABLES:
        assert names.value(table) == table
    assert names.value("messages") == "messages"
    assert {option.name for option in OBJECTS.values()} == {
        "fs.*",
        "requestsInFlight",
        "allowUnclean",
        "maxObjects",
    }


@pytest.mark.soak
@pytest.mark.parametrize(
    ("options", "golden"),
    soak.sample(itertools.product(_OPTIONS, goldens.VERSIONS), check=1, test=len(_OPTIONS)),
    indirect=["golden"],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_messages_are_the_same(
    server: S3Server, uploaded: tuple[Path, str], options: dict[str, str]
) -> None:
    root, address = uploaded
    here = {name: text for name, text in options.items() if name != "requestsInFlight"}
    local = ordered(planned.rows(str(root), **here), str(root))
    assert len(local) > 3
    assert ordered(planned.rows(address, **server.options, **options), address) == local


@soak.not_in_check
def test_messages_of_batch_queues_are_the_same(server: S3Server, tmp_path: Path) -> None:
    root = goldens.unpack(goldens.BATCH, tmp_path)
    uploaded = root, server.upload(root, "batch/store")
    assert same(server, uploaded, columns="full") > 200
    for table in ("queues", "tags", "backlog", "verify"):
        same(server, uploaded, table=table)


@soak.not_in_check
def test_messages_are_found_by_tag_key_id_and_group(
    server: S3Server, uploaded: tuple[Path, str]
) -> None:
    messages = planned.rows(str(uploaded[0]))
    tagged = next(row for row in messages if row["tags"] and row["keys"])
    assert same(server, uploaded, tags=tagged["tags"]) > 0
    assert same(server, uploaded, keys=tagged["keys"].split()[0]) > 0
    assert same(server, uploaded, msgIds=tagged["msgId"]) > 0
    behind = planned.rows(str(uploaded[0]), table="backlog")
    group = next(row for row in behind if row["lag"] and row["consumerOffset"])
    start = {"startingGroup": group["group"], "subscribe": group["topic"]}
    assert same(server, uploaded, **start) > 0


@soak.not_in_check
def test_messages_are_found_by_the_log_alone(
    server: S3Server, uploaded: tuple[Path, str], tmp_path: Path
) -> None:
    root, address = uploaded
    by_log = {"queues": "log", "cacheDir": str(tmp_path)}
    local = ordered(planned.rows(str(root), **by_log), str(root))
    assert len(local) > 100
    assert ordered(planned.rows(address, **server.options, **by_log), address) == local
    before = len(server.requests())
    assert ordered(planned.rows(address, **server.options, **by_log), address) == local
    again = [r for r in server.requests()[before:] if r.method == "GET" and "commitlog" in r.path]
    assert sum(r.bytes for r in again) < 2 * sum(
        f.stat().st_size for f in (root / "commitlog").iterdir()
    )
