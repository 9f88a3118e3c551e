"""POP groups on a terminal and in JSON: which part of their lag was popped."""

import time

from jobs.command import Run
from pop.test_look import checkpoint, message
from support.stores import Layout, MakeStore


def test_the_terminal_shows_of_pop_groups_what_is_in_flight_and_due(
    store: MakeStore, run: Run
) -> None:
    now = int(time.time() * 1000)
    pops = [
        checkpoint(0, 2, at=now, invisible=600_000),
        checkpoint(2, 3, at=now - 90_000, invisible=50_000),
    ]
    groups = {("T", "G"): {0: 5}, ("T", "Pulls"): {0: 6}}
    held = [message(key=f"id{number}") for number in range(10)]
    laid = store([*held, *pops], Layout(commit_log_bytes=1 << 20, group_offsets=groups))

    def rows(*command: str) -> dict[object, tuple[object, object]]:
        found = run(*command, laid.root, "--json").rows
        return {row["group"]: (row["inflight"], row["due"]) for row in found if row["group"]}

    expected = {"G": (2, 3), "Pulls": (None, None)}
    assert rows("backlog") == rows("backlog", "--summary") == expected
    assert rows("top", "--interval", "0.1") == expected
    for command in (["backlog"], ["backlog", "--summary"], ["top", "--interval", "0.1"]):
        assert "IN FLIGHT  DUE" in run(*command, laid.root).out
        assert "IN FLIGHT" not in run(*command, laid.root, "-g", "Pulls").out
