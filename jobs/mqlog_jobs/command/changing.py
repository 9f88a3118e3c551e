"""The command ``mqlog changes``: a database's changes into tables.

What does the work is imported when it runs.
"""

# ruff: noqa: PLC0415, PLR0913

from typing import Annotated, Final, TypeAlias

import typer

from mqlog_jobs.command.app import KEEP, command
from mqlog_jobs.command.parameters import AsJson, OptionsOfRead
from mqstore.errors import InvalidOptionError

_CHANGES_PLACE_HELP: Final = (
    "Broker's storePathRootDir, a glob of several in quotes, one in an object store "
    "(s3://BUCKET/STORE), or the address of a running cluster: rocketmq://HOST:9876."
)
_ChangesPlace: TypeAlias = Annotated[
    str, typer.Argument(metavar="PLACE", help=_CHANGES_PLACE_HELP, show_default=False)
]
_Topics: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", help="Topics of one database's changes.")
]
_To: TypeAlias = Annotated[
    str,
    typer.Option(metavar="delta:DIR", help="The directory of the tables.", show_default=False),
]
_Producer: TypeAlias = Annotated[
    str,
    typer.Option("--format", help="How messages are decoded: canal, canalProtobuf, debezium, …"),
]
_Tables: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Tables that are taken, 'shop.*'; '!shop.log' leaves one out. May be repeated.",
    ),
]
_Keys: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TABLE=COLUMN,…", help="The key of a table whose messages do not tell it."
    ),
]
_Order: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="sequence|queue",
        help="queue: take changes without a sequence in the order in which they were stored, "
        "also where that is not the order of the database.",
    ),
]
_OnDdl: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="add|stop|ignore",
        help="add columns, and count what the lake cannot follow; stop the table at it; or "
        "do not look at DDL.",
    ),
]
_Batch: TypeAlias = Annotated[
    int, typer.Option(min=1, metavar="N", help="Messages a batch, which is in memory whole.")
]
_NewSource: TypeAlias = Annotated[
    bool,
    typer.Option("--new-source", help="Go on after MQLOG_CHANGES.NEW_SOURCE with the new log."),
]
_Follow: TypeAlias = Annotated[
    bool, typer.Option("--follow", "-f", help="Wait for messages that are stored later.")
]


@command(
    KEEP,
    "mqlog changes /data/store DB_CHANGES --to delta:/lake/shop",
    "mqlog changes rocketmq://ns1:9876 DB_ORDERS DB_ITEMS --to delta:/lake/shop --tables 'shop.*'",
    "mqlog changes rocketmq://ns1:9876 DB_CHANGES --to delta:/lake/shop --follow --json",
)
def changes(
    place: _ChangesPlace,
    topics: _Topics,
    *,
    to: _To,
    producer: _Producer = "auto",
    tables: _Tables = None,
    keys: _Keys = None,
    order: _Order = "sequence",
    on_ddl: _OnDdl = "add",
    batch: _Batch = 20_000,
    new_source: _NewSource = False,
    follow: _Follow = False,
    options: OptionsOfRead = None,
    as_json: AsJson = False,
) -> None:
    """Merge a database's changes into tables of Delta Lake, which equal the database.

    Goes on where the last run ended; a run that was killed is repeated without harm. Needs the
    package deltalake.
    """
    from mqlog.readable import needed
    from mqlog_jobs.places import Named

    if order not in {"sequence", "queue"}:
        raise InvalidOptionError("--order", order, "must be sequence or queue")
    needed("deltalake", "mqlog changes")
    from mqlog_jobs.delta.change_command import ChangeRequest, run
    from mqlog_jobs.delta.change_rules import ChangeRules

    rules = ChangeRules.of(tables, keys, by_queue=order == "queue", on_ddl=on_ddl)
    request = ChangeRequest(
        tuple(topics), to, producer, batch, begins_again=new_source, follow=follow
    )
    run(Named.of([place], None, options), request, rules, as_json=as_json)
