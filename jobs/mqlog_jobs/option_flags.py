"""The flags of commands that stand for options of a read."""

from typing import Final

FLAGS: Final[dict[str, str]] = {
    "groups": "--group",
    "subscriptions": "--subscription",
    "subscribe": "--topic",
    "startingTimestamp": "--since",
    "endingTimestamp": "--until",
    "onCorrupt": "--on-corrupt",
    "storePathCommitLog": "--commit-log",
    "queues": "--from-log",
    "interval": "--interval",
    "lookAgain": "--look-again",
}
"""Option → flag."""
