"""Arguments and options that commands share, with their completion in a shell."""

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from mqstore.errors import InvalidOptionError, StoreError
from mqstore.options.grammar import ON_CORRUPT, did_you_mean

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # A Path has one slash where two were.


def topics_like(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics with that prefix, of the stores on the line so far; none on any problem.

    Behind an option without its value yet, click has not parsed the arguments: they are in args.
    Where a topic follows the places, the last word so far stands in its parameter: it is a place.
    """
    from mqlog_jobs.places import Named  # noqa: PLC0415 - a completion starts fast

    parsed = [*(context.params.get("stores") or ()), context.params.get("place")]
    stores = [place for place in parsed if place] or context.args[:1]
    given = context.params
    from_log = bool(given.get("from_log"))
    named = Named.of(stores, given.get("commit_log"), given.get("options"), from_log=from_log)
    with suppress(StoreError, OSError), named.opened() as opened:
        return sorted(name for name in opened.topics if name.startswith(incomplete))
    return []


def groups_like(context: typer.Context, incomplete: str) -> list[str]:
    """Return the groups with that prefix that committed an offset, as ``topics_like`` does."""
    from mqlog_jobs.places import Named  # noqa: PLC0415 - a completion starts fast

    stores = context.params.get("stores") or context.args[:1]
    named = Named.of(stores, context.params.get("commit_log"), context.params.get("options"))
    with suppress(StoreError, OSError), named.opened() as opened:
        committed = (source.config.consumer_offsets() for source in opened.sources)
        groups = {group for table in committed for _, group in table}
        return sorted(group for group in groups if group.startswith(incomplete))
    return []


def paths_of(folders: Iterable[Path] | None) -> tuple[str, ...]:
    """Return the CommitLog folders of an option as the core takes them."""
    return tuple(map(str, folders or ()))


def _known(value: str) -> str:
    if value not in ON_CORRUPT:
        raise InvalidOptionError("--on-corrupt", value, f"must be one of {', '.join(ON_CORRUPT)}")
    return value


def _directory(parameter: typer.CallbackParam, path: Path) -> Path:
    if _URI.match(str(path)):
        expected = "must be a directory of this machine"
        typed = str(path).replace(":/", "://", 1)  # A Path has one slash where two were typed.
        raise InvalidOptionError(str(parameter.metavar), typed, expected)
    return path.expanduser()


def own_directory(parameter: typer.CallbackParam, path: Path | None) -> Path | None:
    """Return the path of a directory, if one is given. Raises InvalidOptionError for a URI."""
    return None if path is None else _directory(parameter, path)


def new_directory(parameter: typer.CallbackParam, path: Path) -> Path:
    """Return the path of a copy. Raises InvalidOptionError for a URI, and for one that exists."""
    path = _directory(parameter, path)
    if path.exists():
        raise InvalidOptionError(
            str(parameter.metavar), path, "is there already; name a new directory"
        )
    return path


Store: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="STORE",
        help="A broker's storePathRootDir.",
        show_default=False,
        callback=_directory,
    ),
]
_STORES_HELP: Final = (
    "Broker's storePathRootDir, a glob of several in quotes, one in an object store "
    "(s3://BUCKET/STORE), a point of a history (REPO@TIME), or addresses of running "
    "clusters: rocketmq://HOST:9876, with TLS rocketmqs://HOST:9876."
)
Stores: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="PLACE...", help=_STORES_HELP, show_default=False)
]
NamedStores: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="[NAME=]PLACE...",
        help=f"{_STORES_HELP} Behind NAME= the topics and tables are in a schema of that name.",
        show_default=False,
    ),
]
StoresOfFiles: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="STORE...",
        help="Broker's storePathRootDir, a glob of several in quotes, or one in an object store "
        "(s3://BUCKET/STORE).",
        show_default=False,
    ),
]
Directories: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="STORE...",
        help="Broker's storePathRootDir; or several, or a glob of them in quotes.",
        show_default=False,
    ),
]
StoresOfTopics: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="PLACE...", help=_STORES_HELP, show_default=False, autocompletion=topics_like
    ),
]
OF_A_CLUSTER: Final = (
    "Of a running cluster, such as credentialsFile=FILE, tlsCaFile=FILE or requestTimeout=3s, or "
    "of an object store, such as fs.region=eu-west-1; may be repeated."
)
Options: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--option",
        metavar="NAME=VALUE",
        help=OF_A_CLUSTER,
    ),
]
OptionsOfRead: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--option",
        metavar="NAME=VALUE",
        help="Of the read, such as failOnDataLoss=false. " + OF_A_CLUSTER,
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
FromLog: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--from-log",
        help="Make the queues from the CommitLog alone: where ConsumeQueues are lost, damaged or "
        "in RocksDB that cannot be read.",
    ),
]
TraceTopic: TypeAlias = Annotated[
    str | None, typer.Option("--trace-topic", help="Default: RMQ_SYS_TRACE_TOPIC.")
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
ByTag: TypeAlias = Annotated[bool, typer.Option("--by-tag", help="One row for each tag.")]
LateAfter: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="A queue is LATE whose first message waits so long; default: 1h."
    ),
]
System: TypeAlias = Annotated[bool, typer.Option("--system", help="Include RocketMQ's own topics.")]
SystemGroups: TypeAlias = Annotated[
    bool, typer.Option("--system", help="Include RocketMQ's own groups; or name them by --group.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Write one JSON object a line.")]
AsCsv: TypeAlias = Annotated[bool, typer.Option("--csv", help="Write CSV with a header line.")]
Groups: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "-g",
        "--group",
        help="Groups: a comma list, or /regex/.",
        autocompletion=groups_like,
    ),
]
Subscriptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--subscription",
        metavar="[GROUP=]TAGS",
        help="Tag expression of a group, 'A || B', or GROUP/TOPIC='A || B': count its matches. "
        "Without GROUP it is for those of --group; may be repeated.",
    ),
]
Since: TypeAlias = Annotated[
    str | None, typer.Option(help="Stored at or after: -15m, epoch ms, or ISO-8601 with zone.")
]
Until: TypeAlias = Annotated[str | None, typer.Option(help="Stored before; written as --since.")]


def tables_like(incomplete: str) -> list[str]:
    """Return the tables with that prefix."""
    from mqstore.tables.catalog import CATALOG  # noqa: PLC0415 - a completion starts fast

    return [name for name in CATALOG if name.startswith(incomplete)]


def _table(value: str) -> str:
    from mqstore.tables.catalog import CATALOG  # noqa: PLC0415 - a help starts fast

    if value not in CATALOG:
        expected = f"{did_you_mean(value, CATALOG)}the tables are {', '.join(CATALOG)}"
        raise InvalidOptionError("TABLE", value, expected)
    return value


TableName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="Such as index, files, verify, groups or subscriptions.",
        autocompletion=tables_like,
        callback=_table,
    ),
]
PrometheusFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--prometheus",
        metavar="FILE",
        help="Write gauges, for node_exporter's textfile collector; - is standard output.",
    ),
]
Number: TypeAlias = Annotated[int, typer.Option("-n", min=0, help="Show at most so many; 0: all.")]
