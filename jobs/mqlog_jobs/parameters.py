"""Arguments and options that commands share, with their completion in a shell."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from mqlog_jobs.places import opened
from mqstore.errors import InvalidOptionError, StoreError
from mqstore.read.corrupt import ON_CORRUPT


def topics_like(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics with that prefix, of the place on the line so far; none on any problem.

    Behind an option without its value yet, click has not parsed the arguments: they are in args.
    """
    store = context.params.get("store") or next(iter(context.args), "")
    given = context.params.get("commit_log"), context.params.get("options")
    with suppress(StoreError, OSError), opened(str(store), *given) as stores:
        return sorted(name for name in stores.topics if name.startswith(incomplete))
    return []


def paths_of(folders: Iterable[Path] | None) -> tuple[str, ...]:
    """Return the CommitLog folders of an option as the core takes them."""
    return tuple(map(str, folders or ()))


def _known(value: str) -> str:
    if value not in ON_CORRUPT:
        raise InvalidOptionError("--on-corrupt", value, f"must be one of {', '.join(ON_CORRUPT)}")
    return value


Store: TypeAlias = Annotated[
    Path, typer.Argument(metavar="STORE", help="A broker's storePathRootDir.", show_default=False)
]
Place: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="PLACE",
        help="A broker's storePathRootDir, or the address of a running cluster: "
        "rocketmq://HOST:9876, with TLS rocketmqs://HOST:9876.",
        show_default=False,
    ),
]
Options: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--option",
        metavar="NAME=VALUE",
        help="Of a running cluster, such as credentialsFile=FILE, tlsCaFile=FILE or "
        "requestTimeout=3s; may be repeated.",
    ),
]
CommitLog: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--commit-log",
        metavar="DIR",
        help="A CommitLog folder, if it is not STORE/commitlog; may be repeated.",
    ),
]
Topic: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--topic",
        help="This topic only; default: all users' topics.",
        autocompletion=topics_like,
    ),
]
OneTopic: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "-t", "--topic", help="This topic only; default: all topics.", autocompletion=topics_like
    ),
]
QueueArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC[/QUEUE[@OFFSET]]",
        help="OFFSET -3 means the last three of the queue.",
        autocompletion=topics_like,
    ),
]
OnCorrupt: TypeAlias = Annotated[
    str,
    typer.Option(
        "--on-corrupt",
        metavar="|".join(ON_CORRUPT),
        callback=_known,
        help="At a broken message: fail, leave it out, or show the parts that can be read.",
    ),
]
System: TypeAlias = Annotated[bool, typer.Option("--system", help="Include RocketMQ's own topics.")]
SystemGroups: TypeAlias = Annotated[
    bool, typer.Option("--system", help="Include RocketMQ's own groups; or name them by --group.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Write one JSON object a line.")]
AsCsv: TypeAlias = Annotated[bool, typer.Option("--csv", help="Write CSV with a header line.")]
