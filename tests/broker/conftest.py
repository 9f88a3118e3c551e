"""Real brokers for tests: skipped in one line without Maven or a JDK, never skipped in CI."""

import os
from collections.abc import Generator, Iterator

import pytest

from broker.harness import Cluster
from broker.toolchain import VERSIONS, Toolchain

MISSING = "needs Maven (mvn) and a JDK (java, javac) on PATH to run real RocketMQ brokers"


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    found = Toolchain.find()
    if found is None:
        pytest.skip(MISSING)
    return found


@pytest.fixture(scope="session", params=VERSIONS)
def cluster(
    request: pytest.FixtureRequest, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A name server and official clients of one version; pytest runs one version at a time."""
    version = request.param
    with Cluster(toolchain, version, tmp_path_factory.mktemp(f"rocketmq-{version}-")) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    must_run = "CI" in os.environ and Toolchain.find() is not None
    if must_run and report.skipped and item.get_closest_marker("broker"):
        report.outcome = "failed"
        report.longrepr = "CI has Maven and a JDK, so a broker test may not be skipped"
    return report
