"""What a run of the command in this process gives; the fixture `run` of conftest.py does it."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from typer.main import get_command

from mqlog_jobs.command.maintenance import app


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Done]


@cache
def commands() -> Any:
    """The commands of the application, which ``app()`` makes anew at each call, in 9 ms."""
    return get_command(app)
