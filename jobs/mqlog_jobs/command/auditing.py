"""The command ``mqlog audit``: have two places the same messages."""

# ruff: noqa: PLC0415, PLR0913

from typing import Annotated, Final, TypeAlias

import typer

from mqlog_jobs.command.app import KEEP, command
from mqlog_jobs.command.parameters import AsCsv, AsJson, OneTopic, Options, System
from mqlog_jobs.machine.codes import FOUND

_PLACE_HELP: Final = (
    "A store, a glob of several in quotes, a point REPO@TIME, an object store, a cluster, or "
    "a table, which export.py or archive.py wrote: delta:DIR, iceberg:DIR or parquet:DIR."
)
_First: TypeAlias = Annotated[
    str, typer.Argument(metavar="PLACE", help=_PLACE_HELP, show_default=False)
]
_Second: TypeAlias = Annotated[
    str, typer.Argument(metavar="OTHER", help="The place to compare it with.", show_default=False)
]
_By: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="offset|id",
        help="What makes it the same message: broker, topic, queue and queue offset, or the "
        "message id. Default: offset.",
    ),
]
_ByMap: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--offset-map",
        metavar="FORMAT:DIR",
        help="OTHER is what mqlog replay made of PLACE: the offset map that it wrote says which "
        "message is which.",
    ),
]
_OnlyMapped: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--only-mapped", help="With --offset-map: pass by messages that it does not name."
    ),
]
_Unconsumed: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="GROUP",
        help="Compare what this consumer group has not consumed, by what it committed.",
    ),
]
_Ignore: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Properties that do not count: a comma list. Default: by offset none, by id those "
        "that brokers and clients set.",
    ),
]


@command(
    KEEP,
    "mqlog audit /data/store /backup/broker-a@latest && echo the same",
    "mqlog audit /data/store delta:/lake/messages --topic SHOP_ORDERS",
    "mqlog audit '/data/brokers/*/store' rocketmq://ns1:9876 --by id --json",
    "mqlog audit /data/store rocketmq://new:9876 --offset-map parquet:/out/moved --unconsumed CG",
)
def audit(
    first: _First,
    second: _Second,
    *,
    by: _By = None,
    offset_map: _ByMap = None,
    only_mapped: _OnlyMapped = False,
    unconsumed: _Unconsumed = None,
    ignore: _Ignore = None,
    topic: OneTopic = None,
    system: System = False,
    options: Options = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Prove that two places have the same messages, or name those that differ; exit code 1."""
    from mqlog_jobs.output.form import Form
    from mqlog_jobs.work import audit as work

    asked = {
        "identity": by,
        "offsetmap": offset_map,
        "onlymapped": "true" if only_mapped else None,
        "unconsumed": unconsumed,
        "ignoredproperties": ignore,
    }
    given = {name: text for name, text in asked.items() if text is not None}
    wanted = work.Audited((first, second), given, topic, system, options or ())
    if work.audit(wanted, Form(as_json, as_csv)):
        raise typer.Exit(FOUND)
