"""Consumer groups in states that are made: the right words about each, and none of one that works.

The table is broker/faults/table.py. All of its groups live at once, on one broker. `make soak` has
the whole table, at the bounds that users have, three times, with one and with eight processes that
compute beside it. `make test` has the few states of test_why.py.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from broker.faults.scene import Scene, evidence, loaded, wait, words
from broker.faults.table import TABLE, WORDS_OF_LOOKS, Row
from broker.harness import Cluster
from broker.pop.remote import Remote
from broker.toolchain import VERSIONS
from support import soak
from support.processes import until

pytestmark = pytest.mark.broker

REPEATS = soak.size("fault_tables", check=0, test=1, whole=3)
LOADS = [1, 8]
LOOKS = 5
PAUSE_S = 2.0
"""A message that is being delivered waits nowhere: a look in this moment has no word for it."""
SAMPLES = 16
EVERY = "5s"
SETTINGS = {
    "timerWheelEnable": "true",
    "mappedFileSizeCommitLog": "65536",
    "messageDelayLevel": "1s " * 17 + "1s",
    "cleanResourceInterval": "200",
    "destroyMapedFileIntervalForcibly": "1000",
}
Words = dict[str, frozenset[str]]
HOURS = ";".join(f"{hour:02}" for hour in range(24))


def record(place: str, file: Path) -> "subprocess.Popen[bytes]":
    """Take samples of the offsets, beside what goes on."""
    options = ["--every", EVERY, "--count", str(SAMPLES)]
    return subprocess.Popen([sys.executable, "-m", "mqlog", "record", place, str(file), *options])


def differences(
    rows: Sequence[Row], found: dict[str, set[str]], wanted: Words, also: Words
) -> dict[str, tuple[list[str], list[str]]]:
    """Group to the words that are right and those that were said, where these differ."""
    told = dict(found)
    wrong = {}
    for row in rows:
        words_of_row = told.pop(row.group, set())
        more = also.get(row.group, frozenset())
        if not wanted[row.group] <= words_of_row <= wanted[row.group] | more:
            wrong[row.group] = sorted(wanted[row.group]), sorted(words_of_row)
    return wrong | {group: ([], sorted(more)) for group, more in told.items()}


@soak.only
@pytest.mark.parametrize("pop_cluster", VERSIONS, indirect=True)
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("turn", range(REPEATS))
def test_each_made_fault_has_its_word_and_a_group_that_works_has_none(
    pop_cluster: Cluster, tmp_path: Path, turn: int, load: int
) -> None:
    rows = [row for row in TABLE if row.is_of(pop_cluster.version)]
    root, of_live, of_disk = tmp_path / "store", tmp_path / "live", tmp_path / "disk"
    takes = json.dumps(
        {row.group: {row.topic: row.subscription} for row in rows if row.subscription}
    )
    asked = {"subscriptions": takes}
    failures: dict[str, object] = {}

    def judge(
        door: str, place: str, wanted: Words, also: Words | None = None, **options: str
    ) -> None:
        wrong: dict[str, tuple[list[str], list[str]]] = {}
        looks = count(1)

        def is_judged() -> bool:
            """A word that is false once is a failure; one that is missing may come."""
            nonlocal wrong
            wrong = differences(rows, words(place, **asked, **options), wanted, also or {})
            return not wrong or any(said for _, said in wrong.values()) or next(looks) == LOOKS

        until(is_judged, pause_s=PAUSE_S)
        if wrong:
            said = [one for one in evidence(place, **asked, **options) if one[0] in wrong]
            failures[door] = wrong, said
            soak.tell(f"{pop_cluster.version}, load {load}, {door}: {wrong} {said}")

    with (
        loaded(load, os.getpid()),
        pop_cluster.broker(root, SETTINGS) as broker,
        Remote(broker.address) as client,
        ExitStack() as stack,
    ):
        scene = Scene(pop_cluster, root, broker, client, stack)
        for row in rows:
            row.make(scene, row.group, row.topic)
        with scene.running():
            recordings = [record(scene.live, of_live), record(str(root), of_disk)]
            assert [one.wait(300) for one in recordings] == [0, 0]
            for is_so in scene.waits:
                wait(is_so)
            for step in scene.later:
                step()
            live = {row.group: row.live for row in rows}
            judge("live", scene.live, live, samples=str(of_live))
            disk = {row.group: row.disk for row in rows}
            judge("disk", str(root), disk, samples=str(of_disk))
            one_look = {row.group: row.live - WORDS_OF_LOOKS for row in rows}
            unseen = {row.group: row.one_look for row in rows}
            judge("live, one look", scene.live, one_look, unseen)
            one_look = {row.group: row.disk - WORDS_OF_LOOKS for row in rows}
            judge("disk, one look", str(root), one_look)
            scene.set_broker(deleteWhen=HOURS, fileReservedTime="1")
            late = {
                row.group: row.live | {"EXPIRING"} if row.is_waiting else row.live for row in rows
            }
            old = {row.group: frozenset({"EXPIRING"}) for row in rows if not row.works}
            judge("live, kept for an hour", scene.live, late, old, samples=str(of_live))
        broker.leave()
        broker.stop()
    judge("left", str(root), one_look)
    assert failures == {}, f"{pop_cluster.version}, load {load}, time {turn}"
