"""What is compiled when mqlog is built, with what, and what its wheel is called."""

import ctypes
import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mqstore.native import compiling
from support import soak

ROOT = Path(__file__).parents[2]
TARGETS = [
    "x86_64-linux-gnu",
    "x86_64-linux-musl",
    "aarch64-linux-gnu",
    "aarch64-linux-musl",
    "x86_64-macos",
    "aarch64-macos",
]


class Interface:
    """BuildHookInterface, as much of it as the hook uses."""

    def __class_getitem__(cls, _: object) -> type:
        return cls

    def __init__(self) -> None:
        self.root = str(ROOT)
        self.warnings: list[str] = []
        self.app = SimpleNamespace(display_warning=self.warnings.append)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """hatch_build.py, without hatchling, which only a build has."""
    interface = ModuleType("interface")
    interface.BuildHookInterface = Interface  # type: ignore[attr-defined]
    parents = ["hatchling", "hatchling.builders", "hatchling.builders.hooks"]
    for name in [*parents, "hatchling.builders.hooks.plugin"]:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", interface)
    monkeypatch.delenv("MQSTORE_KERNELS", raising=False)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(hook: ModuleType) -> tuple[dict[str, Any], list[str]]:
    """Run the hook as a standard build does; return what it says of the wheel, and warns."""
    made = hook.CompiledKernels()
    data: dict[str, Any] = {"pure_python": True, "force_include": {}}
    made.initialize("standard", data)
    for path in data["force_include"]:
        library = ctypes.CDLL(path)
        library.mq_sources.restype = ctypes.c_char_p
        assert library.mq_sources().decode() == compiling.digest()
    made.finalize("standard", data, "")
    assert not any(map(Path.exists, map(Path, data["force_include"])))
    return data, made.warnings


needs_compiler = pytest.mark.skipif(
    compiling.local_compiler() is None, reason="there is no C compiler"
)


@soak.not_in_check
@needs_compiler
def test_a_wheel_carries_the_library_and_the_tag_of_its_platform(hook: ModuleType) -> None:
    data, warnings = build(hook)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert data["tag"] == f"py3-none-{platform}"
    assert data["pure_python"] is False
    (target,) = data["force_include"].values()
    assert target == f"mqstore/native/{compiling.LIBRARY_NAME}"
    assert warnings == []


@needs_compiler
def test_a_compiler_that_is_there_is_enough(hook: ModuleType) -> None:
    assert hook.CompiledKernels().dependencies() == []


def test_without_a_compiler_that_works_zigs_is_asked_for(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    assert hook.CompiledKernels().dependencies() == [hook.ZIG]
    monkeypatch.setattr(hook.platform, "machine", lambda: "riscv64")
    assert hook.CompiledKernels().dependencies() == []


def test_a_compiler_that_fails_leaves_a_wheel_of_python_alone(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    data, (warning,) = build(hook)
    assert data == {"pure_python": True, "force_include": {}}
    assert warning.startswith("no compiled kernels, numpy stands in: ")
    assert "\n" not in warning


def test_who_wants_numpy_gets_no_compiler_either(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQSTORE_KERNELS", "numpy")
    assert hook.CompiledKernels().dependencies() == []
    data, warnings = build(hook)
    assert data == {"pure_python": True, "force_include": {}}
    assert warnings == ["no compiled kernels, numpy stands in: MQSTORE_KERNELS=numpy"]


@needs_compiler
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    compiler = compiling.local_compiler()
    assert compiler
    with pytest.raises(compiling.CompileError, match="cannot be written"):
        compiling.compile_library(compiler, tmp_path / "missing" / "library")


@needs_compiler
def test_sources_that_do_not_compile_leave_what_was_there(tmp_path: Path) -> None:
    compiler = compiling.local_compiler()
    assert compiler
    output = tmp_path / "library"
    output.write_text("before")
    with pytest.raises(compiling.CompileError):
        compiling.compile_library(compiler, output, flags=("-DMQ_BYTES_H", "-shared"))
    assert [path.name for path in tmp_path.iterdir()] == ["library"]
    assert output.read_text() == "before"


@soak.not_in_check
@needs_compiler
def test_the_sources_compile_without_a_warning(tmp_path: Path) -> None:
    compiler = compiling.local_compiler()
    assert compiler
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Werror")
    flags = ("-std=gnu11", "-O2", "-fPIC", "-shared", *warnings)
    compiling.compile_library(compiler, tmp_path / "library", flags=flags)


@soak.only
@pytest.mark.parametrize("target", TARGETS)
def test_zig_compiles_for_each_platform(target: str, tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="the wheel ziglang is not installed")
    library = tmp_path / "library"
    compiling.compile_library([*compiling.zig_compiler(), "-target", target], library)
    magic = library.read_bytes()[:4]
    assert magic == (b"\xcf\xfa\xed\xfe" if "macos" in target else b"\x7fELF")
