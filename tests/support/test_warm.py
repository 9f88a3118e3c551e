"""A program that is forked from a warm process ends, writes and dies as one that is started."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import warm

# What a program sees of its surroundings, and whether it had to import mqlog.
TELLING = """
import json, os, sys
print(json.dumps({
    "arguments": sys.argv, "folder": os.getcwd(), "variable": os.environ.get("MQLOG_SEEN"),
    "name": __name__, "first": sys.path[0], "group": os.getpgrp() == os.getpid(),
    "parent": os.getppid(),
    "files": [number for number in range(20) if os.path.exists(f"/proc/self/fd/{number}")],
    "input": sys.stdin.read()}))
print("heard", file=sys.stderr)
"""
STARTERS: dict[str, Callable[..., Any]] = {"started": subprocess.Popen, "forked": warm.Popen}


def outcome(start: Callable[..., Any], program: str, *words: str, **more: Any) -> Any:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program, *words]
    with start(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **more) as process:
        out, err = process.communicate("told", timeout=60)
    return process.returncode, out, err


def both(program: str, *words: str, **more: Any) -> Any:
    """What a program does that is started, if it does the same forked."""
    found = [outcome(start, program, *words, **more) for start in STARTERS.values()]
    assert found[0] == found[1]
    return found[1]


def test_a_program_sees_the_same(tmp_path: Path) -> None:
    given = {"cwd": tmp_path, "env": os.environ | {"MQLOG_SEEN": "so"}, "start_new_session": True}
    code, out, err = both(TELLING, "one", "2 3", **given)
    seen = json.loads(out)
    assert (code, err) == (0, "heard\n")
    assert (seen["arguments"], seen["folder"]) == (["-c", "one", "2 3"], str(tmp_path))
    assert (seen["variable"], seen["input"], seen["parent"]) == ("so", "told", os.getpid())
    assert seen["group"]


@pytest.mark.parametrize("program", [
    "raise SystemExit(3)",
    "import sys; sys.exit('a word')",
    "import os; os._exit(7)",
    "import atexit; atexit.register(print, 'last'); print('first')",
    "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
])  # fmt: skip
def test_a_program_ends_alike(program: str) -> None:
    both(program)


def test_an_error_is_a_traceback_and_the_exit_code_one() -> None:
    for start in STARTERS.values():
        code, _, err = outcome(start, "int('no number')")
        assert code == 1
        assert err.startswith("Traceback")
        assert err.endswith("ValueError: invalid literal for int() with base 10: 'no number'\n")


def test_a_module_runs_as_main_with_the_path_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text("import sys; print(__name__, sys.argv)")
    command = [sys.executable, "-m", "told", "word"]
    told = f"__main__ {[f'{tmp_path}/told.py', 'word']}\n".encode()
    for run in (subprocess.run, warm.run):
        assert run(command, cwd=tmp_path, capture_output=True).stdout == told


def test_what_mqlog_imports_is_there() -> None:
    program = "import sys; print({'pyarrow', 'mqstore.write.commit'} <= set(sys.modules))"
    assert outcome(warm.Popen, program) == (0, "True\n", "")


@pytest.mark.parametrize("kernels", ["numpy", ""])
def test_kernels_are_those_of_its_environment(kernels: str) -> None:
    program = "from mqstore.native.registry import kernels_in_use; print(kernels_in_use())"
    both(program, env=os.environ | {"MQSTORE_KERNELS": kernels})


@pytest.mark.parametrize("start", STARTERS.values(), ids=STARTERS)
def test_a_pipe_without_a_reader_and_a_full_disk_are_errors(start: Callable[..., Any]) -> None:
    program = [sys.executable, "-c", "import sys; sys.stdin.read(); print('x')"]
    pipe = subprocess.PIPE
    buffered = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with start(program, stdin=pipe, stdout=pipe, stderr=pipe, env=buffered) as process:
        process.stdout.close()
        _, err = process.communicate()
    assert b"BrokenPipeError" in err
    assert process.returncode == 120
    with (
        Path("/dev/full").open("wb") as full,
        start(program, stdin=pipe, stdout=full, stderr=pipe, env=buffered) as process,
    ):
        _, err = process.communicate()
    assert b"No space left" in err
    assert process.returncode == 120


def test_a_terminal_gets_each_line_at_once_and_an_interrupt_ends_the_program() -> None:
    program = "import signal, sys; print(sys.stdout.isatty()); signal.pause()"
    ours, theirs = pty.openpty()
    with warm.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=theirs) as one:
        os.close(theirs)
        assert os.read(ours, 100) == b"True\r\n"
        one.send_signal(signal.SIGINT)
    os.close(ours)
    assert one.returncode == -signal.SIGINT


def test_one_that_is_killed_is_the_child_of_this_process() -> None:
    program = "import sys; print('begun', flush=True); sys.stdin.read()"
    pipe = subprocess.PIPE
    with warm.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"begun\n"
        one.kill()
        assert one.wait(60) == -signal.SIGKILL


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    for start in STARTERS.values():
        with pytest.raises(FileNotFoundError):
            start([sys.executable, "-c", "pass"], cwd=tmp_path / "none")
