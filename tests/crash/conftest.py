"""Folders in memory, RocketMQ's own store classes, and a store that they left."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.toolchain import VERSIONS as BROKER_VERSIONS
from broker.toolchain import Toolchain
from crash.rocketmq_jvm.store_jvm import VERSIONS, MakeRoot, StoreJvm
from support import soak
from support.memory import folder_in_memory

_ALL = soak.WHOLE or soak.AGAIN
"""Else 5.3.3 judges where it differs from 5.5.0 alone: such a test names all versions."""


@pytest.fixture(scope="session", params=VERSIONS if _ALL else BROKER_VERSIONS)
def jvm(
    request: pytest.FixtureRequest,
    toolchain: Toolchain,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[StoreJvm]:
    """The store classes of one version; pytest runs one version at a time."""
    home = tmp_path_factory.mktemp(f"jvm-{request.param}-")
    with StoreJvm(toolchain, request.param, home) as jvm:
        yield jvm


@pytest.fixture(scope="session")
def stopped(jvm: StoreJvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that a broker wrote and stopped: 10 messages of A/0, 5 of A/1. To be copied."""
    root = tmp_path_factory.mktemp(f"stopped-{jvm.version}-") / "store"
    served = jvm.open(root)
    served.load()
    served.start()
    for number in range(10):
        put = served.put("A", 0, f"hello {number}", f"a{number}")
    jvm.overhead = put.size - len("hello 0" + "A" + "a0")
    for number in range(5):
        served.put("A", 1, f"world {number}", f"b{number}")
    served.close()
    return root


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder in memory: thousands of stores are made there, and no test is about the disk.

    What a test that fails leaves is copied to the folder that pytest keeps.
    """
    failed = request.session.testsfailed
    with folder_in_memory(tmp_path) as folder:
        yield folder
        if request.session.testsfailed > failed and folder != tmp_path:
            shutil.copytree(folder, tmp_path / "kept", symlinks=True)


@pytest.fixture
def base(stopped: Path, tmp_path: Path) -> MakeRoot:
    """Make another copy of the stopped broker's store."""
    made = 0

    def make() -> Path:
        nonlocal made
        made += 1
        return Path(shutil.copytree(stopped, tmp_path / f"base-{made}"))

    return make
