"""T16: take one sync, rename or step away, and see that the power cuts of T2 notice.

What goes unnoticed there is listed here, with the reason; a guard that is neither noticed nor
listed is a guard without a test. The size mutation_states says how many states a scenario gets.
"""

from fnmatch import fnmatch
from pathlib import Path

import pytest

from crash import mutations, play, settled
from crash.disk import forgetting
from crash.scenarios import BY_NAME, work
from support import soak

STATES = soak.size("mutation_states", check=150, test=150, whole=400)
_AGAIN = "a recovery that is cut off is run again: the intent, or abort, is still there"
_EARLIER = "with an older checkpoint a recovery only begins earlier"
_HEAD = "the index is put again by whoever recovers; the last sync covers it"
_DECIDED = "a decided intent is carried out again, from staged files that stay until it is removed"
_GROUP = "one of several that sync the same: all of a group are noticed, see mutations.TOGETHER"
JUSTIFIED = {
    "the number that readers look at twice": "needs a reader while a commit runs",
    "the second look at the files": "needs a broker that starts without our leave",
    "the lease": "needs a broker that starts: test_findings.py, test_locking.py",
    "*Application.settle_index* < resume*": _GROUP,
    "*_write_head*": _HEAD,
    "*index_repair.cut_back*": _AGAIN,
    "fsync_directory index_repair.remove*": "IndexRebuild._sync syncs that folder in the end",
    "*log_clear.clear*": _AGAIN,
    "fsync resume._sync_log*": _GROUP,
    "*_write_again*": _GROUP,
    "fsync_directory resume._sync_log* < resume.resume*": (
        "without an intent what is published has names that are durable, but for those of brokers"
    ),
    "fsync_directory resume._sync_log* < *_complete* < *_go_on*": (
        "a commit's files have durable names before it is published"
    ),
    "fsync_directory *replace_for_good* < intent.store* < apply.Application.carry_out*": _DECIDED,
    "fsync_directory *replace_for_good* < intent.store* < resume.*_complete*": _DECIDED,
    "fsync queue_append.QueueAppender.close* < queue_repair*": _GROUP,
    "fsync *QueueRepair.sync_last* < *QueueRebuild*": (
        "needs a recovery that is killed while it clears a queue of which no record is walked"
    ),
    "fsync_directory *StoreWriter.make_directories* < queue_append* < queue_repair*": (
        "QueueRebuild._sync syncs the folders of all topics in the end"
    ),
    "fsync_directory *QueueRebuild._sync:18 *": "abort, made or removed, syncs that folder",
    "fsync_directory locked.LockedStore.writer* < commit*": (
        "staging.make syncs .mqlog as well, if messages are staged in the store"
    ),
    "fsync_directory locked.LockedStore.writer* < resume*": (
        "tells between two syncs only: MQLOG_AGAIN=queue-files:0:60:kill/99:0"
    ),
    "fsync_directory locked.LockedStore.writer* < recover*": "nothing is decided after it",
    "fsync_directory *StoreWriter.make_directories* < *LockedStore.writer*": _GROUP,
    "fsync_directory *StoreWriter.make_directories* < log_clear*": "for a copy for people",
    "*log_clear._move*": (
        "a copy for people; what was not cleared is found again, or written over and synced"
    ),
    "*_limit_index_time*": "a clock of the index that is ahead does no harm, see settle_index",
    "*replace_json:8 *": "the .bak of topics.json, which is there besides",
    "fsync_directory *replace_json* < create.create*": "add_topics syncs that folder",
    "*replace_file:7 < create.create*": "an empty checkpoint says the same as one of zeros",
    "*replace_checkpoint*note_last*": _EARLIER,
    "*replace_checkpoint*resume.repair*": _EARLIER,
    "*replace_file:7 < apply.Application.append*": (
        "an interlock that is empty stops 4.9.7 and not 5.x: then it is as if there were none"
    ),
    "fsync_directory staging._make_missing:8 *": (
        "tells after one kill only: MQLOG_AGAIN=new-store:0:1:again/175:0"
    ),
    "fsync staging.make*": "the NONCE is read by tasks that run, not after a crash",
    "fsync_directory apply.remove_abort*": "an abort of ours that comes back is removed again",
    "fsync_directory intent.remove*": "that an intent is over is told by the ledger as well",
}


NOTICED = [step for step in mutations.STEPS if step not in JUSTIFIED]


def test_the_index_is_durable_before_abort_in_a_commit_and_in_its_recovery(tmp_path: Path) -> None:
    assert settled.unsettled(tmp_path / "whole") == ""
    recording = play.record(work(BY_NAME["everything"], 0), tmp_path / "places")
    passed = [p for p in recording.places if fnmatch(p, "*Application.settle_index* < commit*")]
    assert len(passed) == 2, "of the IndexFile and of the checkpoint"
    for number, place in enumerate(passed):
        with forgetting(place):
            assert settled.unsettled(tmp_path / f"{number}"), place


@pytest.mark.soak
@pytest.mark.parametrize("name", soak.sample(NOTICED, check=1, test=8))
def test_a_commit_without_this_step_is_noticed(tmp_path: Path, name: str) -> None:
    noticed = mutations.is_noticed(name, mutations.STEPS[name], tmp_path, states=STATES)
    assert noticed, name


@soak.only
def test_every_guard_that_is_taken_away_is_noticed_or_known_to_be_a_second_one(
    tmp_path: Path,
) -> None:
    noticed, survived = {}, []
    for number, (name, mutation) in enumerate(mutations.all_of(tmp_path / "all").items()):
        what = mutations.is_noticed(name, mutation, tmp_path / f"{number}", states=STATES)
        soak.tell(f"{'noticed ' if what else 'SURVIVED'} {name}\n    {what[:200]}")
        if what:
            noticed[name] = what
        else:
            survived.append(name)
    unknown = [name for name in survived if not any(fnmatch(name, p) for p in JUSTIFIED)]
    soak.tell(f"{len(noticed)} noticed, {len(survived)} not, {len(unknown)} of them unknown")
    assert not unknown
