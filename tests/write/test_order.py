"""The order of a commit: what is looked at, and what is on the disk, before the next step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.files.base import durable
from mqstore.files.lock.store_lock import StoreHold
from mqstore.files.log.log_append import CommitLogAppender
from mqstore.files.txn import intent
from support.writing import SMALL, append, rows

Noted = Callable[[object, str, Callable[..., str]], None]


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def note(events: list[str], monkeypatch: pytest.MonkeyPatch) -> Noted:
    """Return a function that lets calls of a function be noted, by a name of their arguments."""

    def noted(owner: object, function: str, name: Callable[..., str]) -> None:
        real = getattr(owner, function)

        def called(*arguments: Any, **named: Any) -> Any:
            events.append(name(*arguments, **named))
            return real(*arguments, **named)

        monkeypatch.setattr(owner, function, called)

    return noted


def path_of(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())


def test_the_hold_is_checked_between_the_last_record_and_publication(
    tmp_path: Path, note: Noted, events: list[str]
) -> None:
    root = tmp_path / "s"
    append(root, rows(3), **SMALL)
    note(durable, "write_at", lambda fd, *_: f"write {Path(path_of(fd)).parent.name}")
    note(StoreHold, "check", lambda *_: "check")
    note(CommitLogAppender, "publish", lambda *_: "publish")
    append(root, rows(3), fsync="none")
    before = events[: events.index("publish")]
    last_record = max(n for n, event in enumerate(before) if event == "write commitlog")
    assert "check" in before[last_record:]


def test_the_last_index_file_is_durable_before_the_decision(
    tmp_path: Path, note: Noted, events: list[str]
) -> None:
    """A broker that finds ``abort`` keeps an IndexFile only up to the checkpoint's time."""
    root = tmp_path / "s"
    append(root, rows(3, keys="k"), **SMALL)
    (file,) = (root / "index").iterdir()
    note(durable, "fsync", path_of)
    note(intent, "store", lambda *_: "decision")
    append(root, rows(3, keys="k"), fsync="none")
    assert str(file) in events[: events.index("decision")]
