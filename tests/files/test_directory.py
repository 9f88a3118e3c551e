"""Listing a directory: what is deleted meanwhile is left out, all else is there."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqstore.files.base.directory import Directory


@pytest.fixture
def churned(tmp_path: Path) -> Iterator[Path]:
    """A directory with the file ``kept``, and others that come and go all the time."""
    (tmp_path / "kept").write_bytes(b"12")
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            for number in range(20):
                (tmp_path / str(number)).touch()
            for number in range(20):
                (tmp_path / str(number)).unlink()

    thread = threading.Thread(target=churn)
    thread.start()
    yield tmp_path
    stop.set()
    thread.join()


@pytest.mark.parametrize(
    "listed",
    [
        lambda root: [(e.name, e.size) for e in root.entries()],
        lambda root: [(name, size) for name, _, size in root.survey()],
    ],
    ids=["entries", "survey"],
)
def test_a_file_that_goes_while_it_is_listed_takes_no_other_along(
    churned: Path, listed: Callable[[Directory], list[tuple[str, int]]]
) -> None:
    for _ in range(1500):
        assert ("kept", 2) in listed(Directory(str(churned)))
