"""The end of a command or a job: its exit code, and an error in one line on standard error."""

import io
import logging
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from mqlog_jobs.machine.codes import FAILED, READER_GONE
from mqlog_jobs.machine.named_stream import REPLACING, NamedStream
from mqstore.errors import StoreError, printable, shown

STANDARD_OUTPUT: Final = "standard output"
_CONDITION: Final = re.compile(r"\[MQLOG_[^\n]*")
_IN_PLAN: Final = re.compile(r"raise_error\([^\n]*")


class _PrintableFormatter(logging.Formatter):
    """Shows warnings, which may name files of a hostile store, without control characters."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(record.message)


def run(work: Callable[[], object]) -> int:
    """Run a command or a job and return its exit code: the one it returns or exits with, or 0.

    An error that a user can correct ends it with one line on standard error and the code 2, after
    all output is written; any other error is raised as it is.
    """
    if sys.stderr is None:  # It is closed, and what is written there is lost.
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        return _failed(f"{STANDARD_OUTPUT} is closed")
    if sys.stdout is sys.__stdout__:
        sys.stdout = _named(sys.__stdout__)
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableFormatter())
    out = sys.stdout
    try:
        code, problem = _ended(work)
        out.flush()
    except BrokenPipeError:
        code, problem = READER_GONE, ""
    except OSError as error:
        code, problem = FAILED, reason(error)
        _discard_output(out)
    if code == READER_GONE:
        _discard_output(out)
    return _failed(problem) if problem else code


def problem_of(error: Exception) -> str | None:
    """Return the one line that says what a user can correct, or None for any other error.

    Spark wraps an error of this project in many lines; the line that begins with its condition
    has its whole message.
    """
    from mqlog_jobs.machine.java import JavaNotFoundError  # noqa: PLC0415 - a command starts without it

    if isinstance(error, ModuleNotFoundError):
        from mqlog_jobs.machine import installation  # noqa: PLC0415 - the same

        return installation.missing(error)
    if isinstance(error, StoreError | JavaNotFoundError):
        return str(error)
    if isinstance(error, OSError):
        return reason(error)
    # A plan of Spark has texts of errors that did not happen.
    condition = _CONDITION.search(_IN_PLAN.sub("", str(error)))
    if condition is None and _is_refusal(error):  # Its lines behind the first are Spark's plan.
        return str(error).splitlines()[0].rstrip(";")
    return condition[0] if condition else None


def _is_refusal(error: Exception) -> bool:
    """Tell whether Spark refused the query: a path that is not there, an unknown column.

    The name of the class decides, because a command does not import Spark.
    """
    names = {(one.__module__.split(".")[0], one.__name__) for one in type(error).__mro__}
    return ("pyspark", "AnalysisException") in names


def reason(error: OSError) -> str:
    """Return the path and the system's message, in one line."""
    text = shown(error.strerror or error)
    return f"{shown(error.filename)}: {text}" if isinstance(error.filename, str) else text


def _ended(work: Callable[[], object]) -> tuple[int, str]:
    """Return the exit code and the line about an error, empty if there is none."""
    try:
        code = work()
    except SystemExit as ended:
        # Typer and Rich exit with 1 when the reader of the pipe is gone.
        if isinstance(ended.__context__, BrokenPipeError):
            return READER_GONE, ""
        code = ended.code
    except BrokenPipeError:
        return READER_GONE, ""
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        return FAILED, problem
    return code if isinstance(code, int) else 0, ""


def _failed(problem: str) -> int:
    with suppress(OSError):
        sys.stderr.write(f"mqlog: {problem}\n")
        sys.stderr.flush()
    return FAILED


def _named(stream: TextIO) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(NamedStream(stream.fileno(), STANDARD_OUTPUT, closefd=False)),
        encoding=stream.encoding,
        errors=REPLACING if stream.errors == "strict" else stream.errors,
        line_buffering=stream.isatty(),
    )


def _discard_output(stream: TextIO) -> None:
    """Drop the rest of the output: the interpreter tries to write it once more as it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
