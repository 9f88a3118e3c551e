"""The commands of ``mqlog`` that show what a store knows beside its messages.

scheduled, retries, halfmessages, offsets, lagcompare, commits: each shows the table of that name.
"""

# ruff: noqa: PLC0415, PLR0913

from typing import Annotated

import typer

from mqlog_jobs.app import MORE_TABLES, command
from mqlog_jobs.parameters import (
    AsCsv,
    AsJson,
    CommitLog,
    Groups,
    Number,
    OnCorrupt,
    Options,
    Since,
    Stores,
    StoresOfFiles,
    Subscriptions,
    SystemGroups,
    Topic,
    Until,
)


@command(
    MORE_TABLES,
    "mqlog scheduled /data/store --topic ORDERS",
    "mqlog scheduled '/data/brokers/*/store' --all --json",
)
def scheduled(
    stores: Stores,
    *,
    topic: Topic = None,
    delivered: Annotated[
        bool, typer.Option("--all", help="Show those that were delivered as well.")
    ] = False,
    since: Since = None,
    until: Until = None,
    number: Number = 0,
    on_corrupt: OnCorrupt = "fail",
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show messages that wait for their delivery, by delay level or timer, the next one first."""
    from mqlog_jobs import show_tables
    from mqlog_jobs.places import Named
    from mqlog_jobs.show import Form

    query = show_tables.RowQuery(topic, None, since, until, number, on_corrupt)
    named = Named.of(stores, commit_log, options)
    show_tables.scheduled(named, Form(as_json, as_csv), query, delivered=delivered)


@command(
    MORE_TABLES,
    "mqlog retries /data/store -g CG_SHOP",
    "mqlog retries /data/store --dead --since -1d --json",
)
def retries(
    stores: Stores,
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
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show messages that consumers failed on, dead letters too, and where they come from."""
    from mqlog_jobs import show_tables
    from mqlog_jobs.places import Named
    from mqlog_jobs.show import Form

    query = show_tables.RowQuery(topic, groups, since, until, number, on_corrupt)
    named = Named.of(stores, commit_log, options)
    show_tables.retries(named, Form(as_json, as_csv), query, dead=dead)


@command(MORE_TABLES, "mqlog halfmessages /data/store --topic ORDERS")
def halfmessages(
    stores: Stores,
    *,
    topic: Topic = None,
    number: Number = 0,
    on_corrupt: OnCorrupt = "fail",
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show half messages of transactions that were neither committed nor rolled back."""
    from mqlog_jobs import show_tables
    from mqlog_jobs.places import Named
    from mqlog_jobs.show import Form

    query = show_tables.RowQuery(topic, number=number, on_corrupt=on_corrupt)
    named = Named.of(stores, commit_log, options)
    show_tables.half_messages(named, Form(as_json, as_csv), query)


@command(MORE_TABLES, "mqlog offsets /data/store -g CG_SHOP")
def offsets(
    stores: Stores,
    *,
    groups: Groups = None,
    topic: Topic = None,
    system: SystemGroups = False,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show the offsets that consumer groups committed, as they are written."""
    from mqlog_jobs import show_tables
    from mqlog_jobs.places import Named
    from mqlog_jobs.show import Form

    query = show_tables.RowQuery(topic, groups)
    named = Named.of(stores, commit_log, options)
    show_tables.committed(named, Form(as_json, as_csv), query, system=system)


@command(
    MORE_TABLES, "mqlog lagcompare /data/store -g CG_SHOP --subscription 'CG_SHOP=paid || sent'"
)
def lagcompare(
    stores: Stores,
    *,
    groups: Groups = None,
    topic: Topic = None,
    subscription: Subscriptions = None,
    system: SystemGroups = False,
    commit_log: CommitLog = None,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show the backlog beside the numbers of RocketMQ's own tools, and why they differ."""
    from mqlog_jobs import show_backlog
    from mqlog_jobs.places import Named
    from mqlog_jobs.show import Form

    query = show_backlog.BacklogQuery.of(groups, topic, subscription, system=system)
    named = Named.of(stores, commit_log, options)
    show_backlog.compared(named, query, Form(as_json, as_csv))


@command(MORE_TABLES, "mqlog commits /data/store --json")
def commits(
    stores: StoresOfFiles,
    *,
    on_corrupt: OnCorrupt = "fail",
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List what mqlog committed to a store, the oldest first; also a commit to be finished."""
    from mqlog_jobs import show_tables
    from mqlog_jobs.places import Named
    from mqlog_jobs.show import Form

    show_tables.commits(Named.of(stores), Form(as_json, as_csv), on_corrupt)
