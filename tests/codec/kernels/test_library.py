"""Which kernels are used is one decision, and what it was is told."""

import ctypes
import logging
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.codec.kernels import abi, compiling, library
from mqstore.errors import InvalidOptionError
from support import kernels, soak

ROOT = Path(__file__).parents[3]


@pytest.fixture
def fresh() -> Iterator[None]:
    """Let the library be looked for again, before and after."""
    library._load.cache_clear()
    library._say_once.cache_clear()
    yield
    library._load.cache_clear()
    library._say_once.cache_clear()


@kernels.needs_compiled()
def test_the_compiled_kernels_are_used_where_they_are() -> None:
    for kind in ("", "c", " C "):
        with kernels.using(kind):
            assert library.kernels_in_use().kind == "c"
            assert library.library() is not None
            assert "compiled" in str(library.kernels_in_use())


def test_numpy_is_used_where_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with kernels.using("numpy"):
        assert library.library() is None
        assert str(library.kernels_in_use()) == "numpy (MQSTORE_KERNELS=numpy)"
    assert not caplog.records


def test_another_kind_is_refused_by_name() -> None:
    with kernels.using("rust"), pytest.raises(InvalidOptionError, match=r"rust.*c, numpy"):
        library.kernels_in_use()


@pytest.mark.usefixtures("fresh")
def test_without_a_compiled_file_numpy_stands_in_and_that_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    with kernels.using(""), caplog.at_level(logging.WARNING):
        assert library.library() is None
        assert library.library() is None
        assert library.kernels_in_use().kind == "numpy"
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("numpy stands in for the compiled kernels, which are faster")
    assert said.endswith(f"{tmp_path / compiling.LIBRARY_NAME} is not there")
    with kernels.using("c"), pytest.raises(InvalidOptionError, match="unset it to use numpy"):
        library.library()


@pytest.mark.usefixtures("fresh")
def test_a_file_that_is_no_library_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    (tmp_path / compiling.LIBRARY_NAME).write_bytes(b"\x7fELF and no more")
    with kernels.using(""):
        used = library.kernels_in_use()
    assert used.kind == "numpy"
    assert "cannot be loaded" in used.reason


@kernels.needs_compiled()
@pytest.mark.usefixtures("fresh")
def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "digest", lambda: "0" * 64)
    with kernels.using(""):
        assert "compiled from other sources" in library.kernels_in_use().reason


@kernels.needs_compiled()
def test_every_structure_is_as_large_here_as_there(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ctypes.CDLL(str(compiling.FOLDER / compiling.LIBRARY_NAME))
    assert abi.declare(found)
    longer = type(
        "Longer", (ctypes.Structure,), {"_fields_": (*abi.Slices._fields_, ("x", abi._I))}
    )
    monkeypatch.setattr(abi, "_STRUCTURES", (abi.Decoding, longer))
    assert not abi.declare(found)


@soak.not_in_check
def test_run_from_an_archive_mqstore_reads_with_numpy_and_says_so(
    tmp_path: Path, golden_550: Path
) -> None:
    archive = tmp_path / "mqstore.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in (ROOT / "store").rglob("*.py"):
            packed.write(path, path.relative_to(ROOT / "store"))
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import logging; logging.basicConfig()\n"
        "import mqstore; assert mqstore.__file__.startswith(sys.argv[1])\n"
        "from mqstore.codec.kernels.library import kernels_in_use\n"
        "from mqstore.read.directory import take\n"
        "from mqstore.read.scan import scan\n"
        "from mqstore.read.settings import ScanSettings\n"
        "from mqstore.read.source import slices_of\n"
        "slices, settings = slices_of(take(sys.argv[2])), ScanSettings(('queueOffset',))\n"
        "for _ in range(2): rows = sum(b.num_rows for b in scan(slices, settings))\n"
        "print(rows, kernels_in_use())\n"
    )
    environment = {name: text for name, text in os.environ.items() if name != library.VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", program, str(archive), str(golden_550)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert "numpy (run from an archive" in done.stdout
    assert int(done.stdout.split()[0]) > 1_000
    assert done.stderr.count("numpy stands in") == 1
