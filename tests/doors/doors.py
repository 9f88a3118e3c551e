"""Four ways to ask for messages, each by the options of the Spark source and a place."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession

import mqlog
from doors.questions import Question
from jobs.command import Done, Run
from mqlog.keywords import keyword
from mqstore.errors import StoreError

Given: TypeAlias = list[tuple[int, int]] | str
"""The queue and the offset of each message that a door gave, sorted; or the error's condition."""
Door: TypeAlias = Callable[[Mapping[str, str], Question], Given]
_CONDITION: Final = re.compile(r"\[(MQLOG_\w+)\]")
_FLAGS: Final = {
    "tags": "--tag", "sql": "--sql", "keys": "--key",
    "startingTimestamp": "--since", "endingTimestamp": "--until", "onCorrupt": "--on-corrupt",
}  # fmt: skip
_FLAGS_OF_SQL: Final = {"--since", "--until", "--on-corrupt"}


def condition_of(error: Exception) -> str:
    """Return the condition of an error; raises it where it has none."""
    found = _CONDITION.search(str(error))
    if found is None:
        raise error
    return found[1]


def by_scan(place: Mapping[str, str], question: Question) -> Given:
    """Ask by ``mqlog.open(…).scan(…)``."""
    own = {keyword(name): text for name, text in place.items() if name != "path"}
    texts = {keyword(name): text for name, text in question.texts.items()}
    try:
        scan = mqlog.open(place["path"], **own).scan(**texts)
        rows = scan.to_table().to_pylist()
        assert scan.count() == len(rows)
    except StoreError as error:
        return condition_of(error)
    return sorted((row["queueId"], row["queueOffset"]) for row in rows)


def by_cat(run: Run) -> Door:
    """Return the door ``mqlog cat``."""

    def ask(place: Mapping[str, str], question: Question) -> Given:
        address = question.topic
        if question.queue is not None:
            address += f"/{question.queue}"
        if question.offset is not None:
            address += f"@{question.offset}"
        words = _words({**place, **question.options}, _FLAGS)
        return _given(run("cat", place["path"], address, "-n", "0", "--json", *words))

    return ask


def by_sql(run: Run) -> Door:
    """Return the door ``mqlog sql``; a queue and an offset are conditions of the query."""

    def ask(place: Mapping[str, str], question: Question) -> Given:
        texts = dict(question.texts)
        texts.pop("subscribe", None)
        if texts.pop("assign", None) is not None:
            texts.pop("startingOffsets", None)
        flags = {name: flag for name, flag in _FLAGS.items() if flag in _FLAGS_OF_SQL}
        query = f'SELECT queueId, queueOffset FROM "{question.topic}"'
        return _given(
            run("sql", place["path"], query, "--json", *_words({**place, **texts}, flags))
        )

    return ask


def _words(texts: Mapping[str, str], flags: Mapping[str, str]) -> list[str]:
    words: list[str] = []
    for name, text in texts.items():
        if name == "queues":
            words.append("--from-log")
        elif name != "path":
            words += [flags[name], text] if name in flags else ["-o", f"{name}={text}"]
    return words


def _given(done: Done) -> Given:
    if done.code:
        found = _CONDITION.search(done.err)
        assert found is not None, done.err
        return found[1]
    rows: list[Any] = [json.loads(line) for line in done.out.splitlines()]
    return sorted((row["queueId"], row["queueOffset"]) for row in rows)


def streamed(
    spark: SparkSession, root: Path, options: Mapping[str, str], name: str, checkpoint: Path
) -> DataFrame:
    """Return all that a stream of a store gives until its end, as the table ``name`` in memory."""
    stream = (
        spark.readStream.format("mqlog")
        .options(**options, startingOffsets="earliest")
        .load(str(root))
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    return spark.table(name)
