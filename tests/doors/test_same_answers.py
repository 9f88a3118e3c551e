"""The same question has the same answer at every door, whatever the kind of the place."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from doors.doors import Given, by_cat, by_scan, by_sql, condition_of
from doors.questions import CORRUPT_STORE, QUESTIONS, Question
from jobs.command import Run
from places import kinds
from places.kinds import POINTS, STORES, TOPIC, Place, Point
from support.oracle import Message

KINDS = ("directory", "RocksDB", "batch queues", "DLedger", "log", "point", "cluster")


@pytest.fixture(params=KINDS)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """A place of each kind that the command's line can name with all options."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "cluster":
        with kinds.running(tmp_path) as found:
            yield found
    elif request.param in POINTS:
        yield Point(tmp_path, POINTS[request.param](tmp_path))
    else:
        yield STORES[request.param](tmp_path)


def answer(question: Question, held: Sequence[Message]) -> Given:
    """What is right."""
    found = question.answer(held)
    return found if isinstance(found, str) else sorted((m.queue_id, m.queue_offset) for m in found)


def right_in_sql(question: Question, right: Given) -> Given | None:
    """What is right in SQL; None where the question is not one of SQL.

    A topic is a table of the query, and its queue a condition. Options are of all tables there.
    """
    if question.queue is not None or "byTag" in question.options:
        return None
    return "MQLOG_INVALID_QUERY" if question.topic != TOPIC else right


def questions_of(place: Place) -> list[str]:
    """All questions for a directory and a cluster, a third of them for what takes long to open."""
    names = list(QUESTIONS)
    is_common = isinstance(place, kinds.Running) or type(place) is kinds.Store
    return names if is_common else names[::3]


def test_the_doors_without_spark_give_the_same_messages(place: Place, run: Run) -> None:
    doors = {"scan": by_scan, "cat": by_cat(run), "sql": by_sql(run)}
    wrong = []
    for name in questions_of(place):
        question = QUESTIONS[name]
        right = answer(question, place.held)
        answers = {"scan": right, "cat": right, "sql": right_in_sql(question, right)}
        for door, ask in doors.items():
            if answers[door] is None:
                continue
            given = ask(place.options, question)
            if given != answers[door]:
                wrong.append((name, door, given if isinstance(given, str) else len(given)))
    assert not wrong


def test_a_broken_message_is_the_same_error_or_left_out_at_each_door(
    place: Place, run: Run
) -> None:
    lost = place.damage(place.held[20])
    sound = sorted(
        (m.queue_id, m.queue_offset)
        for m in place.held
        if not any((m.queue_id, m.queue_offset) == (o.queue_id, o.queue_offset) for o in lost)
    )
    for ask in (by_scan, by_cat(run), by_sql(run)):
        assert ask(place.options, Question(list, {"onCorrupt": "skip"})) == sound
        if place.options.get("queues") != "log":  # A log is read on behind what is broken.
            assert ask(place.options, Question(list)) == CORRUPT_STORE


@pytest.mark.spark
def test_spark_gives_the_same_messages(spark: SparkSession, tmp_path: Path) -> None:
    wrong = []
    store = kinds.in_directory(tmp_path)
    with kinds.running(tmp_path / "beside") as cluster:
        for each, names in ((store, list(QUESTIONS)), (cluster, list(QUESTIONS)[::3])):
            for name in names:
                question = QUESTIONS[name]
                reader = spark.read.format("mqlog").options(**each.options, **question.texts)
                try:
                    rows = reader.load().select("queueId", "queueOffset").collect()
                    given: Given = sorted((row.queueId, row.queueOffset) for row in rows)
                except Exception as error:  # noqa: BLE001 - Spark has a class for each stage
                    given = condition_of(error)
                if given != answer(question, each.held):
                    wrong.append((name, given if isinstance(given, str) else len(given)))
    assert not wrong
