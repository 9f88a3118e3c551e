"""Which files are durable before ``abort`` appears: what a power cut alone does not tell.

A broker that finds ``abort`` deletes an IndexFile that ends later than the checkpoint says. So a
commit, and a recovery that takes one up, first make the last IndexFile durable, also what others
wrote to it, and the checkpoint, if they replaced it.
"""

from pathlib import Path

from crash import play
from crash.disk import Disk, Names, Sync, Write
from crash.scenarios import BY_NAME, work
from mqstore.format.names import ABORT, CHECKPOINT, INDEX

_SCENARIO = "everything"


def unsettled(base: Path) -> str:
    """Return what is not durable before ``abort``, of a commit and of its recovery; or nothing."""
    recording = play.record(work(BY_NAME[_SCENARIO], 0), base / "run")
    found = _unsettled(recording.disk)
    if found:
        return f"commit: {found}"
    # The decision is there and abort is not: nothing of the commit is in the log.
    before = _appears(recording.disk)
    assert before is not None, "the scenario makes abort"
    followed = play.follow(play.nothing_yet(recording), f"{before}:-1", base / "run")
    found = _unsettled(followed.disk)
    return f"recovery: {found}" if found else ""


def _appears(disk: Disk) -> int | None:
    """Return the number of the operation that makes ``abort``."""
    return next(
        (n for n, op in enumerate(disk.ops) if n >= disk.since and _makes(op, ABORT)),
        None,
    )


def _makes(op: object, name: str) -> bool:
    return isinstance(op, Names) and any(
        entry == name and node is not None for _, entry, node in op.changes
    )


def _unsettled(disk: Disk) -> str:
    folders = {node: dict(names) for node, names in disk.start.folders.items()}
    until, synced, written = _appears(disk), set[int](), set[int]()
    assert until is not None, "abort is made"
    for op in disk.ops[:until]:
        if isinstance(op, Names):
            for folder, name, node in op.changes:
                folders.setdefault(folder, {})
                if node is None:
                    folders[folder].pop(name, None)
                else:
                    folders[folder][name] = node
        elif isinstance(op, Write):
            written.add(op.node)
        elif isinstance(op, Sync):
            synced.add(op.node)
            written.discard(op.node)
    store = folders[folders[0][play.STORE]]
    index = folders[store[INDEX]]
    last = index[max(index)]
    if last not in synced or last in written:
        return "the last IndexFile is not synced"
    return "the checkpoint is not synced" if store[CHECKPOINT] in written else ""
