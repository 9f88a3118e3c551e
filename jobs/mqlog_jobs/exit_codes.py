"""How a command ends: its exit code, and what went wrong in one line on standard error."""

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TextIO

from typer.core import TyperCommand

from mqlog_jobs.java import JavaNotFoundError
from mqstore.errors import StoreError, shown

FOUND: Final = 1
FAILED: Final = 2
READER_GONE: Final = 141  # 128 + SIGPIPE, what a shell says of a tool that the signal ends.
_OUTPUT: Final = "standard output"


class OfStore(TyperCommand):
    """A command with an argument STORE: an error of the system is told with the store's path."""

    def invoke(self, ctx: Any) -> Any:  # noqa: D102 - told by its base class
        try:
            return super().invoke(ctx)
        except OSError as error:
            store, name = ctx.params.get("store"), error.filename
            if store is not None and name != _OUTPUT:
                error.filename = _within(str(store), name)
            raise


def reason(error: OSError) -> str:
    """Return the path and what the system says of it, in one line."""
    said = shown(error.strerror or error)
    return f"{shown(error.filename)}: {said}" if isinstance(error.filename, str) else said


def run(app: Callable[[], object]) -> int:
    """Run the command and return its exit code; what a person can mend is told in one line.

    What was printed before an error is written before it is told.
    """
    if sys.stderr is None:  # Closed. What would be told there is lost.
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        return _failed(f"{_OUTPUT} is closed")
    if sys.stdout is sys.__stdout__:
        sys.stdout = _named(sys.__stdout__)
    out = sys.stdout
    try:
        code, problem = _ended(app)
        out.flush()
    except BrokenPipeError:
        code, problem = READER_GONE, ""
    except OSError as error:
        code, problem = FAILED, reason(error)
        _let_go(out)
    if code == READER_GONE:
        _let_go(out)
    return _failed(problem) if problem else code


def _ended(app: Callable[[], object]) -> tuple[int, str]:
    """Return the exit code, and what is to be told of an error."""
    try:
        app()
    except SystemExit as ended:
        # Typer and Rich end with 1 when the reader of the pipe has seen enough.
        if isinstance(ended.__context__, BrokenPipeError):
            return READER_GONE, ""
        return ended.code if isinstance(ended.code, int) else 0, ""
    except BrokenPipeError:
        return READER_GONE, ""
    except (StoreError, JavaNotFoundError) as error:
        return FAILED, str(error)
    except OSError as error:
        return FAILED, reason(error)
    return 0, ""


def _failed(problem: str) -> int:
    with suppress(OSError):
        sys.stderr.write(f"mqlog: {problem}\n")
        sys.stderr.flush()
    return FAILED


def _within(store: str, name: object) -> str:
    """Return the path; the parts of a store are opened by their last name only."""
    if not isinstance(name, str):
        return store
    return name if "/" in name or name == store else f"{store}: {name}"


class _Named(io.FileIO):
    """A file whose errors have its name: it tells a full disk behind the output from a store's."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _OUTPUT
            raise


def _named(stream: TextIO) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(_Named(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.isatty(),
    )


def _let_go(stream: TextIO) -> None:
    """Send what is still to be written nowhere: the interpreter tries once more as it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
