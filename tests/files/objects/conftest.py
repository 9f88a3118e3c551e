"""One S3 server for all tests of a process, and the golden stores in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import s3_server
from support.s3_server import S3Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server.running(tmp_path_factory.mktemp("s3") / "requests") as found:
        yield found


@pytest.fixture(scope="session")
def uploaded(golden: tuple[str, Path], server: S3Server) -> tuple[Path, str]:
    """Each golden store in turn: its directory, and the address of its copy."""
    version, root = golden
    return root, server.upload(root, f"{version}/store")
