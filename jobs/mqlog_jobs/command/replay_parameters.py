"""The arguments and options of ``mqlog replay``."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from mqlog_jobs.command.parameters import topics_like

Source: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A store directory, a glob of several in quotes, or a cluster.",
        show_default=False,
    ),
]
Address: TypeAlias = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="The cluster to send to: rocketmq://HOST:9876.")
]
TopicPlaces: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-t",
        "--topic",
        metavar="TOPIC[/QUEUE[@OFFSET]]",
        help="What to send; may be repeated. Default: all users' topics.",
        autocompletion=topics_like,
    ),
]
Tag: TypeAlias = Annotated[str, typer.Option(help="Tag expression, 'A || B'.")]
Sql: TypeAlias = Annotated[str | None, typer.Option(help='SQL92 of properties, "a > 5".')]
WithKeys: TypeAlias = Annotated[
    list[str] | None, typer.Option("--key", help="A message key; may be repeated.")
]
ToTopic: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TOPIC", help="Send all to this topic. Default: the same.")
]
Renamed: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--map", metavar="OLD=NEW", help="Send messages of topic OLD to topic NEW; may be repeated."
    ),
]
ToOrigin: TypeAlias = Annotated[
    bool,
    typer.Option("--to-origin", help="Send dead letters and retries to the topics they came from."),
]
SameTopic: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--same-topic",
        help="Where ADDRESS is SOURCE: send messages to the topic they come from all the same, "
        "which then has them twice.",
    ),
]
CreateTopic: TypeAlias = Annotated[
    bool,
    typer.Option("--create-topic", help="Make topics that are not there, the control topic too."),
]
MessageRate: TypeAlias = Annotated[
    int | None,
    typer.Option("--rate", min=1, metavar="N", help="At most N messages a second."),
]
ByteRate: TypeAlias = Annotated[
    str | None, typer.Option(metavar="SIZE", help="At most so many bytes a second: 500k, 5m.")
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Count what would be sent where; send nothing.")
]
AtLeastOnce: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--at-least-once", help="Each run sends all messages again, also after one that was killed."
    ),
]
Name: TypeAlias = Annotated[
    str | None,
    typer.Option(help="A name of your choice. A replay with a new name sends all messages again."),
]
OffsetMap: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT:DIR",
        help="Write where each message was and is now: parquet:DIR, csv:DIR or json:DIR.",
    ),
]
CarriedGroups: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="NAMES",
        help="Carry the committed offsets of these stopped groups to where the messages went: a "
        "comma list.",
    ),
]
FailOrSkip: TypeAlias = Annotated[
    str,
    typer.Option(
        "--on-corrupt", metavar="fail|skip", help="At a broken message: fail, or leave it out."
    ),
]
SourceLog: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--commit-log", metavar="DIR", help="A CommitLog folder of SOURCE, if not commitlog."
    ),
]
SourceOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--source-option",
        metavar="NAME=VALUE",
        help="Of SOURCE, if it is a cluster or in an object store; may be repeated.",
    ),
]
WriteOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--option",
        metavar="NAME=VALUE",
        help="Of the write to ADDRESS, such as compression=zlib, sendTimeout=10s or "
        "credentialsFile=FILE; may be repeated.",
    ),
]
