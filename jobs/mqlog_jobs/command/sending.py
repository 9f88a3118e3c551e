"""The command ``mqlog send``: messages from standard input to a topic of a running cluster."""

# ruff: noqa: PLC0415, PLR0913

import errno
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import typer

from mqlog_jobs.command.app import SENDING, command
from mqlog_jobs.command.parameters import AsJson
from mqlog_jobs.machine.codes import INTERRUPTED
from mqlog_jobs.output.amounts import several
from mqstore.errors import InvalidOptionError

_MOST_LINGER_MS: Final = 24 * 3600 * 1000
_NOTE: Final = "interrupted: the lines that came are sent; Ctrl-C again ends at once"


@command(
    SENDING,
    "echo paid | mqlog send rocketmq://ns1:9876 SHOP_ORDERS --tag paid --key o-1",
    "tail -F app.log | mqlog send rocketmq://ns1:9876 SHOP_PARCELS --linger 1s",
    "mqlog send rocketmq://ns1:9876 SHOP_ORDERS --json-lines -o createTopic=true < orders.jsonl",
)
def send(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="A cluster: rocketmq://HOST:9876.")
    ],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where the messages go.")],
    *,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help="Each line is an object: body, tags, keys, properties, queueId, shardingKey, "
            "flag, delayTimeLevel.",
        ),
    ] = False,
    separator: Annotated[
        str | None,
        typer.Option("-K", "--key-separator", help="Each line is a key, this text, and a body."),
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Tag of every message.")] = None,
    key: Annotated[str | None, typer.Option("-k", "--key", help="Keys of every message.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("-p", "--property", metavar="NAME=VALUE", help="Of every message."),
    ] = None,
    delay_level: Annotated[
        int, typer.Option("--delay-level", min=0, max=18, help="Delay level of every message.")
    ] = 0,
    linger: Annotated[
        str,
        typer.Option("--linger", help="How long a line may wait for more lines to go with it."),
    ] = "100ms",
    options: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--option",
            metavar="NAME=VALUE",
            help="An option of a write to a cluster, such as createTopic=true, compression=zlib or "
            "credentialsFile=FILE; may be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send lines from standard input as messages, as they come, at least once; count them.

    After Ctrl-C the lines that came by then are sent; Ctrl-C again ends the command at once.
    """
    form = _form(json_lines, separator, (tag, key, delay_level), properties)
    target = address, topic, dict(pairs("--option", options or ()))
    counts, is_cut = _sent(target, form, linger)
    _tell(topic, counts, as_json=as_json)
    if is_cut:
        raise typer.Exit(INTERRUPTED)


def _form(
    is_json: bool,
    separator: str | None,
    given: tuple[str | None, str | None, int],
    properties: Iterable[str] | None,
) -> tuple[Any, ...]:
    """Return the fields of a LineForm; ``given`` are tag, keys and delay level of every message."""
    if is_json and separator is not None:
        raise InvalidOptionError("--key-separator", separator, "cannot stand with --json-lines")
    if separator == "":
        raise InvalidOptionError("--key-separator", "", "is empty")
    named = zip(("tags", "keys", "delayTimeLevel"), given, strict=True)
    defaults = {name: value for name, value in named if value not in (None, 0)}
    return is_json, separator, defaults, dict(pairs("--property", properties or ()))


def _tell(topic: str, counts: Mapping[str, int], *, as_json: bool) -> None:
    from mqlog_jobs.output import render

    if as_json:
        render.json_lines([{"topic": topic, **counts}])
        return
    again = f"; {counts['repeats']} requests were sent again, perhaps twice stored"
    sent = f"{several(counts['messages'], 'message')} to {topic}"
    typer.echo(f"{sent}{again if counts['repeats'] else ''}")


def _sent(
    target: tuple[str, str, dict[str, str]], form: tuple[Any, ...], linger: str
) -> tuple[dict[str, int], bool]:
    """Send standard input; return how many messages that were, and what did not go well.

    The second value tells whether an interrupt ended the input. ``target`` are address, topic and
    options, ``form`` the fields of a LineForm.
    """
    from mqlog_jobs.machine.interrupts import held
    from mqlog_jobs.replays.arriving import ArrivingLines
    from mqlog_jobs.replays.message_lines import SCHEMA, LineForm, batches
    from mqlog_jobs.replays.write_options import advising, settings_of
    from mqstore.deliver.prepare import finish, prepare
    from mqstore.deliver.task import sending
    from mqstore.options.grammar import duration

    linger_ms = duration("--linger", linger)
    if linger_ms > _MOST_LINGER_MS:
        raise InvalidOptionError("--linger", linger, "must be at most 24h")
    if sys.stdin is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "standard input")
    with advising(("option topic: ", ""), ("createTopic=true", "-o createTopic=true")):
        job = prepare(settings_of(*target), SCHEMA)
    with held(_NOTE) as interrupts, sending(job, partition=0, attempt=0) as task:
        lines = ArrivingLines(sys.stdin.fileno(), interrupts, linger_ms / 1000)
        for group in lines:
            task.take(batches(group.lines, LineForm(*form), group.first))
            if not group.more:
                task.flush()
        report = task.finish()
    counts = finish(job, [report])
    numbers = {
        "messages": counts.messages,
        "bytes": counts.bytes,
        "repeats": counts.repeats,
        "refusals": counts.refusals,
        "skipped": report.skipped,
    }
    return numbers, lines.is_cut


def pairs(flag: str, texts: Iterable[str], form: str = "NAME=VALUE") -> list[tuple[str, str]]:
    """Return both sides of each ``form``; raises InvalidOptionError with the flag."""
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidOptionError(flag, text, f"must be {form}")
        pairs.append((name.strip(), value))
    return pairs
