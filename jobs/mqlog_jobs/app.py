"""The application ``mqlog``, without its commands: its help, its version, errors of files.

A command is a function of mqlog_jobs.commands or mqlog_jobs.maintenance that has ``@command``.
Those modules declare arguments and options only, and a command imports what does the work when it
runs: so ``--help``, ``--version`` and the completion of a shell start without numpy and pyarrow.
"""

import re
import sys
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from mqlog_jobs.exit_codes import STANDARD_OUTPUT
from mqstore import __version__
from mqstore.errors import StoreError

app = typer.Typer(
    name="mqlog",
    help="Show, check and repair message stores of Apache RocketMQ: a broker's directory, without "
    "a broker. Show running clusters as well: rocketmq://HOST:9876.",
    epilog="Exit codes: 0 done; 1 verify or doctor found errors, salvage lost something, or find "
    "found nothing; 2 an argument is wrong, a store cannot be read or output cannot be written; "
    "3 backlog --fail-above: a group has more messages waiting; "
    "130 interrupted; 141 the reader of the pipe is gone.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


# Options of a read, by the command's names for them.
_OWN_NAMES: Final = {
    "groups": "--group",
    "subscriptions": "--subscription",
    "subscribe": "--topic",
    "onCorrupt": "--on-corrupt",
    "storePathCommitLog": "--commit-log",
    "queues": "--from-log",
}
_OPTION_NAME: Final = re.compile(rf"^(option )?({'|'.join(_OWN_NAMES)})(?=$|:)")


class _StoreCommand(TyperCommand):
    """A command with an argument STORE: its errors name the store's path and its own options."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except StoreError as error:
            if error.args and isinstance(error.args[0], str):
                error.args = (_OPTION_NAME.sub(_own_name, error.args[0]), *error.args[1:])
            raise
        except OSError as error:
            stores, name = _stores(ctx.params), error.filename
            if len(stores) == 1 and name != STANDARD_OUTPUT:
                error.filename = _within(stores[0], name)
            raise


command = partial(app.command, cls=_StoreCommand)


def _version(wanted: bool) -> None:
    if wanted:
        from mqstore.kernels import kernels_in_use  # noqa: PLC0415 - for this option only

        sys.stdout.write(f"mqlog {__version__}, kernels: {kernels_in_use()}\n")
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


def _own_name(found: re.Match[str]) -> str:
    return f"{found[1] or ''}{_OWN_NAMES[found[2]]}"


def _stores(parameters: Mapping[str, Any]) -> list[str]:
    store = parameters.get("store")
    return [str(store)] if store is not None else list(parameters.get("stores") or ())


def _within(store: str, name: object) -> str:
    """Return the path of a file of a store, whose errors may have its last name only."""
    if not isinstance(name, str):
        return store
    return name if "/" in name or name == store else f"{store}: {name}"
