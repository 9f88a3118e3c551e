"""The application ``mqlog``, without its commands: its help, its version, errors of files.

A command is a function of a module beside this one that has ``@command``. It declares arguments and
options only, and imports what does the work when it runs (mqlog_jobs.work): so ``--help``,
``--version`` and the completion of a shell start without numpy and pyarrow.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from mqlog_jobs.machine.arrow import import_without_pandas
from mqlog_jobs.machine.exit_codes import STANDARD_OUTPUT
from mqlog_jobs.option_flags import FLAGS, TOPIC_ARGUMENT
from mqstore.errors import InvalidOptionError, StoreError, printable

# The parts of the help's list of commands.
FIRST_STEPS: Final = "Begin with these"
VIEWS: Final = "Show messages and backlog"
MORE_TABLES: Final = "Show more tables"
SENDING: Final = "Send messages to a cluster"
KEEP: Final = "Keep messages"
REPAIR: Final = "Copy, check and repair a store"
START: Final = "Set up and try"
PANELS: Final = (FIRST_STEPS, VIEWS, MORE_TABLES, SENDING, KEEP, REPAIR, START)
_PURPOSE: Final = (
    "Show, keep, check and repair message stores of Apache RocketMQ: a broker's directory, without "
    "a broker. Show running clusters as well: rocketmq://HOST:9876."
)
_FIRST: Final = {
    "topics": "the topics: permissions, queues, messages, bytes",
    "backlog": "the messages that consumer groups have not consumed",
    "cat": "messages of a topic, by tag, key, time or SQL92",
    "find": "all messages with a key or an id",
    "top": "rates, lag, and when groups have caught up: a full screen",
    "report": "the same and more as a page for a browser",
    "doctor": "why a store or a cluster cannot be read",
}
"""The commands to begin with, and each in short."""
_TO_TRY: Final = (
    "  mqlog topics /data/store",
    "  mqlog backlog rocketmq://HOST:9876",
    "  mqlog cat /data/store TOPIC -n 5",
)
# What a help calls the value of an option, if it is not the option's own name.
_VALUES: Final = {
    "since": "TIME",
    "until": "TIME",
    "lock_timeout": "TIME",
    "linger": "TIME",
    "interval": "SECONDS",
    "number": "N",
    "count": "N",
    "frames": "N",
    "delay_level": "N",
    "file_size": "BYTES",
    "sql": "EXPRESSION",
    "line": "TEXT",
    "separator": "TEXT",
    "staging_dir": "DIR",
    "assume": "published|lost",
}

# What typer raises for a wrong line: its name is in click, or in typer's own copy of it.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]

_LARGEST_NUMBER: Final = 10**15
_MOST_SECONDS: Final = 86_400  # A day.

_Function = TypeVar("_Function", bound=Callable[..., object])


# What typer says of a value that is no number.
_NOT_A_NUMBER: Final = re.compile(r"Input should be a valid (integer|number),.*", re.DOTALL)


class WrongLineError(InvalidOptionError):
    """Words of a line that the command does not take, or words that it lacks."""

    text = "{what!s}"

    def __init__(self, what: str) -> None:
        StoreError.__init__(self, what)


def wrong_line(error: Any, words: Sequence[str]) -> InvalidOptionError:
    """Return typer's error about the words of a line as one of mqlog's, in one line."""
    flag, value = _typed(getattr(error, "param", None), words)
    if value is not None and isinstance(error, typer.BadParameter):
        expected = _NOT_A_NUMBER.sub(_number, str(error.message).rstrip("."))
        return InvalidOptionError(flag, value, expected.replace("Input should be", "must be"))
    text = printable(" ".join(error.format_message().split()))
    if "mqlog" in text:  # It is advice already.
        return WrongLineError(text)
    end = "" if text.endswith((".", "?")) else "."
    if error.ctx is None:  # Of an option that lacks its value.
        names = [word for word in words[:1] if not word.startswith("-")]
    else:
        names = [error.ctx.info_name] if error.ctx.parent else []
    return WrongLineError(f"{text}{end} See: {' '.join(['mqlog', *names])} -h")


def _number(found: re.Match[str]) -> str:
    return "must be a whole number" if found[1] == "integer" else "must be a number"


def _typed(parameter: Any, words: Sequence[str]) -> tuple[str, str | None]:
    """Return the flag of an option as it stands on the line, and its value; or no value."""
    flags = [flag for flag in getattr(parameter, "opts", ()) if flag.startswith("-")]
    for word, following in zip(words, [*words[1:], None], strict=True):
        for flag in flags:
            if word == flag:
                return flag, following
            joined = f"{flag}=" if flag.startswith("--") else flag
            if word.startswith(joined):
                return flag, word.removeprefix(joined)
    return "", None


class _AsTyped:
    """Converts the values of a line that are not of their parameter's type yet.

    From 0.29 on, typer builds a converter by pydantic for each parameter of a command, also for
    those that are not on the line: 90 ms of CPU time. Texts and defaults need none.
    """

    def __init__(self, parameter: Any) -> None:
        self._converter = partial(type(parameter).get_runtime_param, parameter)
        self._kind = parameter.type_descriptor.annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        if self._kind is str or not (is_list or isinstance(value, str)):
            return value
        if self._kind == list[str]:
            return list(value)
        return self._converter().coerce(value, param=param, ctx=ctx)


def _described(parameters: list[Any]) -> list[Any]:
    """Give parameters the names of their values in a help; typer shows Python's types."""
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
            name = parameter.metavar or parameter.name.upper()
            in_usage = name if parameter.required else f"[{name}]"
            parameter.get_usage_pieces = lambda ctx, shown=in_usage: [shown]
        elif parameter.metavar is None:
            by_name = max(parameter.opts, key=len).lstrip("-").upper()
            parameter.metavar = "" if parameter.is_flag else _VALUES.get(parameter.name, by_name)
        if hasattr(type(parameter), "get_runtime_param"):
            converter = _AsTyped(parameter)
            parameter.get_runtime_param = lambda found=converter: found
    return parameters


def _begin_order(name: str) -> int:
    return [*_FIRST].index(name) if name in _FIRST else 0


def first_page(commands: Any) -> str:
    """Return what the bare word prints: the commands to begin with, in a screen of 80 cells."""
    lines = ["Usage: mqlog COMMAND PLACE...", "", *wrap(_PURPOSE, 79), "", f"{FIRST_STEPS}:"]
    lines += [f"  {name:<9}{text}" for name, text in _FIRST.items()]
    more = f"mqlog -h lists all {len(commands.commands)} commands, mqlog COMMAND -h explains one."
    return "\n".join([*lines, "", "For example:", *_TO_TRY, "", more, ""])


class _Commands(TyperGroup):
    """The list of all commands, part by part."""

    def list_commands(self, ctx: Any) -> list[str]:
        def part(name: str) -> int:
            return PANELS.index(self.commands[name].rich_help_panel)  # type: ignore[attr-defined]

        return sorted(sorted(super().list_commands(ctx), key=_begin_order), key=part)

    def get_params(self, ctx: Any) -> list[Any]:
        return _described(super().get_params(ctx))

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line and exit. Raises InvalidOptionError for a wrong line."""
        words = list(extra.get("args") or sys.argv[1:])
        completes = _COMPLETION in os.environ  # A shell gives the line in other variables.
        if not words and not completes:  # Typer makes an error of the bare word, or not.
            sys.stdout.write(first_page(self))
            sys.exit(0)
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except _UsageError as error:
            raise wrong_line(error, words) from None
        sys.exit(code)


app = typer.Typer(
    name="mqlog",
    cls=_Commands,
    help=_PURPOSE,
    epilog="mqlog COMMAND -h explains a command, with examples.\n\n"
    "Exit codes: 0 done; 1 verify or doctor found errors, audit found differences, why found a "
    "reason, salvage lost "
    "something, snapshot --hold-max removed points, or find found nothing; 2 an argument is wrong, "
    "a store cannot be read or output cannot be written; "
    "3 backlog --fail-above: a group has more messages waiting; "
    "130 interrupted; 141 the reader of the pipe is gone.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_COMPLETION: Final = "_MQLOG_COMPLETE"
_ADDRESS_OF_TOPIC: Final = re.compile(r"(rocketmqs?://[^/]+)/([^/,#]+)", re.IGNORECASE)
_OPTION_NAME: Final = re.compile(rf"^(option )?({'|'.join({**FLAGS, **TOPIC_ARGUMENT})})(?=$|:)")


class _StoreCommand(TyperCommand):
    """A command with an argument STORE: its errors name the store's path and its own options."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _described(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = [word for word in args if not word.startswith("-")]
        try:
            rest = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            # Of a single word typer takes the last argument for given, and the first for missing.
            names = {parameter.name for parameter in self.params}
            if words and getattr(error.param, "name", "") == "stores":
                if "place" in names:
                    error.param_hint, advice = "TOPIC", _advice_of_topic(ctx.info_name, words)
                    error.message = f"It follows the places. {advice}"
                elif "query" in names:
                    error.param_hint = "QUERY"
                    error.message = "It follows the places: mqlog sql PLACE 'SHOW TABLES'"
            raise
        ctx.params |= {name: _at_home(value) for name, value in ctx.params.items()}
        for parameter in self.params:
            _check_bound(parameter, ctx.params.get(parameter.name))
        return rest

    def invoke(self, ctx: Any) -> Any:
        if _stores(ctx.params):
            import_without_pandas()
        try:
            return super().invoke(ctx)
        except StoreError as error:
            if error.args and isinstance(error.args[0], str):
                named = _OPTION_NAME.sub(partial(_own_name, self.params), error.args[0])
                error.args = (named, *error.args[1:])
            raise
        except OSError as error:
            stores, name = _stores(ctx.params), error.filename
            if len(stores) == 1 and name != STANDARD_OUTPUT:
                error.filename = _within(stores[0], name)
            raise


def command(panel: str, *examples: str) -> Callable[[_Function], _Function]:
    """Make a function a command, in a part of the list of commands; its help has examples."""
    return app.command(
        cls=_StoreCommand,
        rich_help_panel=panel,
        epilog="\n".join(("Examples:", *examples)),
    )


def _version(wanted: bool) -> None:
    if wanted:
        from mqlog_jobs.version import version_line  # noqa: PLC0415 - for this option only

        sys.stdout.write(version_line())
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and the kernels."
        ),
    ] = False,
) -> None:
    pass


def _check_bound(parameter: Any, value: object) -> None:
    """Raise InvalidOptionError for a number that nothing could be done with."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    most, unit = (_MOST_SECONDS, " seconds") if isinstance(value, float) else (_LARGEST_NUMBER, "")
    if not value <= most:  # Nor is "not a number".
        expected = f"must be at most {most:,}{unit}"
        raise InvalidOptionError(max(parameter.opts, key=len), value, expected)


def _at_home(value: Any) -> Any:
    """Return paths with ``~`` as a shell writes them out, but not behind ``--commit-log=``."""
    if isinstance(value, list):
        return [_at_home(one) for one in value]
    return value.expanduser() if isinstance(value, Path) else value


def _own_name(parameters: Sequence[Any], found: re.Match[str]) -> str:
    """Return the flag or the argument of an option, if the command has it; else the words."""
    flags = {flag for parameter in parameters for flag in parameter.opts}
    flag = FLAGS.get(found[2])
    if flag not in flags and "place" in flags:
        flag = TOPIC_ARGUMENT.get(found[2], flag)
    elif flag not in flags:
        return found[0]
    return f"{found[1] or ''}{flag or found[2]}"


def _advice_of_topic(name: str, words: Sequence[str]) -> str:
    """Return what to write where a topic is missing: an address may have it, as in Spark."""
    found = _ADDRESS_OF_TOPIC.fullmatch(words[0])
    if found:
        return f"Write: mqlog {name} {found[1]} {found[2]}"
    return f"To list topics: mqlog topics {words[0]}"


def _stores(parameters: Mapping[str, Any]) -> list[str]:
    store = parameters.get("store")
    return [str(store)] if store is not None else list(parameters.get("stores") or ())


def _within(store: str, name: object) -> str:
    """Return the path of a file of a store, whose errors may have its last name only."""
    if not isinstance(name, str):
        return store
    return name if "/" in name or name == store else f"{store}: {name}"
