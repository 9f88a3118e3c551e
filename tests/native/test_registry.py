"""Which kernels are used is one decision, and what it was is told."""

import ctypes
import logging
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mqstore.codec import decode, schema
from mqstore.errors import InvalidOptionError
from mqstore.native import compiling, declarations, frames, registry
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from support import kernels, soak

ROOT = Path(__file__).parents[2]
STRUCTURES = ["Decoding", "Slices", "Piece", "Encoding", "WantedNames"]
STRUCTURES += ["UnitRows", "NamedQueue"]
COMPILER = compiling.local_compiler() or []
needs_compiler = pytest.mark.skipif(not COMPILER, reason="there is no C compiler")


@pytest.fixture
def fresh() -> Iterator[None]:
    """Let the library be looked for again, before and after."""
    registry._load.cache_clear()
    registry._say_once.cache_clear()
    yield
    registry._load.cache_clear()
    registry._say_once.cache_clear()


@kernels.needs_compiled()
def test_the_compiled_kernels_are_used_where_they_are() -> None:
    for kind in ("", "c", " C "):
        with kernels.using(kind):
            assert registry.kernels_in_use().kind == "c"
            assert registry.kernel("mq_decode") is not None
            assert "compiled" in str(registry.kernels_in_use())


def test_numpy_is_used_where_it_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with kernels.using("numpy"):
        assert registry.kernel("mq_decode") is None
        assert str(registry.kernels_in_use()) == "numpy (MQSTORE_KERNELS=numpy)"
    assert not caplog.records


def test_another_kind_is_refused_by_name() -> None:
    with kernels.using("rust"), pytest.raises(InvalidOptionError, match=r"rust.*c, numpy"):
        registry.kernels_in_use()


@pytest.mark.usefixtures("fresh")
def test_without_a_compiled_file_numpy_stands_in_and_that_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    with kernels.using(""), caplog.at_level(logging.WARNING):
        assert registry.kernel("mq_decode") is None
        assert registry.kernel("mq_decode") is None
        assert registry.kernels_in_use().kind == "numpy"
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("numpy stands in for the compiled kernels, which are faster")
    assert said.endswith(f"{tmp_path / compiling.LIBRARY_NAME} is not there")
    with kernels.using("c"), pytest.raises(InvalidOptionError, match="unset it to use numpy"):
        registry.kernel("mq_decode")


@pytest.mark.usefixtures("fresh")
def test_a_file_that_is_no_library_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    (tmp_path / compiling.LIBRARY_NAME).write_bytes(b"\x7fELF and no more")
    with kernels.using(""):
        used = registry.kernels_in_use()
    assert used.kind == "numpy"
    assert "cannot be loaded" in used.reason


@kernels.needs_compiled()
@pytest.mark.usefixtures("fresh")
def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "digest", lambda: "0" * 64)
    with kernels.using(""):
        assert "compiled from other sources" in registry.kernels_in_use().reason


@needs_compiler
def test_every_structure_is_as_large_in_python_as_in_c(tmp_path: Path) -> None:
    source, library = tmp_path / "sizes.c", tmp_path / "sizes.so"
    sizes = ", ".join(f"sizeof({name})" for name in STRUCTURES)
    source.write_text(f'#include "{compiling.FOLDER}/kernels.c"\nint64_t sizes[] = {{{sizes}}};\n')
    compiling.write_made_header(tmp_path)
    command = [*COMPILER, "-fPIC", "-shared", f"-I{tmp_path}", str(source), "-o", str(library)]
    subprocess.run(command, check=True, timeout=300)
    found = (ctypes.c_int64 * len(STRUCTURES)).in_dll(ctypes.CDLL(str(library)), "sizes")
    here = [ctypes.sizeof(declarations.structure(name)) for name in STRUCTURES]
    assert list(found) == here


def test_every_function_of_the_headers_is_declared() -> None:
    declared = declarations.functions()
    whole = "".join(text for _, text in compiling.sources())
    assert set(declared) == set(re.findall(r"^\S.*?(mq_\w+)\(", whole, re.MULTILINE))
    assert declared["mq_sources"] == (ctypes.c_char_p, [])
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    assert declared["mq_follow"][1] == [pointer, number, pointer, pointer, number, pointer]


@kernels.needs_compiled()
def test_a_kernel_can_be_left_out_alone() -> None:
    record = np.zeros(0, np.uint8)
    with kernels.using("c"):
        assert frames.follow(record) is not None
        with registry.without("mq_follow"):
            assert frames.follow(record) is None
            assert registry.kernel("mq_broken") is not None
        assert frames.follow(record) is not None


def test_a_column_that_the_kernel_does_not_know_is_made_by_numpy(
    monkeypatch: pytest.MonkeyPatch, golden_550: Path
) -> None:
    """A column that somebody adds to the schema and to decode.py, without a row for the kernel."""
    own = schema.Column("bodyLength", pa.int64(), False, "full", "bytes of the stored body")
    monkeypatch.setitem(schema.BY_NAME, "bodyLength", own)
    lengths = lambda records: pa.array(records.headers.body_lengths)  # noqa: E731
    monkeypatch.setitem(decode.COLUMN_OF, "bodyLength", lengths)
    settings = ScanSettings(("body", "bodyLength", "compression"))
    table = pa.Table.from_batches(scan(slices_of(take(golden_550)), settings))
    plain = table.filter(pc.is_null(table["compression"]))
    assert plain.num_rows
    assert plain["bodyLength"].to_pylist() == pc.binary_length(plain["body"]).to_pylist()


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
        "from mqstore.native.registry import kernels_in_use\n"
        "from mqstore.read.directory import take\n"
        "from mqstore.read.scan import scan\n"
        "from mqstore.read.settings import ScanSettings\n"
        "from mqstore.read.source import slices_of\n"
        "slices, settings = slices_of(take(sys.argv[2])), ScanSettings(('queueOffset',))\n"
        "for _ in range(2): rows = sum(b.num_rows for b in scan(slices, settings))\n"
        "print(rows, kernels_in_use())\n"
    )
    environment = {name: text for name, text in os.environ.items() if name != registry.VARIABLE}
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
