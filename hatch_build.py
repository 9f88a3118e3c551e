"""Compile the C kernels into the wheel: with a compiler of this machine, else with zig's.

Where the compiler fails, or MQSTORE_KERNELS=numpy, mqlog is installed all the same and numpy does
the kernels' work: one line says so. What is compiled runs under any Python 3 of the platform, so
the wheel's tag is ``py3-none-PLATFORM``.

MQLOG_WHEEL=PLATFORM makes the wheel of another platform with zig's compiler, for a release; a
failure then fails the build. MQLOG_WHEEL=any makes the wheel of Python alone.
"""

import importlib.util
import os
import platform
import struct
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = "mqstore/native"
ZIG = "ziglang>=0.13"
ZIG_MACHINES = {"x86_64", "aarch64", "arm64"}
VARIABLE = "MQLOG_WHEEL"
PURE = "any"
TARGETS = {
    "manylinux_2_17_x86_64.manylinux2014_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64.manylinux2014_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
}
"""The platforms of a release, as wheels and as zig name them; the C library's version included."""


class CompiledKernels(BuildHookInterface[Any]):
    """What hatchling runs before it packs a wheel or an editable install."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Ask for the wheel with a compiler where the machine has none; for the build only."""
        if wanted() in TARGETS:
            return [ZIG]
        if why_not() or platform.machine() not in ZIG_MACHINES:
            return []
        return [] if self._compiling().local_compiler() else [ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable install gets the library into its source folder.

        Raises ValueError for a MQLOG_WHEEL that is no platform of a release, and CompileError
        where its library cannot be made.
        """
        if why_not():
            if wanted() != PURE:
                self._give_up(why_not())
            return
        compiling = self._compiling()
        editable = version == "editable"
        target = "" if editable else wanted()
        self._folder = tempfile.TemporaryDirectory(prefix="mqlog-kernels-")
        folder = compiling.FOLDER if editable else Path(self._folder.name)
        library = folder / compiling.LIBRARY_NAME
        try:
            compiler = compiling.local_compiler() if not target else None
            compiler = compiler or compiling.zig_compiler(TARGETS.get(target, ""))
            compiling.compile_library(compiler, library)
        except compiling.CompileError as error:
            if target:
                raise
            self._give_up(str(error).splitlines()[-1] if str(error) else "no reason was given")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{target or platform_tag()}"
        if not editable:
            build_data["force_include"][str(library)] = f"{KERNELS}/{library.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled outside the source folder."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _compiling(self) -> ModuleType:
        """Return compiling.py, which imports nothing of mqstore: that cannot be imported here."""
        path = Path(self.root) / "store" / KERNELS / "compiling.py"
        spec = importlib.util.spec_from_file_location("mqlog_compiling", path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def _give_up(self, reason: str) -> None:
        self.app.display_warning(f"no compiled kernels, numpy stands in: {reason}")


def wanted() -> str:
    """Return the platform that MQLOG_WHEEL names; empty for this one. Raises ValueError."""
    name = os.environ.get(VARIABLE, "")
    if name not in {"", PURE, *TARGETS}:
        raise ValueError(f"{VARIABLE}={name}: is none of {', '.join([PURE, *TARGETS])}")
    return name


def why_not() -> str:
    """Return why nothing is compiled here; empty if something is."""
    if wanted() == PURE:
        return f"{VARIABLE}={PURE}"
    if wanted() in TARGETS:
        return ""
    if os.environ.get("MQSTORE_KERNELS", "").lower() == "numpy":
        return "MQSTORE_KERNELS=numpy"
    is_posix = sys.platform in {"linux", "darwin"}
    if is_posix and sys.byteorder == "little" and struct.calcsize("P") == 8:
        return ""
    return f"they are not written for {sys.platform} {platform.machine()}"


def platform_tag() -> str:
    """Return the wheel tag of what a compiler of this machine makes for it."""
    name = sysconfig.get_platform()
    if sys.platform == "darwin":  # A Python of two architectures; the library is of one.
        name = f"{name.rpartition('-')[0]}-{platform.machine()}"
    return name.replace("-", "_").replace(".", "_")
