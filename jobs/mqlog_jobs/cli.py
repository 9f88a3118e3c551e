"""The command ``mqlog``: it shows, keeps, checks and repairs stores, without a broker.

Exit codes: 0 done; 1 ``verify`` or ``doctor`` found errors, ``audit`` differences, ``why`` a
reason, ``salvage`` lost something, ``snapshot --hold-max`` removed points, or ``find`` found
nothing; 2 a wrong argument, a store that cannot be read, or output that cannot be written, with one
line on standard error; 3 a backlog is larger than ``--fail-above``; 130 interrupted; 141 the reader
of the pipe is gone.

The module imports the rest in ``main``: an interrupt meanwhile has the exit code 130 too.
"""

import gc
import os
import sys

from mqlog_jobs.machine.codes import INTERRUPTED

_SCREEN_DIGITS = 4  # Of the columns of a screen.
_NEW_OBJECTS = 100_000  # What imports make stays: looks at it were a tenth of a short command.


def main() -> None:
    """Run the command and exit; an error that a user can correct is one line, no traceback."""
    collect_rarely()
    bound_screen()
    try:
        from mqlog_jobs.machine.exit_codes import run

        code = run(_command)
    except KeyboardInterrupt:
        code = INTERRUPTED
    gc.freeze()  # Python's last collections would look at all modules: a tenth of a short command.
    sys.exit(code)


def bound_screen() -> None:
    """Pass over sizes of a screen that none has: each line would be padded to them."""
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):
        text = os.environ.get(name, "0")
        if not (text.isascii() and text.isdigit() and len(text) <= _SCREEN_DIGITS):
            del os.environ[name]


def collect_rarely() -> None:
    """Have Python seldom visit all objects in search of cycles: a tenth of the time of a look."""
    gc.set_threshold(_NEW_OBJECTS, 20, 100)


def _command() -> object:
    if sys.argv[1:] == ["--version"]:  # Alone on a line, it needs no parser of lines.
        from mqlog_jobs.version import version_line

        sys.stdout.write(version_line())
        return 0
    try:
        from mqlog_jobs.command.maintenance import app

        return app()
    except ModuleNotFoundError as error:
        command, *words = sys.argv[1:] or [""]
        if command != "doctor" or {"-h", "--help"} & set(words):
            raise
        from mqlog_jobs.machine import installation

        if installation.missing(error) is None:
            raise
        return installation.examine_alone(words)
