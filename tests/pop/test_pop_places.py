"""POP groups of a point of a repository, an object store and a log alone: as of the directory."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqstore.copy.take_point import take_point
from mqstore.files.points.backing import LocalBacking
from pop.test_histories_in_bytes import GROUP, RETRY, TOPIC, Writer
from support import planned, s3_server
from support.stores import Layout, lay_out

HOUR_MS = 3_600_000
OF_TIME = {"asOf", "lagMs"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten messages: of the popped 0 to 6, 0, 2 and 4 are acknowledged, 5 is put off for an hour,
    and 1, 3 and 6 were copied to the retry topic, where the first is popped again.
    """
    writer = Writer(now=int(time.time() * 1000) - 600_000)
    for number in range(10):
        writer.send(TOPIC, 0, f"key-{number}")
    writer.pop(TOPIC, 0, 7, 60_000)
    (popped,) = writer.pops
    for place in (0, 2, 4):
        writer.ack(popped, place)
    writer.change(popped, 5, HOUR_MS)
    writer.now += 90_000
    writer.deliver()
    writer.copy()
    writer.pop(RETRY, 0, 1, HOUR_MS)
    writer.flush()
    root = tmp_path_factory.mktemp("pop") / "broker-a" / "store"
    layout = Layout(commit_log_bytes=1 << 16, group_offsets=writer.flushed)
    lay_out(root, writer.log, layout)
    return root


@pytest.fixture(scope="module")
def point(root: Path) -> str:
    repository = root.parents[1] / "kept"
    take_point(root, LocalBacking(str(repository)))
    return f"{repository}@latest"


@pytest.fixture(scope="module")
def bucket(root: Path) -> Iterator[tuple[str, dict[str, str]]]:
    with s3_server.running(root.parents[1] / "requests") as server:
        yield server.upload(root, "broker-a/store"), dict(server.options)


def found(path: str, table: str, **options: str) -> list[dict[str, Any]]:
    """The rows of the group, in order, without what depends on the moment of the read."""
    rows = planned.rows(path, table=table, groups=GROUP, **options)
    kept = ({k: v for k, v in row.items() if k not in OF_TIME} for row in rows)
    return sorted(kept, key=lambda row: (row["topic"], row.get("queueOffset", 0)))


def test_the_directory_has_what_the_history_left(root: Path) -> None:
    counts = {
        row["topic"]: (row["mode"], row["ready"], row["inflight"], row["due"], row["lag"])
        for row in found(str(root), "backlog")
    }
    assert counts == {TOPIC: ("POP", 3, 1, 0, 4), RETRY: ("POP", 2, 1, 0, 3)}
    places = [(row["topic"], row["queueOffset"]) for row in found(str(root), "unacknowledged")]
    assert places == [
        (RETRY, 0),
        (RETRY, 1),
        (RETRY, 2),
        (TOPIC, 5),
        (TOPIC, 7),
        (TOPIC, 8),
        (TOPIC, 9),
    ]


@pytest.mark.parametrize("table", ["backlog", "unacknowledged"])
def test_a_point_of_its_repository_has_the_same_rows(root: Path, point: str, table: str) -> None:
    assert found(point, table) == found(str(root), table)


@pytest.mark.parametrize("table", ["backlog", "unacknowledged"])
def test_an_object_store_has_the_same_rows(
    root: Path, bucket: tuple[str, dict[str, str]], table: str
) -> None:
    address, options = bucket
    assert found(address, table, **options) == found(str(root), table)


@pytest.mark.parametrize("table", ["backlog", "unacknowledged"])
def test_the_log_alone_has_the_same_rows(root: Path, table: str) -> None:
    assert found(str(root), table, queues="log") == found(str(root), table)
