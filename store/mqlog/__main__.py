"""``python -m mqlog``: the command ``mqlog``."""

from mqlog_jobs.cli import main

main()
