"""Starts Python programs as forks of a process that has imported mqlog.

An interpreter that imports mqlog takes 0.3 s of CPU time to start, a fork some milliseconds.
``warm.Popen`` and ``warm.run`` stand for those of ``subprocess`` where the command is
``[sys.executable, "-c" or "-m", ...]`` and the start itself is not what a test is about:

    with warm.Popen([sys.executable, "-c", program, *words], stdout=subprocess.PIPE) as process:

It is a process of its own and a child of this one, with the arguments, environment, folder, files
and session that it was given; its signals, its exit code and what it does with a closed pipe or a
terminal are those of an interpreter. But modules are imported already, variables like
PYTHONWARNINGS say nothing, and the system shows another command line.
"""

import atexit
import ctypes
import inspect
import marshal
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, AnyStr, Final

_SERVER: Final = Path(__file__).with_name("warm_server.py")
_END_S: Final = 300
_SET_CHILD_SUBREAPER: Final = 36  # prctl(2)
_TURN: Final = threading.Lock()
_ENVIRONMENT: Final = dict(os.environ)
"""That of the server: before any test changes it."""


class Popen(subprocess.Popen[AnyStr]):
    """A program of Python that is forked; see the module."""

    def _execute_child(self, *given: Any) -> None:
        """Have the server fork instead of forking and executing; called by ``Popen.__init__``."""
        names = inspect.signature(super()._execute_child)  # type: ignore[misc]
        told: dict[str, Any] = names.bind(*given).arguments
        executable, *words = map(os.fsdecode, told["args"])
        assert executable == sys.executable
        assert words[0] in {"-c", "-m"}
        assert not told["preexec_fn"]
        assert told.get("process_group", -1) == -1
        ours = [told[name] for name in ("p2cwrite", "c2pread", "errread")]
        theirs = [told[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        files: list[int] = [number if file == -1 else file for number, file in enumerate(theirs)]
        environment = os.environ if told["env"] is None else told["env"]
        wanted = (
            words,
            {os.fsdecode(name): os.fsdecode(text) for name, text in environment.items()},
            os.fsdecode(told["cwd"] or os.getcwd()),  # noqa: PTH109 - as subprocess does
            bool(told["start_new_session"]),
            list(told["pass_fds"]),
        )
        self.pid = _server().fork(marshal.dumps(wanted), [*files, *told["pass_fds"]])
        self._child_created = True
        (stdin, out, err), (into, read_out, read_err) = theirs, ours
        self._close_pipe_fds(stdin, into, read_out, out, read_err, err)  # type: ignore[attr-defined]


def run(
    command: list[str],
    *,
    capture_output: bool = True,
    check: bool = False,
    timeout: float = _END_S,
    **more: Any,
) -> "subprocess.CompletedProcess[Any]":
    """Run a program until it ends, as ``subprocess.run`` does."""
    pipe = subprocess.PIPE if capture_output else None
    with Popen(command, stdout=pipe, stderr=pipe, **more) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class _Server:
    """The process that is forked, and the socket on which it is told to."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_SERVER), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_ENVIRONMENT,
            )
        self._socket = ours
        atexit.register(self.end)

    def fork(self, wanted: bytes, files: list[int]) -> int:
        """Return the process id of a new child of this process."""
        with _TURN, _adopting():
            socket.send_fds(self._socket, [len(wanted).to_bytes(8, "big")], files)
            self._socket.sendall(wanted)
            told = b""
            while len(told) < 8:
                more = self._socket.recv(8 - len(told))
                assert more, "the process that is forked has ended"
                told += more
        pid, failed = (int.from_bytes(told[at : at + 4], "big") for at in (0, 4))
        if failed:
            os.waitpid(pid, 0)
            raise OSError(failed, os.strerror(failed))
        return pid

    def end(self) -> None:
        self._socket.close()
        self._process.wait(_END_S)


@cache
def _server() -> _Server:
    return _Server()


@contextmanager
def _adopting() -> Iterator[None]:
    """Become the parent of a process below this one whose parent ends meanwhile."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
