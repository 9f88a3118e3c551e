"""A golden store of 5.5.1 with a compaction topic beside others: what its client got of the others.

The topic itself is left out with a warning that names it, and refused where it is named. Each
message of its ordinary queue, which no consumer can get, stays out of all answers.
"""

import logging
from pathlib import Path
from typing import Any

import pytest

from mqstore.check import check
from mqstore.copy.copy_store import copy_store
from mqstore.copy.restore_point import restore_point
from mqstore.copy.salvage import salvage
from mqstore.copy.take_point import take_point
from mqstore.errors import UnsupportedStoreError, UnsupportedTopicError
from mqstore.write.recover import RecoverSettings, recover
from snapshot_copy.pointed import at, backing
from support import goldens, planned

STORE = "5.5.1-compaction"
TOPIC = "GcpCmp"
REFUSED = rf"MQLOG_UNSUPPORTED_TOPIC.COMPACTION\] topic {TOPIC}"
OWN = ("RMQ_SYS", "SCHEDULE", "rmq_sys", "%RETRY%")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return goldens.unpack(STORE, tmp_path_factory.mktemp("golden"))


def key_of(row: dict[str, Any]) -> tuple[str, int, int, str]:
    return row["topic"], row["queueId"], row["queueOffset"], row["msgId"]


def expected() -> set[tuple[str, int, int, str]]:
    rows = [row for row in goldens.expected(STORE) if not row["topic"].startswith(OWN)]
    return {key_of(row) for row in rows if row["topic"] != TOPIC}


@pytest.mark.parametrize("options", [{}, {"queues": "log"}], ids=["queues", "log"])
def test_the_other_topics_are_what_the_client_got(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, str]
) -> None:
    if options:
        options = options | {"cacheDir": str(tmp_path)}
    with caplog.at_level(logging.WARNING):
        rows = planned.rows(str(root), **options)
    assert {key_of(row) for row in rows} == expected()
    assert f"left out: {TOPIC}" in caplog.text
    with pytest.raises(UnsupportedTopicError, match=REFUSED):
        planned.rows(str(root), subscribe=TOPIC, **options)
    with pytest.raises(UnsupportedTopicError, match=REFUSED):
        planned.rows(str(root), subscribe=f"GcpTopic,{TOPIC}", **options)


def test_a_topic_that_is_not_named_is_no_error(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = planned.rows(str(root), subscribe="GcpTopic")
    assert len(rows) == 145
    assert caplog.text == ""


def test_the_backlog_is_what_the_tool_printed(root: Path) -> None:
    rows = planned.rows(str(root), table="backlog")
    diffs = {(r["group"], r["topic"], r["queueId"]): r["diff"] for r in rows}
    printed = goldens.progress(STORE)
    assert printed
    assert {key: line.diff for key, line in printed.items()}.items() <= diffs.items()


@pytest.mark.parametrize("table", ["queues", "topics", "tags"])
def test_tables_leave_the_topic_out(root: Path, table: str) -> None:
    topics = {row["topic"] for row in planned.rows(str(root), table=table)}
    assert "GcpTopic" in topics
    assert TOPIC not in topics


def test_the_whole_store_is_verified(root: Path) -> None:
    assert [found for found in check(root) if found.severity == "error"] == []


def test_a_copy_and_a_point_have_the_compacted_log(root: Path, tmp_path: Path) -> None:
    copy_store(str(root), str(tmp_path / "copy"))
    place = backing(tmp_path / "repository")
    head = take_point(str(root), place)
    restore_point(at(place, 1), str(tmp_path / "restored"))
    assert head.left_out == ()
    log = {p.relative_to(root): p.read_bytes() for p in root.glob("compaction/**/*") if p.is_file()}
    assert len(log) > 8
    for made in (tmp_path / "copy", tmp_path / "restored"):
        assert {path: (made / path).read_bytes() for path in log} == log
        assert {key_of(row) for row in planned.rows(str(made))} == expected()
    assert {key_of(row) for row in planned.rows(f"{tmp_path}/repository@1")} == expected()


def test_of_a_broker_that_runs_it_is_left_out_by_name(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy_store(str(root), str(tmp_path / "running"))
    (tmp_path / "running" / "abort").touch()
    copied = copy_store(str(tmp_path / "running"), str(tmp_path / "copy"))
    assert copied.left_out == ("compaction",)
    assert f"the compacted logs of {TOPIC} are left out" in caplog.text
    with pytest.raises(UnsupportedTopicError, match=REFUSED):
        planned.rows(str(tmp_path / "copy"), subscribe=TOPIC)


def test_what_would_lose_the_compacted_log_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedStoreError, match=r"MQLOG_UNSUPPORTED_STORE.COMPACTION"):
        salvage(str(root), str(tmp_path / "new"))
    with pytest.raises(UnsupportedStoreError, match=r"MQLOG_UNSUPPORTED_STORE.COMPACTION"):
        recover(str(root), RecoverSettings())


def test_all_points_of_a_repository_leave_the_topic_out(root: Path, tmp_path: Path) -> None:
    take_point(str(root), backing(tmp_path / "repository"))
    assert {key_of(row) for row in planned.rows(f"{tmp_path}/repository@all")} == expected()
    with pytest.raises(UnsupportedTopicError, match=REFUSED):
        planned.rows(f"{tmp_path}/repository@all", subscribe=TOPIC)
