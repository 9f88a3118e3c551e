"""The exit codes of commands and jobs, beside 0: done."""

from typing import Final

FOUND: Final = 1  # Errors, differences, losses, removed points, or nothing that was looked for.
FAILED: Final = 2
ABOVE: Final = 3  # backlog --fail-above: a group has more messages waiting.
INTERRUPTED: Final = 130  # 128 + SIGINT
READER_GONE: Final = 141  # 128 + SIGPIPE, a shell's exit code for a tool that the signal ends.
