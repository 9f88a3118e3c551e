"""What a worker lacks that the driver has: a named error with the host, never a row that is wrong.

A standalone cluster of Spark with one worker, whose view of the disks is its own: see standalone.
"""

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mqlog
from read.test_witness import FIRST_MS, messages
from support import soak
from support.stores import Laid, Layout, lay_out
from workers.standalone import Driver, Worker, cluster

pytestmark = pytest.mark.spark
LAYOUT = Layout(commit_log_bytes=16384, queue_units=64)
COUNT = 30


class Scene:
    """A store that driver and worker see, and the two."""

    def __init__(self, folder: Path, driver: Driver, worker: Worker) -> None:
        self.folder, self.driver, self.worker = folder, driver, worker
        self.laid: Laid = lay_out(folder / "store", messages(COUNT), LAYOUT)

    def read(self, act: str = "read") -> dict[str, Any]:
        """Read the store by the source, or by another act of the driver."""
        return self.driver.ask(act, place=str(self.laid.root), options={})

    def write(self, place: Path, **options: str) -> dict[str, Any]:
        """Write ten rows by the source."""
        return self.driver.ask("write", place=str(place), rows=10, options=options)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    allowed = subprocess.run(
        ["unshare", "--mount", "--uts", "--propagation", "private", "true"],
        check=False,
        capture_output=True,
    )
    if allowed.returncode:
        pytest.skip("needs the right to make namespaces")
    folder = tmp_path_factory.mktemp("workers")
    with cluster(folder) as (driver, (worker,)):
        made = Scene(folder, driver, worker)
        assert len(made.read()["rows"]) == COUNT
        yield made


def named(answer: dict[str, Any], scene: Scene, condition: str) -> str:
    """Return the error of an answer, which has the condition, the host, and no traceback."""
    error: str = answer.get("error", "")
    assert f"[{condition}" in error, answer
    assert f"on host {scene.worker.name}" in error, answer
    assert "Traceback" not in error
    return error


@pytest.mark.parametrize("act", ["read", "function"])
def test_a_store_that_the_worker_does_not_see_is_named_with_the_host(
    scene: Scene, act: str
) -> None:
    scene.worker.hide(scene.laid.root)
    error = named(scene.read(act), scene, "MQLOG_STORE_NOT_FOUND")
    scene.worker.uncover(scene.laid.root)
    assert str(scene.laid.root) in error
    assert len(scene.read(act)["rows"]) == COUNT


@pytest.mark.parametrize("act", ["read", "function"])
def test_another_store_under_the_path_gives_no_rows(scene: Scene, act: str) -> None:
    other = lay_out(scene.folder / f"other-{act}", messages(COUNT, FIRST_MS + 10**9), LAYOUT)
    scene.worker.put_over(other.root, scene.laid.root)
    named(scene.read(act), scene, "MQLOG_STORE_NOT_SHARED")
    scene.worker.uncover(scene.laid.root)


@soak.only
def test_a_copy_that_is_whole_gives_the_same_rows(scene: Scene) -> None:
    right = scene.read()["rows"]
    copy = scene.folder / "copy"
    shutil.copytree(scene.laid.root, copy)
    scene.worker.put_over(copy, scene.laid.root)
    assert scene.read()["rows"] == right
    scene.worker.uncover(scene.laid.root)


def test_an_older_copy_gives_no_rows(scene: Scene) -> None:
    older = lay_out(scene.folder / "older", messages(COUNT - 5), LAYOUT)
    scene.worker.put_over(older.root, scene.laid.root)
    named(scene.read(), scene, "MQLOG_CORRUPT_STORE")
    scene.worker.uncover(scene.laid.root)


@pytest.mark.parametrize(
    ("part", "condition"),
    [
        ("commitlog", "MQLOG_STORE_NOT_SHARED"),
        pytest.param("consumequeue", "MQLOG_DATA_LOSS", marks=soak.only_whole),
    ],
)
def test_a_part_of_the_store_that_the_worker_lacks_is_named(
    scene: Scene, part: str, condition: str
) -> None:
    scene.worker.hide(scene.laid.root / part)
    named(scene.read(), scene, condition)
    scene.worker.uncover(scene.laid.root / part)


@soak.only
def test_a_file_that_the_worker_may_not_read_is_named(scene: Scene) -> None:
    scene.worker.put_over(Path("/proc/1/mem"), next((scene.laid.root / "commitlog").iterdir()))
    named(scene.read(), scene, "MQLOG_")
    scene.worker.uncover(next((scene.laid.root / "commitlog").iterdir()))


@pytest.mark.parametrize("act", ["read", "function", "write"])
def test_a_worker_with_another_version_is_named_with_both(scene: Scene, act: str) -> None:
    first_page = Path(mqlog.__file__).parents[1] / "mqstore/__init__.py"
    other = scene.folder / "__init__.py"
    text, version = first_page.read_text(encoding="utf-8"), mqlog.__version__
    other.write_text(text.replace(f'"{version}"', '"0.0.9"'), encoding="utf-8")
    assert '"0.0.9"' in other.read_text(encoding="utf-8")
    laid = lay_out(scene.folder / f"version-{act}", messages(COUNT), LAYOUT)
    scene.worker.put_over(other, first_page)
    answer = scene.write(laid.root) if act == "write" else scene.read(act)
    scene.worker.uncover(first_page)
    error = named(answer, scene, "MQLOG_VERSION_MISMATCH")
    assert f"the driver has mqlog {version}, and this host has 0.0.9" in error
    assert mqlog.open(laid.root).scan().count() == COUNT


@soak.only
def test_a_native_library_that_the_worker_lacks_changes_no_row(scene: Scene) -> None:
    native = Path(mqlog.__file__).parents[1] / "mqstore/native"
    right = scene.read()["rows"]
    for library in native.glob("*.native"):
        scene.worker.put_over(Path("/dev/null"), library)
    assert scene.read()["rows"] == right
    for library in native.glob("*.native"):
        scene.worker.uncover(library)


def test_a_write_to_a_store_that_the_worker_does_not_see_adds_nothing(scene: Scene) -> None:
    laid = lay_out(scene.folder / "written", messages(COUNT), LAYOUT)
    before = mqlog.open(laid.root).scan().count()
    scene.worker.hide(laid.root)
    named(scene.write(laid.root), scene, "MQLOG_STAGING_NOT_SHARED")
    scene.worker.uncover(laid.root)
    assert mqlog.open(laid.root).scan().count() == before
    assert scene.write(laid.root)["rows"] == 10
    assert mqlog.open(laid.root).scan().count() == before + 10


def test_a_staging_directory_that_the_worker_cannot_write_adds_nothing(scene: Scene) -> None:
    laid = lay_out(scene.folder / "staged", messages(COUNT), LAYOUT)
    staging = scene.folder / "staging"
    staging.mkdir()
    scene.worker.mount("-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", staging)
    named(scene.write(laid.root, stagingDir=str(staging)), scene, "MQLOG_")
    scene.worker.uncover(staging)
    assert mqlog.open(laid.root).scan().count() == COUNT


def test_a_full_disk_of_the_worker_is_named_and_adds_nothing(scene: Scene) -> None:
    laid = lay_out(scene.folder / "full", messages(COUNT), LAYOUT)
    staging = scene.folder / "small"
    staging.mkdir()
    scene.worker.hide(staging)  # 1 MiB
    answer = scene.driver.ask(
        "write", place=str(laid.root), rows=200_000, options={"stagingDir": str(staging)}
    )
    named(answer, scene, "MQLOG_")
    scene.worker.uncover(staging)
    assert mqlog.open(laid.root).scan().count() == COUNT


@pytest.mark.parametrize(
    "table", ["files", *(pytest.param(name, marks=soak.only_whole) for name in ("queues", "tags"))]
)
def test_a_table_whose_tasks_see_no_store_or_another_one_is_named(scene: Scene, table: str) -> None:
    other = lay_out(scene.folder / f"other-{table}", messages(COUNT, FIRST_MS + 10**9), LAYOUT)
    for cover in (scene.worker.hide, partial(scene.worker.put_over, other.root)):
        cover(scene.laid.root)
        answer = scene.driver.ask("table", place=str(scene.laid.root), table=table, options={})
        scene.worker.uncover(scene.laid.root)
        named(answer, scene, "MQLOG_STORE_NOT_SHARED")
