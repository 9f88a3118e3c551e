"""A wheel that would not run where its tag says is found; those of a release are what they say."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.native import compiling
from release import checks, wheels
from support import linked_python, soak

ROOT = Path(__file__).parents[2]
LINUX = "manylinux_2_17_x86_64.manylinux2014_x86_64"
ONE = "int one(void) { return 1; }"
CALL = "extern long {0}(); long two(void) {{ return {0}(0, 0, 0); }}"
BACKLOG = """
from mqstore.native.registry import kernels_in_use
from mqstore.native import registry
print(kernels_in_use().kind, registry.__file__, flush=True)
from mqlog_jobs.cli import main
main()
"""


def wheel(folder: Path, platform: str, *, library: bytes | None, tag: str = "") -> Path:
    """A wheel with nothing but what the checks look at."""
    path = folder / f"mqlog-1.0-py3-none-{platform}.whl"
    tags = "".join(f"Tag: py3-none-{one}\n" for one in (tag or platform).split("."))
    pure = str(platform == "any").lower()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mqlog-1.0.dist-info/WHEEL", f"Root-Is-Purelib: {pure}\n{tags}")
        archive.writestr("mqstore/__init__.py", "")
        if library is not None:
            archive.writestr(checks.LIBRARY, library)
    return path


def compiled(folder: Path, *flags: str, text: str = ONE) -> bytes:
    """A library of this machine, without what its name of a path would add."""
    source, made = folder / "one.c", folder / "one"
    source.write_text(text)
    compiler = compiling.local_compiler()
    assert compiler
    command = [*compiler, "-shared", "-fPIC", "-g0", *flags, str(source), "-o", str(made)]
    subprocess.run(command, check=True, timeout=60)
    return made.read_bytes()


on_x86_64_with_a_compiler = pytest.mark.skipif(
    compiling.local_compiler() is None or os.uname().machine != "x86_64",
    reason="needs a C compiler of x86_64",
)


def globs(line: str) -> list[str]:
    names = line.replace("$(uname -m)", "x86_64")
    return re.findall(r"dist/[^\s`]*\*[^\s`]*\.whl", names)


def test_the_lines_of_the_guide_name_one_wheel_each_behind_make_dist(tmp_path: Path) -> None:
    """And of spark-submit the pure one: a worker may be of another platform."""
    (tmp_path / "dist" / "here").mkdir(parents=True)
    for platform in wheels.platforms():
        (tmp_path / "dist" / f"mqlog-1.0-py3-none-{platform}.whl").touch()
    (tmp_path / "dist" / "here" / f"mqlog-1.0-py3-none-{LINUX}.whl").touch()
    pages = [ROOT / name for name in ("README.md", "connector/README.md", "jobs/README.md")]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    patterns = [(glob, line) for line in lines for glob in globs(line)]

    assert len(patterns) >= 4
    for pattern, line in patterns:
        (named,) = tmp_path.glob(pattern)
        assert ("zip" in line or "py-files" in line) == named.name.endswith("-any.whl"), line


def test_a_pure_wheel_is_well(tmp_path: Path) -> None:
    assert checks.problems(wheel(tmp_path, "any", library=None)) == []


@on_x86_64_with_a_compiler
def test_a_library_that_needs_an_old_glibc_alone_is_well(tmp_path: Path) -> None:
    assert checks.problems(wheel(tmp_path, LINUX, library=compiled(tmp_path))) == []


@pytest.mark.parametrize(
    ("platform", "library", "tag", "said"),
    [
        ("any", b"", "", "has compiled kernels"),
        (LINUX, None, "", "has no compiled kernels"),
        ("any", None, "linux_x86_64", "is tagged linux_x86_64 inside"),
        (LINUX, b"\xcf\xfa\xed\xfe" + bytes(99), "", "has a library of another kind of system"),
        ("macosx_11_0_arm64", b"\x7fELF" + bytes(99), "", "has a library of another kind"),
        (LINUX, b"/opt/src/kernels.c", "", "names a path of the machine that built it: /opt"),
    ],
)
def test_contents_that_the_name_does_not_promise_are_found(
    tmp_path: Path, platform: str, library: bytes | None, tag: str, said: str
) -> None:
    found = checks.problems(wheel(tmp_path, platform, library=library, tag=tag))
    assert any(problem.startswith(said) for problem in found), found


@on_x86_64_with_a_compiler
@pytest.mark.parametrize(
    ("platform", "flags", "text", "said"),
    [
        (LINUX.replace("x86_64", "aarch64"), (), "", "has a library for EM_X86_64"),
        ("musllinux_1_2_x86_64", ("-Wl,--no-as-needed", "-lc"), "", "needs libc.so.6"),
        (LINUX, ("-Wl,--no-as-needed", "-lm"), "", "needs libm.so.6"),
        (LINUX, ("-Wl,-rpath,/usr/local/lib",), "", "has a path of libraries"),
        (LINUX, (), CALL.format("PyLong_New"), "needs PyLong_New of Python"),
        ("manylinux_2_5_x86_64", ("-fno-builtin",), CALL.format("memcpy"), "needs GLIBC_2.14"),
    ],
)
def test_a_library_that_needs_more_than_its_tag_promises_is_found(
    tmp_path: Path, platform: str, flags: tuple[str, ...], text: str, said: str
) -> None:
    library = compiled(tmp_path, *flags, text=text or ONE)
    assert said in checks.problems(wheel(tmp_path, platform, library=library))


def test_the_platforms_are_those_of_the_build(tmp_path: Path) -> None:
    assert wheels.platforms()[:2] == ["any", LINUX]
    assert len(wheels.platforms()) == len({"any", "x86_64", "aarch64", "musl", "arm64", "mac"})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    pytest.importorskip("ziglang", reason="the extra dist is not installed: `make dist` does that")
    folder = tmp_path_factory.mktemp("dist")
    yield wheels.build(folder)
    shutil.rmtree(folder)


@soak.only
def test_every_wheel_of_a_release_is_what_it_says(made: list[Path]) -> None:
    found = {path.name: checks.problems(path) for path in made if path.suffix == ".whl"}
    assert set(map(tuple, found.values())) == {()}
    assert len(found) == len(wheels.platforms())
    (sdist,) = (path for path in made if path.suffix == ".gz")
    assert checks.sdist_problems(sdist) == []


@soak.only
def test_a_second_build_gives_the_same_bytes(made: list[Path], tmp_path: Path) -> None:
    again = wheels.build(tmp_path / "again")
    assert [path.name for path in again] == [path.name for path in made]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in made]


@soak.only
def test_auditwheel_says_the_same_of_the_wheels_for_glibc(made: list[Path]) -> None:
    for path in made:
        if "manylinux" in path.name:
            command = [sys.executable, "-m", "auditwheel", "show", str(path)]
            said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
            machine = path.stem.rpartition("manylinux2014_")[2]
            assert f'"manylinux_2_17_{machine}"' in said.stdout


@soak.only
@on_x86_64_with_a_compiler
def test_without_a_compiler_a_fresh_environment_has_compiled_kernels(
    made: list[Path], tmp_path: Path, golden_550: Path
) -> None:
    """pip itself chooses the wheel; home and PATH are empty."""
    python = linked_python.linked(tmp_path / "environment", *linked_python.SMALL)
    into = ["install", "--quiet", "--no-index", "--no-deps", "--find-links", str(made[0].parent)]
    pip = [sys.executable, "-m", "pip", "--python", str(python), *into, "mqlog"]
    subprocess.run(pip, check=True, timeout=120)
    bare = {"HOME": str(tmp_path / "nobody"), "PATH": str(tmp_path / "nothing")}
    command = [python, "-c", BACKLOG, "backlog", "--json", golden_550]
    done = subprocess.run(
        command, env=bare, capture_output=True, text=True, check=False, timeout=60
    )

    first, *rows = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert first.startswith(f"c {linked_python.packages(python)}")
    assert rows
