"""The command ``mqlog demo``: write and read a new store with Spark, then a store of a broker.

A DataFrame of a shop's messages is written into a new store, two consumer groups commit offsets,
and topics, messages with a tag filter and backlog are shown.
"""

import json
import platform
import re
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from textwrap import indent
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from mqlog_jobs.machine import java
from mqlog_jobs.machine.session import LOOPBACK, QUIET, job_session, stderr_to
from mqlog_jobs.output import amounts, render, views
from mqlog_jobs.output.form import rows_of
from mqlog_jobs.output.picture import save as save_picture
from mqlog_jobs.output.whole_file import check_directory, check_file, is_standard_output
from mqlog_jobs.work import demo_data
from mqlog_jobs.work.demo_data import ORDERS, PARCELS, PAYMENTS
from mqstore import __version__
from mqstore.errors import InvalidOptionError
from mqstore.read.directory import take

_ORDERS_WRITTEN: Final = 600
_SHOWN_ROWS: Final = 6
_PICTURED_ROWS: Final = 5
_RULE_CELLS: Final = 100
_SETTINGS: Final = {
    **QUIET,
    **LOOPBACK,
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
}
# Small files; a broker that opens the store needs the same four settings in its broker.conf.
_SIZES: Final = {
    "mappedFileSizeCommitLog": "4m",
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
}
# The percentage of each queue that a group has consumed; the list repeats over the queues.
_CONSUMED_OFFSETS: Final = {
    "CG_WAREHOUSE": {ORDERS: (72, 55, 91, 64)},
    "CG_ACCOUNTING": {PAYMENTS: (100, 100, 96, 100), PARCELS: (88, 79, 85, 90)},
}
_GOLDEN: Final = Path(__file__).parents[3] / "tests" / "golden" / "5.5.0" / "store.tar.gz"

_WRITE: Final = """\
(messages.write.format("mqlog").mode("append")
     .option("createStore", True).option("partitioner", "hash").save(store))"""
_TABLE: Final = 'spark.read.format("mqlog").option("table", "{0}").load(store)'
_READ: Final = """\
(spark.read.format("mqlog")
      .option("subscribe", "{0}").option("tags", "{1}").load(store))"""
_BACKLOG: Final = """\
(spark.read.format("mqlog").option("table", "backlog")
      .option("subscriptions", {0}).load(store))"""


@dataclass(frozen=True, slots=True)
class Tour:
    """The topic, tag expression and groups that are shown of a store."""

    topic: str
    tags: str
    subscriptions: dict[str, dict[str, str]]


_SHOP: Final = Tour(
    ORDERS,
    "paid || cancelled",
    {
        "CG_WAREHOUSE": {ORDERS: "paid || cancelled"},
        "CG_ACCOUNTING": {PAYMENTS: "captured", PARCELS: "delivered"},
    },
)
_BROKER: Final = Tour("GTopic", "GA || GB", {"CG_G": {"GTopic": "GA || GB"}, "LP_G": {"*": "*"}})


def run(
    directory: Path | None = None, picture: str | None = None, console: Console | None = None
) -> None:
    """Show the demo; the store stays in ``directory`` (missing or empty), if one is given.

    ``picture`` is a file for the main parts of it, as SVG. Raises InvalidOptionError for a
    directory that is not empty, JavaNotFoundError, OSError for what cannot be written.
    """
    on_errors = sys.stderr if is_standard_output(picture) else None
    console = console or render.terminal(on_errors)
    _check_outputs(directory, picture)
    notice = java.prepare()
    if notice:
        _note(console, notice)
    with tempfile.TemporaryDirectory(prefix="mqlog-demo-") as temporary, ExitStack() as stack:
        with console.status("Starting Spark"), stderr_to(Path(temporary, "spark.log")):
            spark = stack.enter_context(job_session("mqlog demo", _SETTINGS))
        root = (directory or Path(temporary)).resolve() / "broker-a" / "store"
        _greet(console, spark)
        written = _write(console, spark, root)
        _commit_offsets(root)
        _show(console, spark, root, _SHOP)
        if picture:
            save_picture(picture, "mqlog demo", lambda on: _show_main(on, spark, root, written))
        _show_golden(console, spark, Path(temporary))
    _close(console, root if directory else None)


def _check_outputs(directory: Path | None, picture: str | None) -> None:
    if directory is not None:
        check_directory(directory)
        if directory.exists() and any(directory.iterdir()):
            raise InvalidOptionError("DIR", directory, "must be a new or an empty directory")
    if picture is not None:
        check_file(picture)


def _greet(console: Console, spark: SparkSession) -> None:
    _note(
        console, f"mqlog {__version__} · Spark {spark.version} · Python {platform.python_version()}"
    )


def _write(console: Console, spark: SparkSession, root: Path) -> int:
    """Write the shop's messages; return how many there are."""
    _step(console, "A DataFrame becomes messages", _WRITE)
    with console.status("Writing"):
        rows = demo_data.messages(_ORDERS_WRITTEN, datetime.now(UTC))
        frame = spark.createDataFrame(rows, demo_data.MESSAGE_DDL)
        writer = frame.write.format("mqlog").mode("append").options(**_SIZES)
        writer = writer.option("createStore", True).option("partitioner", "hash")
        writer.option("timestamps", "preserve").save(str(root))
    _tell_written(console, len(rows), str(root))
    return len(rows)


def _tell_written(console: Console, number: int, place: str) -> None:
    written = amounts.several(number, "message")
    console.print(Text.assemble((written, "green"), f" written to {place}"), soft_wrap=True)


def _commit_offsets(root: Path) -> None:
    """Write config/consumerOffset.json as a broker does when consumers commit.

    As the broker does: integer keys are not quoted (fastjson), so other parsers refuse the file.
    """
    committed: dict[str, dict[str, int]] = {}
    for queue in take(root).queues:
        for group, topics in _CONSUMED_OFFSETS.items():
            if queue.topic in topics:
                percent = topics[queue.topic][queue.queue_id % 4]
                offset_table = committed.setdefault(f"{queue.topic}@{group}", {})
                offset_table[str(queue.queue_id)] = queue.high * percent // 100
    text = json.dumps({"offsetTable": committed}, indent="\t")
    path = root / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(re.sub(r'"(\d+)":', r"\1:", text), encoding="utf-8")


def _show(console: Console, spark: SparkSession, root: Path, tour: Tour) -> None:
    _step(console, "Topics", _TABLE.format("topics"))
    rows = _rows(_table(spark, root, "topics").where(~col("isSystem")))
    views.topics(console, rows, len(rows))

    _show_messages(console, spark, root, tour, _SHOWN_ROWS)
    _step(console, "Backlog of two groups", _BACKLOG.format("tags_of_groups"))
    _show_backlog(console, spark, root, tour)


def _show_main(console: Console, spark: SparkSession, root: Path, written: int) -> None:
    """Show what fits a picture: a write, a few messages, and the backlog of one group."""
    _step(console, "A DataFrame becomes messages", _WRITE)
    _tell_written(console, written, "broker-a/store")
    _show_messages(console, spark, root, _SHOP, _PICTURED_ROWS)
    _step(console, "What a group has not consumed yet", _BACKLOG.format("tags_of_groups"))
    group = "CG_WAREHOUSE"
    tour = replace(_SHOP, subscriptions={group: _SHOP.subscriptions[group]})
    _show_backlog(console, spark, root, tour)


def _show_messages(
    console: Console, spark: SparkSession, root: Path, tour: Tour, number: int
) -> None:
    _step(console, "Messages that carry one of two tags", _READ.format(tour.topic, tour.tags))
    reader = spark.read.format("mqlog").option("subscribe", tour.topic).option("tags", tour.tags)
    messages = reader.option("columns", ",".join((*views.MESSAGE_COLUMNS, "physicalOffset")))
    rows = _rows(messages.load(str(root)), "physicalOffset")[::-1]
    views.messages(console, rows[:number])
    _note(console, f"the newest {number} of {amounts.count(len(rows))}")


def _show_backlog(console: Console, spark: SparkSession, root: Path, tour: Tour) -> None:
    expressions = json.dumps(tour.subscriptions)
    backlog = _table(spark, root, "backlog", subscriptions=expressions)
    groups = backlog.where(col("group").isin(*tour.subscriptions))
    views.backlog(console, _rows(groups, "group", "topic", "queueId"))


def _show_golden(console: Console, spark: SparkSession, temporary: Path) -> None:
    console.print()
    if not _GOLDEN.is_file():
        _note(console, "Stores of real brokers are in the project's sources, not in the package.")
        return
    title = Text("The same three of a store that a RocketMQ 5.5.0 broker wrote", style="bold")
    console.print(Rule(title, style="magenta", characters="━"), width=_width(console))
    with tarfile.open(_GOLDEN) as archive:
        # Python 3.11.0 to 3.11.3, as in Debian 12, have no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(temporary / "rocketmq-5.5.0")
    _show(console, spark, temporary / "rocketmq-5.5.0" / "store", _BROKER)


def _close(console: Console, kept: Path | None) -> None:
    console.print()
    if kept:
        _note(console, f"The store is yours: mqlog backlog {kept}")
    else:
        _note(console, "The store is deleted; mqlog demo DIR keeps it.")


def _note(console: Console, text: str) -> None:
    console.print(Text(text, style="dim"), soft_wrap=True)


def _step(console: Console, title: str, code: str) -> None:
    console.print()
    rule = Rule(Text(title, style="bold"), align="left", style="cyan")
    console.print(rule, width=_width(console))
    if console.is_terminal:
        shown = Syntax(code, "python", theme="ansi_dark", background_color="default")
        console.print(Padding(shown, (0, 0, 1, 2)))
    else:
        console.print(Text(indent(code, "  ") + "\n"))


def _width(console: Console) -> int:
    return min(console.width, _RULE_CELLS)


def _table(spark: SparkSession, root: Path, name: str, **options: str) -> DataFrame:
    return spark.read.format("mqlog").option("table", name).options(**options).load(str(root))


def _rows(frame: DataFrame, *order: str) -> list[dict[str, object]]:
    """Return the rows by those columns; few as they are, Spark need not sort them."""
    rows = rows_of(frame.toArrow())
    return sorted(rows, key=itemgetter(*order)) if order else rows
