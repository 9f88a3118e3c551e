"""What a wheel must be, so that it runs on all machines that its tag names.

The rules of PEP 600 and PEP 656 for Linux, as auditwheel has them, and the same for macOS. The
library is called by ctypes and no extension of Python, so it may need no symbol of Python, which
is what abi3audit looks for.
"""

import io
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection
from macholib.mach_o import (
    LC_BUILD_VERSION,
    LC_CODE_SIGNATURE,
    LC_ID_DYLIB,
    LC_LOAD_DYLIB,
    LC_RPATH,
    LC_VERSION_MIN_MACOSX,
)
from macholib.MachO import MachO

LIBRARY = "mqstore/native/kernels.native"
PACKAGES = {"mqstore", "pyspark_mqlog", "mqlog_jobs", "mqlog"}
OF_SDIST = ("pyproject.toml", "hatch_build.py", "LICENSE", "README.md", "CHANGELOG.md")
# Architectures: the tag's word, ELF's, and Mach-O's number.
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
MACHO_MACHINES = {"x86_64": 0x01000007, "arm64": 0x0100000C}
SYSTEM_OF_MACOS = b"/usr/lib/libSystem.B.dylib"
# A name of a library may be this; a path of a machine that built it may not be in the file.
PATHS = re.compile(rb"/(?:home|root|tmp|Users|build|work|opt)/[\w./-]+")
LARGEST = 4_000_000


def problems(wheel: Path) -> list[str]:
    """Return in a line each what is wrong with a wheel; nothing if it is well."""
    platform = wheel.stem.split("-", 4)[4]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        found = list(_of_contents(archive, names, platform))
        if LIBRARY in names:
            found += _of_library(archive.read(LIBRARY), platform)
    if wheel.stat().st_size > LARGEST:
        found.append(f"has more than {LARGEST:,} bytes")
    return found


def sdist_problems(sdist: Path) -> list[str]:
    """Return what is wrong with an sdist: what a build needs and it does not have."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive}
    c_sources = {name for name in names if re.search(r"mqstore/native/\w+\.[ch]$", name)}
    missing = [f"has no {name}" for name in OF_SDIST if name not in names]
    if len(c_sources) < len({"kernels.c", "bytes.h"}):
        missing.append("has no C sources")
    return missing + [f"has {name}, which was compiled" for name in names if name.endswith(LIBRARY)]


def _of_contents(archive: zipfile.ZipFile, names: list[str], platform: str) -> Iterator[str]:
    tops = {name.partition("/")[0] for name in names}
    (info,) = (top for top in tops if top.endswith(".dist-info"))
    if not tops <= PACKAGES | {info}:
        yield f"has more than our packages: {', '.join(sorted(tops - PACKAGES - {info}))}"
    text = archive.read(f"{info}/WHEEL").decode()
    tags = set(re.findall(r"^Tag: py3-none-(\S+)$", text, re.MULTILINE))
    if tags != set(platform.split(".")):
        yield f"is tagged {', '.join(sorted(tags))} inside"
    if ("Root-Is-Purelib: true" in text) != (platform == "any"):
        yield "does not say rightly whether it is of Python alone"
    if (LIBRARY in names) != (platform != "any"):
        yield "has compiled kernels" if platform == "any" else "has no compiled kernels"
    other = [
        name
        for name in names
        if name != LIBRARY and re.search(r"\.(so|dylib|pyd|dll|a|o|pyc)(\.|$)", name)
    ]
    if other:
        yield f"has {', '.join(other)}"


def _of_library(data: bytes, platform: str) -> Iterator[str]:
    for path in sorted(set(PATHS.findall(data))):
        yield f"names a path of the machine that built it: {path.decode()}"
    try:
        if platform.startswith("macosx"):
            yield from _of_macos(data, platform)
        else:
            yield from _of_linux(ELFFile(io.BytesIO(data)), platform)
    except (ELFError, ValueError) as error:
        yield f"has a library of another kind of system: {error}"


def _of_linux(elf: ELFFile, platform: str) -> Iterator[str]:
    machine = next((m for m in MACHINES if platform.endswith(m)), "")
    if elf["e_machine"] != MACHINES.get(machine):
        yield f"has a library for {elf['e_machine']}"
    is_musl = platform.startswith("musllinux")
    libc = "libc.so" if is_musl else "libc.so.6"
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            yield from _of_dynamic(section, libc)
        elif isinstance(section, GNUVerNeedSection):
            yield from _of_versions(section, None if is_musl else _glibc(platform))
        elif isinstance(section, SymbolTableSection):
            yield from _of_symbols(section)


def _of_dynamic(section: DynamicSection, libc: str) -> Iterator[str]:
    for tag in section.iter_tags():
        if tag.entry.d_tag == "DT_NEEDED" and tag.needed != libc:
            yield f"needs {tag.needed}"
        elif tag.entry.d_tag in {"DT_RPATH", "DT_RUNPATH"}:
            yield "has a path of libraries"


def _of_versions(section: GNUVerNeedSection, glibc: tuple[int, ...] | None) -> Iterator[str]:
    for _, versions in section.iter_versions():
        for version in versions:
            numbers = re.fullmatch(r"GLIBC_([\d.]+)", version.name)
            if glibc is None or numbers is None or _numbers(numbers[1]) > glibc:
                yield f"needs {version.name}"


def _of_symbols(section: SymbolTableSection) -> Iterator[str]:
    for symbol in section.iter_symbols():
        if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name.startswith(("Py", "_Py")):
            yield f"needs {symbol.name} of Python"


def _glibc(platform: str) -> tuple[int, ...]:
    """Return the version of PEP 600's ``manylinux_2_17_x86_64``; none is allowed of other tags."""
    found = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    return (int(found[1]), int(found[2])) if found else ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _of_macos(data: bytes, platform: str) -> Iterator[str]:
    major, minor, machine = re.fullmatch(r"macosx_(\d+)_(\d+)_(\w+)", platform).groups()  # type: ignore[union-attr]
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        image = MachO(file.name)
    for header in image.headers:
        if header.header.cputype != MACHO_MACHINES[machine]:
            yield f"has a library for the machine {header.header.cputype:#x}"
        kinds = [command[0].cmd for command in header.commands]
        if machine == "arm64" and LC_CODE_SIGNATURE not in kinds:
            yield "has a library without a signature, which macOS does not load"
        for load, command, text in header.commands:
            if load.cmd == LC_RPATH:
                yield "has a path of libraries"
            elif load.cmd == LC_LOAD_DYLIB and text.rstrip(b"\0") != SYSTEM_OF_MACOS:
                yield f"needs {text.rstrip(bytes(1)).decode()}"
            elif load.cmd == LC_ID_DYLIB and text.startswith(b"/"):
                yield f"is called {text.rstrip(bytes(1)).decode()}"
            elif load.cmd in {LC_BUILD_VERSION, LC_VERSION_MIN_MACOSX}:
                lowest = command.minos if load.cmd == LC_BUILD_VERSION else command.version
                if (lowest >> 16, lowest >> 8 & 255) > (int(major), int(minor)):
                    yield f"needs macOS {lowest >> 16}.{lowest >> 8 & 255}"
