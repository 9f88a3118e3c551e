"""The command ``mqlog``: it shows, checks and repairs stores, without a broker.

Exit codes: 0 done; 1 ``verify`` or ``doctor`` found errors, ``salvage`` lost something, or ``find``
found nothing; 2 a wrong argument, a store that cannot be read, or output that cannot be written,
with one line on standard error; 3 a backlog is larger than ``--fail-above``; 130 interrupted; 141
the reader of the pipe is gone.

The module imports the rest in ``main``: an interrupt meanwhile has the exit code 130 too.
"""

import sys
from typing import Final

INTERRUPTED: Final = 130


def main() -> None:
    """Run the command and exit; an error that a user can correct is one line, no traceback."""
    try:
        from mqlog_jobs.exit_codes import run
        from mqlog_jobs.maintenance import app

        code = run(app)
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)
