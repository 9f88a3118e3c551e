"""The exit codes of commands and jobs, beside 0: done."""

from typing import Final

FOUND: Final = 1  # A check found errors, a salvage lost something, a search found nothing.
FAILED: Final = 2
ABOVE: Final = 3  # backlog --fail-above: a group has more messages waiting.
INTERRUPTED: Final = 130  # 128 + SIGINT
READER_GONE: Final = 141  # 128 + SIGPIPE, a shell's exit code for a tool that the signal ends.
