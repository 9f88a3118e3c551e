"""``python -m mqlog_jobs`` is the command ``mqlog``."""

from mqlog_jobs.cli import main

if __name__ == "__main__":
    main()
