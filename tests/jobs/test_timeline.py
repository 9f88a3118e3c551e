"""The life of a message, as find --trace shows it, beside what its clients measured."""

import re
from pathlib import Path

import pytest

from jobs.command import Run
from support import goldens, traced
from support.oracle import Message, join_properties
from support.stores import MakeStore


@pytest.fixture(params=goldens.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(version: str, tmp_path: Path) -> Path:
    return goldens.unpack(f"{version}-traces", tmp_path)


def test_a_message_that_failed_shows_every_step_in_the_order_of_time(
    run: Run, root: Path, version: str
) -> None:
    steps = run("find", root, "--key", "t5", "--trace", "--json").rows
    assert [step["time"] for step in steps] == sorted(str(step["time"]) for step in steps)
    # Born and sent in the same millisecond, and stored before the send has returned.
    assert [step["step"] for step in steps][:3] == ["born", "send", "stored"]
    measured = [
        row
        for row in traced.lines(version, "measured")
        if row["event"] == "consumed" and row["keys"] == "t5"
    ]
    deliveries = [step for step in steps if step["step"] == "delivery"]
    assert len(deliveries) == len(measured) == 4
    for row in measured:
        again = f"{row['result']}, after 1 failures" if row["reconsumeTimes"] else row["result"]
        (step,) = (s for s in deliveries if (s["group"], s["detail"]) == (row["group"], again))
        assert abs(int(str(step["tookMs"])) - (row["end"] - row["start"])) <= 2
    stored = [str(step["detail"]) for step in steps if step["step"] == "stored"]
    assert any("%RETRY%CG_T/0@" in place and "after 1 failures" in place for place in stored)


def test_a_terminal_shows_a_line_for_each_step_under_the_id(run: Run, root: Path) -> None:
    shown = run("find", root, "--key", "t24", "--trace").out
    assert re.search(r"end of transaction +TX_Traced +– +COMMIT_MESSAGE", shown)
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} +0 ms +born", shown)
    assert shown.startswith("FD0000")


def test_the_send_of_a_batch_is_found_though_no_index_leads_to_it(run: Run, root: Path) -> None:
    steps = run("find", root, "--key", "t13", "--trace", "--json").rows
    (send,) = (step for step in steps if step["step"] == "send")
    assert send["group"] == "P_Traced"


def test_what_is_not_traced_is_said(run: Run, store: MakeStore) -> None:
    message = Message(topic="T", properties=join_properties({"UNIQ_KEY": "ID", "KEYS": "k"}))
    root = store([message]).root
    shown = run("find", root, "--key", "k", "--trace").out
    assert "no event of it is traced" in shown
    assert "stored" in shown
    assert run("find", root, "--key", "other", "--trace").code == 1


def test_a_start_or_an_end_that_is_not_traced_is_said(run: Run, store: MakeStore) -> None:
    properties = join_properties({"UNIQ_KEY": "ID", "KEYS": "k"})
    body = "\x01".join(["SubBefore", "1000", "R", "g", "q1", "ID", "0", "k"]) + "\x02"
    body += "\x01".join(["SubAfter", "q2", "ID", "5", "true", "k", "0", "2000", "h"]) + "\x02"
    traces = Message(
        topic="OwnTraces", properties=join_properties({"KEYS": "ID k"}), body=body.encode()
    )
    root = store([Message(topic="T", properties=properties), traces]).root
    options = ("--key", "k", "--trace", "--trace-topic", "OwnTraces", "--json")
    deliveries = [row for row in run("find", root, *options).rows if row["step"] == "delivery"]
    assert [(row["group"], row["detail"], row["tookMs"]) for row in deliveries] == [
        ("g", "no end is traced", None),
        ("h", "SUCCESS, its start is not traced", None),
    ]
    wrong = run("find", root, "--key", "k", "--trace", "--trace-topic", "OwnTrace")
    assert (wrong.code, "did you mean OwnTraces" in wrong.err) == (2, True)
    alone = run("find", root, "--key", "k", "--trace-topic", "OwnTraces")
    assert (alone.code, "is for find with --trace" in alone.err) == (2, True)
