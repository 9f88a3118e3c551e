"""How the command ends when the system, and not the user, is what fails."""

import ctypes
import errno
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.command import Run
from mqlog_jobs.machine import exit_codes
from mqlog_jobs.work.doctor import ERROR, _store
from mqstore import __version__
from support import goldens, soak

LINUX_CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1 << 1, 1 << 2
COMMANDS = (
    ("verify", "STORE"),
    ("topics", "STORE"),
    ("cat", "STORE", "GTopic", "-n", "0", "--json"),
    ("cat", "STORE", "GTopic", "-f", "{body}"),
    ("--help",),
)
some_commands = pytest.mark.parametrize("words", soak.sample(COMMANDS, check=1, test=2))


def ended(words: tuple[str, ...], store: Path, redirected: str) -> tuple[int, str]:
    """Return exit code and standard error of a command in a shell that redirects its output."""
    program = [sys.executable, "-c", "from mqlog_jobs.cli import main; main()"]
    line = [*program, *(str(store) if word == "STORE" else word for word in words)]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", *line],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stderr


@pytest.fixture
def own_store(tmp_path: Path) -> Path:
    """A golden store whose modes a test may change."""
    return goldens.unpack("5.5.0", tmp_path)


@contextmanager
def bound_by_modes() -> Iterator[None]:
    """Let file modes bind this thread meanwhile, as they bind every user but root.

    Its user stays the same: another one could import nothing from a checkout that only root
    may enter. Root passes over modes by two capabilities (capabilities(7), CAP_DAC_*).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
    before = (ctypes.c_uint32 * 6)()  # Two times effective, permitted, inheritable.
    if libc.capget(header, before):
        raise OSError(ctypes.get_errno(), "capget")
    bound = (ctypes.c_uint32 * 6)(*before)
    bound[0] &= ~(CAP_DAC_OVERRIDE | CAP_DAC_READ_SEARCH)
    if libc.capset(header, bound):
        raise OSError(ctypes.get_errno(), "capset")
    try:
        yield
    finally:
        libc.capset(header, before)


@soak.not_in_check
@pytest.mark.soak
@some_commands
def test_output_to_a_full_disk_is_told_in_one_line(
    golden_550: Path, words: tuple[str, ...]
) -> None:
    told = f"mqlog: standard output: {os.strerror(errno.ENOSPC)}\n"

    assert ended(words, golden_550, ">/dev/full") == (2, told)


@pytest.mark.soak
@some_commands
def test_closed_output_is_told_in_one_line(golden_550: Path, words: tuple[str, ...]) -> None:
    assert ended(words, golden_550, ">&-") == (2, "mqlog: standard output is closed\n")


@soak.not_in_check
def test_closed_standard_error_hides_the_words_and_not_the_exit_code(golden_550: Path) -> None:
    assert ended(("topics", "STORE"), golden_550, ">/dev/null 2>&-") == (0, "")
    assert ended(("cat", "STORE", "Nope"), golden_550, "2>&-") == (2, "")


@pytest.mark.soak
@some_commands
def test_a_reader_that_leaves_is_no_error_and_has_the_exit_code_of_its_signal(
    golden_550: Path, words: tuple[str, ...], tmp_path: Path
) -> None:
    code = tmp_path / "code"
    program = [sys.executable, "-c", "from mqlog_jobs.cli import main; main()"]
    command = [*program, *(str(golden_550) if word == "STORE" else word for word in words)]
    done = subprocess.run(
        ["sh", "-c", f'{{ "$@"; echo $? >"{code}"; }} | exit', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.stderr == ""
    assert code.read_text() == "141\n"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("commitlog/00000000000000000000", ("cat", "STORE", "GTopic", "--json")),
        ("commitlog/00000000000000000000", ("verify", "STORE")),
        ("consumequeue/GTopic", ("queues", "STORE")),
        ("commitlog", ("topics", "STORE")),
        (".", ("backlog", "STORE")),
    ],
)
def test_what_may_not_be_read_is_told_with_its_path(
    run: Run,
    own_store: Path,
    path: str,
    words: tuple[str, ...],
) -> None:
    (own_store / path).chmod(0)
    with bound_by_modes():
        code, out, err = run(*(own_store if word == "STORE" else word for word in words))
    (own_store / path).chmod(0o755)

    assert (code, out) == (2, "")
    assert err.startswith(f"mqlog: {own_store}")
    assert Path(path).name in err
    assert err.endswith(f": {os.strerror(errno.EACCES)}\n")
    assert err.count("\n") == 1


def test_a_dying_disk_is_told_with_the_path_of_the_store(
    run: Run,
    golden_550: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dead(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for call in ("pread", "preadv", "read"):
        monkeypatch.setattr(os, call, dead)

    assert run("cat", golden_550, "GTopic") == (2, "", f"mqlog: {golden_550}: Input/output error\n")
    assert [(found.severity, found.found) for found in _store(golden_550)] == [
        (ERROR, "Input/output error")
    ]


def started(program: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", program, "--version"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)


def test_a_command_starts_without_what_only_some_need() -> None:
    program = """
import sys
from mqlog_jobs.cli import main
try:
    main()
finally:
    print(sorted({"pandas", "pyspark"} & set(sys.modules)))
"""
    done = started(program)

    assert (done.returncode, done.stderr) == (0, "")
    version, imported = done.stdout.splitlines()
    assert version.startswith(f"mqlog {__version__}, kernels: ")
    assert imported == "[]"


def test_an_interrupt_while_it_starts_is_an_interrupt() -> None:
    program = """
import os, signal, sys
class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
from mqlog_jobs.cli import main
sys.meta_path.insert(0, Interrupted())
sys.argv[1:] = ["topics", "store"]
main()
"""
    done = started(program)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_warning_about_a_hostile_name_shows_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A glob finds directories of any name."""
    logger = logging.getLogger("mqstore.test")
    monkeypatch.setattr(logger, "propagate", False)  # Not to pytest, but to the last resort.

    def warn() -> None:
        logger.warning("the IndexFiles of %s do not cover it", "/data/a\x1b[2J\nb")

    assert exit_codes.run(warn) == 0
    assert capsys.readouterr().err == "the IndexFiles of /data/a\\x1b[2J\\nb do not cover it\n"


def test_an_error_that_stands_in_the_plan_of_a_query_is_not_the_reason() -> None:
    """As the refusals of rows do, which are a part of the plan whatever ended the query."""
    plan = "=== Streaming Query ===\nLogical Plan:\nraise_error([MQLOG_INVALID_OPTION] option --to)"
    reason = "[MQLOG_DATA_LOSS] T/0: lost"
    assert (
        exit_codes.problem_of(ValueError(f"[STREAM_FAILED] No space left on device\n{plan}"))
        is None
    )
    assert exit_codes.problem_of(ValueError(f"[STREAM_FAILED]\n{reason}\n{plan}")) == reason
