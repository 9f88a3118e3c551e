"""A topic that was deleted is no damage: its messages are in the log until they expire."""

import shutil
from pathlib import Path

import pytest

from check.damages import errors, write
from mqstore.check import check
from support.deleted import NEW, OLD, make_again, twice
from support.oracle import Message
from support.stores import Laid, Layout, lay_out

SMALL = Layout(index=False, queue_units=8)


def told(root: Path) -> dict[str | None, str]:
    """The problem of each topic, of a store without an error."""
    found = check(root)
    assert [f for f in found if f.severity == "error"] == []
    return {f.topic: f.problem for f in found}


@pytest.mark.parametrize(("before", "after"), [(40, 6), (6, 40), (10, 10), (9, 1)])
def test_a_topic_that_was_made_again_is_one_warning(
    tmp_path: Path, before: int, after: int
) -> None:
    laid = make_again(lay_out(tmp_path / "store", twice(before, after, 1), SMALL))
    (problem,) = told(laid.root).values()
    assert problem.startswith(f"{before} messages of the log lie before the first of their queue")


@pytest.mark.parametrize("empty", [False, True])
def test_queues_that_got_no_message_since_are_part_of_it(tmp_path: Path, *, empty: bool) -> None:
    laid = make_again(lay_out(tmp_path / "store", twice(40, 1, 4), SMALL))
    if empty:
        (laid.root / "consumequeue" / NEW / "3").mkdir()
    assert errors(laid.root) == []
    assert any(f.problem.startswith("40 messages") for f in check(laid.root))


def test_a_topic_that_was_not_made_again_is_one_warning(tmp_path: Path) -> None:
    laid = make_again(lay_out(tmp_path / "store", twice(12, 0), SMALL))
    assert told(laid.root) == {
        NEW: "12 messages of a topic, or of queues of it, that topics.json does not have, and "
        "that are in no queue: it was deleted"
    }


def test_queues_that_a_topic_has_no_more_are_no_damage(tmp_path: Path) -> None:
    sent = [Message(topic=OLD, queue_id=3), Message(topic=NEW), Message(topic=NEW)]
    laid = make_again(lay_out(tmp_path / "store", sent, SMALL))
    assert told(laid.root)[NEW].startswith("1 messages of a topic, or of queues of it")


def no_queues(laid: Laid) -> None:
    shutil.rmtree(laid.root / "consumequeue" / NEW)


def no_queue(laid: Laid) -> None:
    shutil.rmtree(laid.root / "consumequeue" / NEW / "1")


def no_unit(laid: Laid) -> None:
    write(laid.unit_of((NEW, 0), 1)[0], 20, bytes(20))


def no_topics(laid: Laid) -> None:
    shutil.rmtree(laid.root / "consumequeue" / NEW)
    for name in ("topics.json", "topics.json.bak"):
        (laid.root / "config" / name).unlink(missing_ok=True)


@pytest.mark.parametrize("damage", [no_queues, no_queue, no_unit, no_topics])
def test_lost_queues_of_it_are_damage(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    laid = make_again(lay_out(tmp_path / "store", twice(8, 8), SMALL))
    damage(laid)
    assert errors(laid.root)
