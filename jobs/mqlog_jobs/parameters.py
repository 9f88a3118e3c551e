"""Arguments and options that commands share, and what a shell may complete them to."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from mqstore.errors import InvalidOptionError, StoreError
from mqstore.read.corrupt import ON_CORRUPT
from mqstore.read.snapshot import topics_of


def topics_like(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics of the store that is named already which begin so; none on any problem.

    Behind an option that waits for its value click has not told the arguments from the rest.
    """
    store = context.params.get("store") or next(iter(context.args), "")
    folders: Iterable[Path] = context.params.get("commit_log") or ()
    with suppress(StoreError, OSError):
        names = topics_of(str(store), tuple(map(str, folders)))
        return sorted(name for name in names if name.startswith(incomplete))
    return []


def _known(value: str) -> str:
    if value not in ON_CORRUPT:
        raise InvalidOptionError("--on-corrupt", value, f"must be one of {', '.join(ON_CORRUPT)}")
    return value


Store: TypeAlias = Annotated[
    Path, typer.Argument(metavar="STORE", help="A broker's storePathRootDir.", show_default=False)
]
CommitLog: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--commit-log",
        metavar="DIR",
        help="CommitLog folder, when it is not STORE/commitlog; once for each.",
    ),
]
Topic: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--topic",
        help="This topic; default: all users' topics.",
        autocompletion=topics_like,
    ),
]
OneTopic: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "-t", "--topic", help="In this topic; default: in all.", autocompletion=topics_like
    ),
]
Place: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC[/QUEUE[@OFFSET]]",
        help="OFFSET -3: the last three of the queue.",
        autocompletion=topics_like,
    ),
]
OnCorrupt: TypeAlias = Annotated[
    str,
    typer.Option(
        "--on-corrupt",
        metavar="|".join(ON_CORRUPT),
        callback=_known,
        help="At a broken message: end there, leave it out, or show what is left of it.",
    ),
]
System: TypeAlias = Annotated[bool, typer.Option("--system", help="RocketMQ's own topics too.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
AsCsv: TypeAlias = Annotated[bool, typer.Option("--csv", help="CSV with a header line.")]
