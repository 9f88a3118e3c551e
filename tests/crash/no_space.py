"""Commits on small file systems in memory, one size after another: what each ended in.

    python -m crash.no_space FOLDER SCENARIO FIRST LAST STEP    sizes in bytes beyond the store's

Prints one JSON line a size. A process of its own, as what is looked for is a signal that ends it.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from crash import play
from crash.disk import Passing, standing_in
from crash.invariants import difference, everything, is_decided
from crash.scenarios import BY_NAME, work
from mqstore.errors import NoSpaceError
from mqstore.write.errors import CommitInDoubtError

ROOMY_BYTES = 64 << 20
_TIMEOUT_S = 30


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """Mount a file system of that many bytes on a folder."""
    folder.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield
    finally:
        _run("umount", "--lazy", str(folder))  # A JVM of the tests may have a file of it open.


def grow(folder: Path) -> None:
    """Give it all the room that anybody could want."""
    _run("mount", "-o", f"remount,size={ROOMY_BYTES}", str(folder))


def make_sparse(root: Path) -> None:
    """Let the zeros of a store's files take no room: the next write to them may find none."""
    for path in root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            path.write_bytes(data.rstrip(b"\0"))
            with path.open("r+b") as file:
                file.truncate(len(data))


def main(folder: Path, scenario: str, first: int, last: int, step: int) -> None:
    what = work(BY_NAME[scenario], 0)
    recording = replace(play.record(what, folder / "run"), with_ids=False)
    template, disk = folder / "template", folder / "disk"
    with standing_in(Passing()):
        what.lay_out(template)
    make_sparse(template)
    taken = sum(4096 if path.is_dir() else _allocated(path) for path in template.rglob("*"))
    for more in range(first, last, step):
        with small_disk(disk, taken + more):
            root = disk / play.STORE
            shutil.copytree(template, root)
            make_sparse(root)
            before = everything(root)
            outcome = _outcome(recording, root)
            if outcome == "no space":
                assert not is_decided(root, recording.expected)
                left = {k: v for k, v in everything(root).items() if not k.startswith(".mqlog")}
                assert not difference(before, left)
            grow(disk)
            play.assert_store(recording, root, decided=outcome != "no space")
        print(json.dumps({"bytes": more, "outcome": outcome}), flush=True)  # noqa: T201


def _outcome(recording: play.Recording, root: Path) -> str:
    try:
        recording.work.run(root)
    except NoSpaceError:
        return "no space"
    except CommitInDoubtError:
        return "in doubt"
    return "done"


def _allocated(path: Path) -> int:
    return path.stat().st_blocks * 512


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
