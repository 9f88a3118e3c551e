"""Fixtures of all rooms: golden stores, stores made to measure, and the one Spark session.

A store that a test makes with `store`, or hands to `checked`, goes through mqstore.check when
the test ends: the suite tests the checker, the checker tests the suite.
"""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from mqlog_jobs.machine import java
from mqstore.check import check
from support import goldens, memory, soak
from support.oracle import Message
from support.stores import Laid, Layout, MakeStore, lay_out

pytest_plugins = ["support.cpu_time", "broker.fixtures"]
CONF = Path(__file__).parents[1] / "conf"

# Of every Spark that a test starts: no second compiler for a minute's work. Half the CPU time. The
# code of the first needs more than the 48 MB that it has alone, else it is swept and made again.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=128m",
)

_FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
_ANY = settings(deadline=None, suppress_health_check=_FIXTURES, print_blob=True)
# The same examples in every run: no verdict depends on chance. A whole run looks for new ones.
settings.register_profile(
    "mqlog",
    _ANY,
    max_examples=soak.size("examples", check=5, test=20, whole=500),
    derandomize=not soak.WHOLE,
)
settings.load_profile("mqlog")


def pytest_report_header() -> str:
    return soak.header()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave modules and tests out of every garbage collection: they stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """Without brokers, folders of tests are in memory: syncs of a disk were half of their time.

    A shell lets its background jobs ignore interrupts, and they their children: not those of tests.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "not broker" in config.option.markexpr and memory.has_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory.MEMORY))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make check` takes a sample of the cases of each test.

    No house rule is left out, and no case that is chosen by its name.
    """
    if unknown := soak.unknown_sizes():
        raise pytest.UsageError(f"MQLOG_SIZE: no test has a size {sorted(unknown)}")
    if not any("::" in name for name in config.args):
        left_out = soak.leave_out_cases([item for item in items if "style" not in item.path.parts])
        config.hook.pytest_deselected(items=left_out)
        names = {item.nodeid for item in left_out}
        items[:] = [item for item in items if item.nodeid not in names]


@pytest.fixture(scope="session", params=soak.sample(goldens.VERSIONS, check=1, test=2))
def golden(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """Each golden store in turn, in `make check` one of them: (version, store root)."""
    return request.param, request.getfixturevalue(f"golden_{request.param.replace('.', '')[:3]}")


@pytest.fixture(scope="session")
def golden_550(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root of the store that a 5.5.0 broker wrote. Read it; copy it before writing."""
    yield from _untouched(goldens.unpack("5.5.0", tmp_path_factory.mktemp("golden")))


@pytest.fixture(scope="session")
def golden_497(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root of the store that a 4.9.7 broker wrote. Read it; copy it before writing."""
    yield from _untouched(goldens.unpack("4.9.7", tmp_path_factory.mktemp("golden")))


def _untouched(root: Path) -> Iterator[Path]:
    before = goldens.digest(root)
    yield root
    assert goldens.digest(root) == before, "a test wrote to a golden store"


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder where this system has its temporary files, though tmp_path may be in memory."""
    with tempfile.TemporaryDirectory(prefix="mqlog-tests-") as folder:
        yield Path(folder)


@pytest.fixture
def checked() -> Iterator[Callable[[Path], Path]]:
    """Register a store root; mqstore.check must find no error in it when the test ends."""
    roots: list[Path] = []

    def register(root: Path) -> Path:
        roots.append(root)
        return root

    yield register
    for root in roots:
        assert [f for f in check(root) if f.severity == "error"] == []


@pytest.fixture
def store(tmp_path: Path, checked: Callable[[Path], Path]) -> MakeStore:
    """Make stores that are whole and stay so: each is checked when the test ends."""
    made = 0

    def make(messages: Iterable[Message], layout: Layout | None = None) -> Laid:
        nonlocal made
        made += 1
        laid = lay_out(tmp_path / f"broker-{made}" / "store", messages, layout)
        checked(laid.root)
        return laid

    return make


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all: two cores, UTC, loopback, no UI, quiet."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    java.prepare()
    directory = tmp_path_factory.mktemp("spark")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("mqlog-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory))
        .config("spark.log.level", "ERROR")
    )
    session = builder.getOrCreate()
    yield session
    session.stop()
