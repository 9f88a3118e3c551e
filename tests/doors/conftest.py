"""The fixtures of places and of the command, for the contract of doors."""

from jobs.conftest import run
from places.conftest import server

__all__ = ["run", "server"]
