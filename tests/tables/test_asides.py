"""What waits for groups beside their backlog, counted, and shown by the command."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from jobs.command import Run
from jobs.conftest import run
from mqstore.backlog import BacklogRequest, plan_all
from mqstore.tables import asides as module
from mqstore.tables.asides import Aside, asides, pending_halves
from support.opened import opened
from support.oracle import Message, join_properties
from support.stores import Laid, Layout, MakeStore

__all__ = ["run"]
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


def half(topic: str) -> Message:
    properties = {"UNIQ_KEY": topic, "REAL_TOPIC": topic, "REAL_QID": "0", "PGROUP": "P"}
    return Message(topic=HALF, properties=join_properties(properties))


@pytest.fixture
def laid(store: MakeStore) -> Laid:
    """G failed on messages, H has consumed its retries in part; both consume T."""
    of_topics = {
        "T": 5, "U": 1, "%RETRY%G": 3, "%RETRY%G+T": 1, "%RETRY%G_T": 1, "%RETRY%H": 4,
        "%DLQ%G": 2, "%RETRY%nobody": 7,
    }  # fmt: skip
    messages = [Message(topic=topic) for topic, count in of_topics.items() for _ in range(count)]
    outcome = Message(topic=OP, body=b"0", properties=join_properties({"TAGS": "d"}))
    halves = [half("T"), half("T"), half("U"), outcome]
    offsets = {
        ("T", "G"): {0: 1},
        ("T", "H"): {0: 5},
        ("%RETRY%H", "H"): {0: 1},
        ("U", "K"): {0: 1},
    }
    return store([*messages, *halves], Layout(group_offsets=offsets))


def beside(root: Path) -> dict[str, Aside]:
    source, snapshot = opened(root, "b")
    with closing(source):
        items = plan_all([source], [snapshot], BacklogRequest())
        return asides([snapshot], items, pending_halves([source], [snapshot]))


def test_retries_without_an_offset_dead_letters_and_half_messages_are_counted(laid: Laid) -> None:
    """The first half message has an outcome. Retries behind an offset are in the lag already."""
    assert beside(laid.root) == {
        "G": Aside(retries=5, dead_letters=2, half_messages=1),
        "H": Aside(half_messages=1),
        "K": Aside(half_messages=1),
    }


def test_many_half_messages_are_not_read_to_count_them(
    laid: Laid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_HALF_MESSAGES", 3)
    assert {found.half_messages for found in beside(laid.root).values()} == {None}


def test_half_messages_that_cannot_be_read_are_not_counted(laid: Laid, tmp_path: Path) -> None:
    """The backlog itself is shown: it needs none of their records."""
    root = shutil.copytree(laid.root, tmp_path / "damaged")
    log = root / "commitlog" / f"{0:020}"
    log.write_bytes(bytes(log.stat().st_size))
    assert beside(root)["G"] == Aside(retries=5, dead_letters=2)


def test_a_line_below_the_backlog_of_a_group_says_what_waits_beside(run: Run, laid: Laid) -> None:
    of_g = "5 more wait for a retry, 2 dead letters: mqlog retries"
    of_topics = "1 half message to its topics waits for the outcome of a transaction"
    wanted = f"{of_g}; {of_topics}: mqlog halfmessages\n"
    out = run("backlog", laid.root).out
    assert out.index("G  4 messages") < out.index(wanted) < out.index("\nH  ")
    assert out.count("more wait") == 1
    summary = run("backlog", laid.root, "--summary").out
    assert f"G: {wanted}" in summary
    assert f"K: {of_topics}" in summary
    rows = {row["group"]: row for row in run("backlog", laid.root, "--summary", "--json").rows}
    names = ("retryMessages", "deadLetters", "halfMessages")
    assert [rows["G"][name] for name in names] == [5, 2, 1]
    assert [rows["H"][name] for name in names] == [0, 0, 1]
    assert "more wait" not in run("backlog", laid.root, "-t", "T").out


def test_top_and_a_report_say_what_waits_beside(run: Run, laid: Laid, tmp_path: Path) -> None:
    first = run("top", laid.root, "--interval", "0.1").out.partition("\n")[0]
    assert first.endswith("5 more wait for a retry, 2 dead letters")
    page = tmp_path / "report.html"
    assert run("report", laid.root, "-o", page).code == 0
    assert "5 more wait for a retry, 2 dead letters; 1 half message to its topics" in (
        page.read_text()
    )
