"""Backlog as Prometheus text: names, labels, sums, escapes."""

import os
from pathlib import Path

import pytest

from jobs.command import Run
from mqlog_jobs.output import whole_file
from mqlog_jobs.output.prometheus import text
from mqlog_jobs.output.whole_file import replace_file
from support import goldens

ROW: dict[str, object] = {
    "brokerName": "broker-a",
    "group": "CG",
    "topic": "ORDERS",
    "queueId": 0,
    "consumerOffset": 90,
    "diff": 10,
    "lag": 8,
    "lagMatching": 3,
    "expired": 2,
    "bytesBehind": 800,
    "lagMs": 5000,
    "status": "OK",
}


def samples(rows: list[dict[str, object]], system: tuple[str, ...] = ()) -> dict[str, str]:
    lines = [line for line in text(rows, system).splitlines() if not line.startswith("#")]
    return dict(line.rsplit(" ", 1) for line in lines)  # type: ignore[misc]


def test_queues_of_a_topic_are_summed_and_the_longest_wait_counts() -> None:
    found = samples([ROW, ROW | {"queueId": 1, "diff": 5, "lagMs": 9000, "consumerOffset": None}])
    group, broker = 'group="CG",topic="ORDERS"', 'broker="broker-a",topic="ORDERS",group="CG"'
    node = (
        'node_type="broker",node_id="broker-a",topic="ORDERS",consumer_group="CG",'
        'is_retry="false",is_system="false"'
    )

    assert found[f"rocketmq_group_diff{{{group}}}"] == "15"
    assert found[f"rocketmq_consumer_offset{{{broker}}}"] == "90"
    assert found[f"rocketmq_group_get_latency_by_storetime{{{broker}}}"] == "9000"
    assert found[f"rocketmq_consumer_lag_messages{{{node}}}"] == "6"
    assert found[f"rocketmq_consumer_lag_latency{{{node}}}"] == "9000"
    assert found[f"mqlog_consumer_expired{{{broker}}}"] == "4"
    assert found[f'mqlog_consumer_queues{{{broker},status="OK"}}'] == "2"


def test_a_groups_diff_is_that_of_all_brokers() -> None:
    found = samples([ROW, ROW | {"brokerName": "broker-b"}])

    assert found['rocketmq_group_diff{group="CG",topic="ORDERS"}'] == "20"
    assert sum("rocketmq_consumer_lag_messages" in name for name in found) == 2


def test_retry_and_dead_letter_topics_have_metrics_of_their_own() -> None:
    names = {
        name.split("{")[0]
        for topic in ("%RETRY%CG", "%DLQ%CG")
        for name in samples([ROW | {"topic": topic}], ("%RETRY%CG",))
        if "diff" in name
    }

    assert names == {"rocketmq_group_retrydiff", "rocketmq_group_dlqdiff"}
    retried = "".join(samples([ROW | {"topic": "%RETRY%CG"}], ("%RETRY%CG",)))
    assert 'is_retry="true",is_system="true"' in retried


def test_every_metric_is_told_once_and_labels_are_escaped() -> None:
    lines = text([ROW | {"group": 'a"b\\c\nd'}, ROW]).splitlines()

    assert any('group="a\\"b\\\\c\\nd"' in line for line in lines)
    types = [line for line in lines if line.startswith("# TYPE")]
    assert (
        len(types) == len(set(types)) == len({line.split("{")[0] for line in lines if "{" in line})
    )
    assert text([]) == ""


def test_the_file_is_replaced_at_once_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backlog.prom"
    before = os.umask(0o027)
    replace_file(str(target), "old\n")
    os.umask(before)
    inode = target.stat().st_ino
    replace_file(str(target), "new\n")

    assert target.read_text() == "new\n"
    assert target.stat().st_ino != inode
    assert target.stat().st_mode & 0o777 == 0o640

    def full(fd: int, mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(whole_file.os, "fchmod", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(str(target), "newer\n")
    assert [path.name for path in tmp_path.iterdir()] == ["backlog.prom"]
    assert target.read_text() == "new\n"
    assert os.access(target, os.R_OK)


def test_prometheus_gets_what_the_broker_said(
    run: Run, golden: tuple[str, Path], tmp_path: Path
) -> None:
    version, root = golden
    theirs: dict[tuple[str, str], int] = {}
    for (group, topic, _), line in goldens.progress(version).items():
        theirs[group, topic] = theirs.get((group, topic), 0) + line.diff
    file = tmp_path / "backlog.prom"

    done = run("backlog", root, "--quiet", "--prometheus", file)
    assert done == (0, "", "")
    told = set(file.read_text().splitlines())
    for (group, topic), diff in theirs.items():
        name = "retrydiff" if topic.startswith("%RETRY%") else "diff"
        assert f'rocketmq_group_{name}{{group="{group}",topic="{topic}"}} {diff}' in told
