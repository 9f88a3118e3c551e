"""The command ``mqlog``: looks into store directories, without a broker and without Spark.

Exit codes: 0 done; 1 ``verify`` or ``doctor`` found errors, or ``find`` found nothing; 2 a wrong
argument, a store that cannot be read, or output that cannot be written, told in one line on
standard error; 130 interrupted; 141 the reader of the pipe is gone.

Imports nothing by itself: an interrupt while the rest is loaded is an interrupt like any other.
"""

import sys
from typing import Final

INTERRUPTED: Final = 130


def main() -> None:
    """Run the command; errors that a person can mend are one line, not a traceback."""
    try:
        from mqlog_jobs.exit_codes import run
        from mqlog_jobs.upkeep import app

        code = run(app)
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)
