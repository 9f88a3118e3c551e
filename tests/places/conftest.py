"""One place of each kind, with the same messages."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from places import kinds
from places.kinds import ALL_POINTS, KINDS, POINTS, STORES, AllPoints, Objects, Place, Point
from support import s3_server
from support.s3_server import S3Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server.running(tmp_path_factory.mktemp("s3") / "requests") as found:
        yield found


@pytest.fixture(params=KINDS)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """A place of each kind in turn."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "cluster":
        with kinds.running(tmp_path) as found:
            yield found
    elif request.param == "object store":
        yield Objects(request.getfixturevalue("server"), kinds.in_directory(tmp_path))
    elif request.param in POINTS:
        yield Point(tmp_path, POINTS[request.param](tmp_path))
    elif request.param == ALL_POINTS:
        yield AllPoints(tmp_path, kinds.in_directory(tmp_path))
    else:
        yield STORES[request.param](tmp_path)
