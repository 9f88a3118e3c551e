"""The commands of ``mqlog`` that show what a place knows beside its messages: its tables.

``table`` shows any of them; the others are the frequent ones, with options of their own. The
tables, and the options that each takes, are those of mqstore.tables.catalog.
"""

# ruff: noqa: PLC0415, PLR0913

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqlog_jobs.command.app import FIRST_STEPS, MORE_TABLES, VIEWS
from mqlog_jobs.command.parameters import (
    Groups,
    NamedStores,
    Number,
    OnCorrupt,
    Since,
    StoresOfFiles,
    Subscriptions,
    System,
    SystemGroups,
    TableName,
    Topic,
    Until,
)
from mqlog_jobs.command.place_command import place_command

if TYPE_CHECKING:
    import pyarrow as pa

    from mqlog_jobs.output.form import Form
    from mqlog_jobs.places import Named


def _show(
    named: "Named",
    form: "Form",
    table: str,
    options: dict[str, str | None],
    **more: Any,
) -> None:
    from mqlog_jobs.work.show_table import TableQuery, show_table

    show_table(named, form, TableQuery(table, options, **more))


def _only(topic: str | None) -> str | None:
    """Return the value of subscribe that is one topic, whatever its name has."""
    return None if topic is None else json.dumps([topic])


def _unless(column: str, word: str) -> Callable[["pa.Table"], "pa.Array"]:
    import pyarrow.compute as pc

    return lambda rows: pc.not_equal(rows[column], word)


@place_command(FIRST_STEPS, "mqlog topics /data/store --json", "mqlog topics rocketmq://ns1:9876")
def topics(named: "Named", form: "Form", *, topic: Topic = None, system: System = False) -> None:
    """List the topics: permissions, queues, messages, bytes."""
    _show(named, form, "topics", {"subscribe": _only(topic)}, system=system)


@place_command(VIEWS, "mqlog queues /data/store --topic SHOP_ORDERS")
def queues(named: "Named", form: "Form", *, topic: Topic = None, system: System = False) -> None:
    """List the queues: offsets, messages, bytes, times of the first and the last message."""
    _show(named, form, "queues", {"subscribe": _only(topic)}, system=system)


@place_command(VIEWS, "mqlog tags /data/store --topic SHOP_ORDERS")
def tags(named: "Named", form: "Form", *, topic: Topic = None) -> None:
    """Count the messages of each tag; --json and --csv have a row for each queue."""
    _show(named, form, "tags", {"subscribe": _only(topic)})


@place_command(
    VIEWS,
    "mqlog sql /data/store 'SELECT tags, count(*) FROM SHOP_ORDERS GROUP BY tags'",
    "mqlog sql rocketmq://ns1:9876 'FROM backlog WHERE lag > 0' --json",
    "mqlog sql old=/backup/store new=/data/store 'SELECT count(*) FROM old.SHOP_ORDERS ANTI JOIN "
    "new.SHOP_ORDERS USING (msgId)'",
    "mqlog sql /data/store 'SELECT body FROM SHOP_ORDERS' --since -1d --parquet orders.parquet",
    stores=NamedStores,
    takes_reads=True,
)
def sql(
    named: "Named",
    form: "Form",
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY",
            help="SQL of DuckDB: topics and tables have their own names; SHOW TABLES lists them.",
        ),
    ],
    *,
    since: Since = None,
    until: Until = None,
    parquet: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the rows as Parquet; - is standard output."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="What DuckDB may hold, such as 2g; default: 80 % of the machine's."
        ),
    ] = None,
    on_corrupt: OnCorrupt = "fail",
) -> None:
    """Query topics and tables with SQL: DuckDB, which comes with the extra sql."""
    from mqlog_jobs.work.sql_query import SqlQuery, run_query

    options = {"startingTimestamp": since, "endingTimestamp": until, "onCorrupt": on_corrupt}
    run_query(named, form, SqlQuery(query, options, parquet, memory))


@place_command(
    MORE_TABLES,
    "mqlog table index /data/store --since -1h -o keys=order-4711",
    "mqlog table files /data/store --json",
    in_front=("name",),
    takes_reads=True,
)
def table(
    named: "Named",
    form: "Form",
    name: TableName,
    *,
    topic: Topic = None,
    groups: Groups = None,
    since: Since = None,
    until: Until = None,
    number: Number = 0,
    system: Annotated[
        bool, typer.Option("--system", help="Include RocketMQ's own topics or groups.")
    ] = False,
) -> None:
    """Show any table that Spark reads by the option table; -o takes its other options."""
    from mqlog_jobs.places import with_read_options

    own = {
        "subscribe": "use --topic",
        "groups": "use --group",
        "includeSystemTopics": "use --system",
    }
    places, options = with_read_options(named, own)
    options |= {"subscribe": _only(topic), "groups": groups}
    options |= {"startingTimestamp": since, "endingTimestamp": until}
    _show(places, form, name, options, number=number, system=system)


@place_command(
    MORE_TABLES,
    "mqlog scheduled /data/store --topic SHOP_ORDERS",
    "mqlog scheduled '/data/brokers/*/store' --all --json",
)
def scheduled(
    named: "Named",
    form: "Form",
    *,
    topic: Topic = None,
    delivered: Annotated[
        bool, typer.Option("--all", help="Show those that were delivered as well.")
    ] = False,
    since: Since = None,
    until: Until = None,
    number: Number = 0,
    on_corrupt: OnCorrupt = "fail",
) -> None:
    """Show messages that wait for their delivery, by delay level or timer, the next one first."""
    options = {"subscribe": _only(topic), "onCorrupt": on_corrupt}
    options |= {"startingTimestamp": since, "endingTimestamp": until}
    wanted = None if delivered else _unless("state", "DELIVERED")
    _show(named, form, "scheduled", options, wanted=wanted, number=number)


@place_command(
    MORE_TABLES,
    "mqlog retries /data/store -g CG_WAREHOUSE",
    "mqlog retries /data/store --dead --since -1d --json",
)
def retries(
    named: "Named",
    form: "Form",
    *,
    groups: Groups = None,
    topic: Topic = None,
    dead: Annotated[
        bool, typer.Option("--dead", help="Only dead letters: the group gave them up.")
    ] = False,
    since: Since = None,
    until: Until = None,
    number: Number = 0,
    on_corrupt: OnCorrupt = "fail",
) -> None:
    """Show messages that consumers failed on, dead letters too, and where they come from."""
    options = {"subscribe": _only(topic), "groups": groups, "onCorrupt": on_corrupt}
    options |= {"startingTimestamp": since, "endingTimestamp": until}
    wanted = _unless("kind", "RETRY") if dead else None
    _show(named, form, "retries", options, wanted=wanted, number=number)


@place_command(MORE_TABLES, "mqlog halfmessages /data/store --topic SHOP_ORDERS")
def halfmessages(
    named: "Named",
    form: "Form",
    *,
    topic: Topic = None,
    number: Number = 0,
    on_corrupt: OnCorrupt = "fail",
) -> None:
    """Show half messages of transactions that were neither committed nor rolled back."""
    options = {"subscribe": _only(topic), "onCorrupt": on_corrupt}
    _show(named, form, "halfmessages", options, number=number)


@place_command(MORE_TABLES, "mqlog offsets /data/store -g CG_WAREHOUSE")
def offsets(
    named: "Named",
    form: "Form",
    *,
    groups: Groups = None,
    topic: Topic = None,
    system: SystemGroups = False,
) -> None:
    """Show the offsets that consumer groups committed, as they are written."""
    options = {"subscribe": _only(topic), "groups": groups}
    _show(named, form, "offsets", options, system=system)


@place_command(
    MORE_TABLES,
    "mqlog lagcompare /data/store -g CG_WAREHOUSE --subscription 'CG_WAREHOUSE=paid || sent'",
)
def lagcompare(
    named: "Named",
    form: "Form",
    *,
    groups: Groups = None,
    topic: Topic = None,
    subscription: Subscriptions = None,
    system: SystemGroups = False,
) -> None:
    """Show the backlog beside the numbers of RocketMQ's own tools, and why they differ."""
    from mqlog_jobs.work.show_backlog import subscriptions_of

    expressions = subscriptions_of(groups, subscription or ())
    options = {"subscribe": _only(topic), "groups": groups}
    options["subscriptions"] = json.dumps(expressions) if expressions else None
    _show(named, form, "lagcompare", options, system=system)


@place_command(
    MORE_TABLES,
    "mqlog commits /data/store --json",
    stores=StoresOfFiles,
    without=("commit_log", "from_log", "options"),
)
def commits(named: "Named", form: "Form", *, on_corrupt: OnCorrupt = "fail") -> None:
    """List what mqlog committed to a store, the oldest first; also a commit to be finished."""
    _show(named, form, "commits", {"onCorrupt": on_corrupt})


@place_command(MORE_TABLES, "mqlog groups rocketmq://ns1:9876")
def groups(
    named: "Named", form: "Form", *, groups: Groups = None, system: SystemGroups = False
) -> None:
    """List the consumer groups; of a cluster with the consumers that are connected now."""
    _show(named, form, "groups", {"groups": groups}, system=system)


@place_command(MORE_TABLES, "mqlog subscriptions rocketmq://ns1:9876 -g CG_WAREHOUSE")
def subscriptions(
    named: "Named",
    form: "Form",
    *,
    groups: Groups = None,
    topic: Topic = None,
    system: SystemGroups = False,
) -> None:
    """Show what groups take of topics, as far as the place knows it: tags or SQL92."""
    options = {"groups": groups, "subscribe": _only(topic)}
    _show(named, form, "subscriptions", options, system=system)


@place_command(MORE_TABLES, "mqlog brokers rocketmq://ns1:9876")
def brokers(named: "Named", form: "Form") -> None:
    """List the brokers: version, and where their CommitLog begins and ends."""
    _show(named, form, "brokers", {})
