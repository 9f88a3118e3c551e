"""Compile the kernels. The build hook of an installation runs this file by its path.

It imports nothing but the standard library: where mqlog is built, nothing else is there. The
header of the record versions is made of their table in format/, which is run by its path too.
"""

import hashlib
import os
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
LIBRARY_NAME: Final = "kernels.native"  # No suffix that Python takes for a module of its own.
_MAIN: Final = "kernels.c"
_VERSIONS: Final = "record_versions.h"
_VERSION_TABLE: Final = FOLDER.parent / "format" / "record_versions.py"
_SECONDS: Final = 300
# No flag for one processor: the library asks the processor it runs on what it can do.
_COMPILER_FLAGS: Final = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-g0")
# zig adds checks for undefined behaviour of its own, which need a runtime that is not there, and
# compiles for the processor of this machine alone, unless it is told otherwise.
_ZIG: Final = ("-m", "ziglang", "cc", "-fno-sanitize=all", "-mcpu=baseline")
_SMALLEST: Final = "#include <stdint.h>\n#include <string.h>\nint32_t one(void) {return 1;}"
# The linker of macOS writes this name into the library: by default the path of a folder here.
_NAME_ON_MACOS: Final = f"-Wl,-install_name,@rpath/{LIBRARY_NAME}"


class CompileError(Exception):
    """The compiler is not there or refused; the message is the end of what it printed."""


def sources() -> list[tuple[str, str]]:
    """Return name and text of each source, also of the header that is made."""
    paths = sorted((*FOLDER.glob("*.c"), *FOLDER.glob("*.h")))
    return [
        (_VERSIONS, _versions()),
        *((path.name, path.read_text(encoding="utf-8")) for path in paths),
    ]


def digest() -> str:
    """Return a digest of the sources: what a library says it was compiled from."""
    whole = hashlib.sha256()
    for name, text in sources():
        whole.update(f"{name}\0{text}".encode())
    return whole.hexdigest()


def local_compiler() -> list[str] | None:
    """Return the command of a C compiler of this machine that can make a library, or None.

    ``CC`` comes first. A compiler without the headers or the linker it needs is none.
    """
    for command in (shlex.split(os.environ.get("CC", "")), ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]) and _works(command):
            return command
    return None


def zig_compiler(target: str = "") -> list[str]:
    """Return the command of the compiler in the wheel ``ziglang``, which need not be there.

    ``target`` is a platform as zig names it, as ``aarch64-linux-gnu.2.17``; by default this one.
    """
    command = [sys.executable, *_ZIG]
    if target:
        command += ["-target", target]
    if "macos" in target:
        command.append(_NAME_ON_MACOS)
    return command


def compile_library(
    compiler: Sequence[str], output: Path, *, flags: Sequence[str] = _COMPILER_FLAGS
) -> None:
    """Write the library to ``output``, at once. Raises CompileError."""
    defined = f'-DMQ_SOURCES="{digest()}"'
    try:
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=".kernels-") as folder:
            made = Path(folder) / output.name
            write_made_header(Path(folder))
            where = [f"-I{folder}", str(FOLDER / _MAIN), "-o", str(made)]
            _run([*compiler, *flags, defined, *where])
            made.replace(output)
    except OSError as error:
        raise CompileError(f"{output.parent} cannot be written: {error}") from error


def write_made_header(folder: Path) -> None:
    """Write the header that is made of the record versions into a folder for the compiler."""
    (folder / _VERSIONS).write_text(_versions(), encoding="utf-8")


def _versions() -> str:
    header: str = runpy.run_path(str(_VERSION_TABLE))["c_header"]()
    return header


def _works(compiler: Sequence[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text(_SMALLEST, encoding="utf-8")
        try:
            _run([*compiler, *_COMPILER_FLAGS, str(source), "-o", str(source.with_suffix(".so"))])
        except CompileError:
            return False
    return True


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(str(error)) from error
    if done.returncode:
        raise CompileError((done.stderr or done.stdout)[-2_000:].strip())
