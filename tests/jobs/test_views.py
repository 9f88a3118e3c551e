"""What the tables say beside their rows."""

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from jobs.command import Run
from mqlog_jobs.output import render, views
from support import goldens
from support.oracle import Message
from support.stores import lay_out


@pytest.mark.parametrize("status", ["AHEAD", "TOPIC_GONE", "EXPIRED"])
def test_a_group_has_not_consumed_what_a_broker_cannot_give_it(status: str) -> None:
    row = {
        "brokerName": "b",
        "group": "G",
        "topic": "T",
        "queueId": 0,
        "tag": None,
        "brokerOffset": 0,
        "consumerOffset": 97,
        "lag": 0,
        "lagMatching": 0,
        "ready": None,
        "bytesBehind": 0,
        "lagMs": None,
        "subscription": None,
        "consumers": None,
    }
    out = io.StringIO()
    views.backlog(render.terminal(out), [{**row, "status": "OK"}, {**row, "status": status}])
    assert out.getvalue().splitlines()[0] == f"G  no messages waiting, but {status}"

    out = io.StringIO()
    views.backlog(render.terminal(out), [{**row, "status": "OK"}])
    assert out.getvalue().splitlines()[0] == "G  has consumed everything"


def test_a_lost_queue_is_not_one_that_is_consumed(
    run: Run,
    tmp_path: Path,
) -> None:
    root = goldens.unpack("5.5.0", tmp_path)
    shutil.rmtree(root / "consumequeue" / "GTopic")

    assert "consumed everything" not in run("backlog", root, "-g", "CG_G").out


def test_a_finding_names_its_topic_queue_and_queue_offset_where_it_has_them(
    run: Run,
    tmp_path: Path,
) -> None:
    root = goldens.unpack("5.5.0", tmp_path)
    shutil.rmtree(root / "consumequeue" / "GTopic")
    head, _, *lines = run("verify", root).out.splitlines()
    rows = run("verify", root, "--json").rows

    assert head.split() == ["SEVERITY", "PLACE", "FILE", "AT", "BYTE", "PROBLEM"]
    assert [line.split()[1] for line in lines] == [
        f"{row['topic']}/{row['queueId']}@{row['queueOffset']}" for row in rows
    ]


def test_a_finding_is_printed_with_the_number_of_its_consequences(
    run: Run,
    tmp_path: Path,
) -> None:
    messages = [Message(body=b"b" * 240, properties=b"TAGS\x01A\x02KEYS\x01k")] * 40
    laid = lay_out(tmp_path / "store", messages)
    path, position = laid.file_of(laid.messages[5])
    with path.open("r+b") as file:
        file.seek(position)
        file.write(b"\x7f")
    _, _, line = run("verify", laid.root).out.splitlines()
    (row,) = run("verify", laid.root, "--json").rows
    assert row["consequences"] > 100
    assert line.endswith(f"either, and {row['consequences']} consequences")


def test_findings_without_a_place_have_no_column_for_it() -> None:
    row = {
        "severity": "error",
        "file": "abort",
        "position": None,
        "topic": None,
        "queueId": None,
        "queueOffset": None,
        "problem": "p",
        "consequences": 0,
    }
    rows = (row, row | {"topic": "T"}, row | {"topic": "T", "queueId": 3})
    for more, told in zip(rows, (None, "T", "T/3"), strict=True):
        out = io.StringIO()
        views.findings(render.terminal(out), "store", [row, more])
        assert ("PLACE" in out.getvalue()) is (told is not None)
        assert told is None or out.getvalue().splitlines()[3].split()[1] == told


def test_on_a_terminal_a_broken_rule_comes_whole_and_with_what_repairs_it() -> None:
    row = {
        "severity": "error",
        "file": "commitlog/00000000000000000000",
        "position": 29_891,
        "topic": None,
        "queueId": None,
        "queueOffset": None,
        "problem": "CRC-32 of body or record differs from the one in its header",
        "consequences": 0,
    }
    out = io.StringIO()
    views.findings(Console(file=out, width=80, force_terminal=True, color_system=None), "s", [row])

    text = " ".join(line[50:].strip() for line in out.getvalue().splitlines()[2:5])
    assert text.startswith("CRC-32 of body or record differs from the one in its header")
    assert "mqlog salvage -h" in out.getvalue()
