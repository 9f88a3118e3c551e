"""Real brokers for tests of all folders: skipped in one line without Maven or a JDK.

In CI they are never skipped. One name server and one set of clients of each version serve all.
"""

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
    folder = tmp_path_factory.mktemp(f"rocketmq-{version}-")
    with Cluster(toolchain, version, folder) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    missing = report.skipped and MISSING in str(report.longrepr)
    if not missing or not item.get_closest_marker("broker"):
        return report
    if "CI" in os.environ and Toolchain.find() is not None:
        report.outcome = "failed"
        report.longrepr = "CI has Maven and a JDK, so a broker test may not be skipped"
    elif isinstance(report.longrepr, tuple):
        # One place for all, so that pytest tells of them in one line.
        report.longrepr = (__file__, 1, report.longrepr[2])
    return report
