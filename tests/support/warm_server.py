"""The process that ``warm`` forks: python -P warm_server.py NUMBER_OF_ITS_SOCKET.

It imports mqlog, and forks for each request until the socket is closed. The fork of a fork runs the
program: the one between ends at once, so that the process which asked becomes the parent.
"""

import errno
import gc
import importlib
import io
import marshal
import os
import pkgutil
import runpy
import socket
import sys
import types
import warnings
from pathlib import Path

_COMMANDS = ("maintenance", "messages", "show_backlog", "render", "doctor")


def main(number: int) -> None:
    listening = socket.socket(fileno=number)
    _import_all()
    program: list[str] | None = None
    while program is None:
        head, files, _, _ = socket.recv_fds(listening, 8, 64)
        if not head:
            return
        wanted = bytearray()
        while len(wanted) < int.from_bytes(head, "big"):
            wanted += listening.recv(int.from_bytes(head, "big") - len(wanted))
        program = _forked(listening, files, bytes(wanted))
        for file in files if program is None else ():
            os.close(file)
    _run(program)  # Not in the loop: what it raises ends the interpreter as it always does.


def _import_all() -> None:
    importlib.import_module("mqlog_jobs.arrow").import_without_pandas()
    package = importlib.import_module("mqstore")
    for found in pkgutil.walk_packages(package.__path__, "mqstore."):
        importlib.import_module(found.name)
    for name in _COMMANDS:
        importlib.import_module(f"mqlog_jobs.{name}")
    gc.collect()
    gc.freeze()


def _forked(listening: socket.socket, files: list[int], wanted: bytes) -> list[str] | None:
    """Return the words of the program in the process that is to run it, and None in this one."""
    waiting, going = os.pipe()
    with warnings.catch_warnings(action="ignore"):  # Libraries have threads; no fork needs them.
        between = os.fork()
        if between:
            os.close(waiting)
            os.waitpid(between, 0)
            os.close(going)
            return None
        pid = os.fork()
    if pid:
        listening.sendall(pid.to_bytes(4, "big"))
        os._exit(0)
    os.close(going)
    os.read(waiting, 1)  # Ends when the one between has: the parent is another one then.
    os.close(waiting)
    words, environment, folder, is_session, passed = marshal.loads(wanted)
    failed = 0
    try:
        os.chdir(folder)
    except OSError as error:
        failed = error.errno or errno.EIO
    if is_session:
        os.setsid()
    listening.sendall(failed.to_bytes(4, "big"))
    listening.close()
    _take(files, [0, 1, 2, *passed])
    os.environ.clear()
    os.environ.update(environment)
    return list(words) if not failed else ["-c", "raise SystemExit(1)"]


def _take(files: list[int], numbers: list[int]) -> None:
    """Give files the numbers that they had."""
    above = max([*files, *numbers]) + 1
    for place, file in enumerate(files):
        os.dup2(file, above + place)
        os.close(file)
    for place, number in enumerate(numbers):
        os.dup2(above + place, number, inheritable=True)
        os.close(above + place)


def _run(words: list[str]) -> None:
    streams = [("stdin", "strict"), ("stdout", "strict"), ("stderr", "backslashreplace")]
    for number, (stream, errors) in enumerate(streams):
        made = _stream(number, "w" if number else "r", errors)
        setattr(sys, stream, made)
        setattr(sys, f"__{stream}__", made)
    kind, name, *arguments = words
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = ["" if kind == "-c" else str(Path.cwd()), *filter(None, paths)]
    sys.argv = [kind, *arguments]
    if kind == "-m":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        own = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(name, "<string>", "exec"), own.__dict__)


def _stream(number: int, mode: str, errors: str) -> io.TextIOWrapper:
    """Return a standard stream as an interpreter makes it."""
    by_line = mode == "w" and (number == 2 or os.isatty(number))
    return io.TextIOWrapper(
        open(number, f"{mode}b", closefd=False),
        "utf-8",
        errors,
        line_buffering=by_line,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
