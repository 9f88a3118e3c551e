"""Forks the Python processes of Spark from one that has imported all that they need.

Spark starts a daemon for each kind of Python worker, and a process for each query that reads a
stream. Each imports pyspark, pandas and mqlog, which takes 1.2 s of CPU time, in each JVM again.
``forking`` gives the path of a ``python`` for PYSPARK_PYTHON whose processes for these modules are
forks: they have the arguments, the environment, the folder and the files of the process that Spark
wanted, and run the same modules as ``__main__``. Their parent is another, and their command line.

python -P fork_server.py FILE_NUMBER
"""

import contextlib
import gc
import importlib
import marshal
import os
import runpy
import select
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
IMPORTED: Final = (
    "pandas",
    "pyspark.worker",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark_mqlog.batch_reader",
    "pyspark_mqlog.batch_writer",
    "pyspark_mqlog.cluster_writer",
    "pyspark_mqlog.stream_reader",
    "pyspark_mqlog.stream_writer",
    RUNNER,
)
CLIENT: Final = Path(__file__).with_name("fork_client.py")
END_SECONDS: Final = 120
LOOK_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Forks:
    """What a server gives to a program with Spark."""

    python: str
    """For PYSPARK_PYTHON."""
    pid: int
    """The process of the server, which is the parent of the daemons of workers."""


@contextlib.contextmanager
def forking(interpreter: str = sys.executable, paths: str = "") -> Iterator[Forks]:
    """Run a server while the block runs.

    It is the interpreter, with ``paths`` as its PYTHONPATH, that imports and is forked.
    """
    with tempfile.TemporaryDirectory(prefix="mqlog-python-") as name:
        folder = Path(name)
        python, path = folder / "python", folder / "socket"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        listening.listen()
        words = [interpreter, "-I", "-S", str(CLIENT), str(path), interpreter]
        python.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        python.chmod(0o755)
        server = subprocess.Popen(
            [interpreter, "-P", __file__, str(listening.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            env=os.environ | {"PYTHONPATH": paths},
            start_new_session=True,
        )
        listening.close()  # The server has it. A client waits while it imports.
        assert server.stdin
        try:
            yield Forks(str(python), server.pid)
        finally:
            server.stdin.close()
            server.wait(END_SECONDS)


def serve(listening: socket.socket) -> None:
    """Fork what clients want, until the standard input ends."""
    for module in IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # No fork visits them again: neither the collector nor what copies their pages.
    waiting = select.poll()
    waiting.register(listening, select.POLLIN)
    waiting.register(0, select.POLLIN)
    while True:
        ready = {file for file, _ in waiting.poll(LOOK_MS)}
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if 0 in ready:
            return
        if ready:
            client, _ = listening.accept()
            if not os.fork():
                listening.close()
                _become(client)
            client.close()


def _become(client: socket.socket) -> None:
    """Run what a client wants in this process, with its files, and end."""
    code = 1
    try:
        folder, arguments, environment = _take(client)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        paths = environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [folder, *(path for path in paths if path)]
        client.sendall(os.getpid().to_bytes(4, "big"))
        sys.modules.pop(arguments[0], None)  # It runs as __main__.
        sys.argv = ["-m", *arguments[1:]]
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException as error:  # noqa: BLE001 - as an interpreter tells it
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        with contextlib.suppress(OSError):
            client.sendall(bytes([code & 0xFF]))
        os._exit(code & 0xFF)


def _take(client: socket.socket) -> tuple[str, Sequence[str], dict[str, str]]:
    """Receive the folder, the module with its arguments and the environment; take the files."""
    head, files, _, _ = socket.recv_fds(client, 8, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    rest = int.from_bytes(head, "big")
    wanted = bytearray()
    while len(wanted) < rest:
        wanted += client.recv(rest - len(wanted))
    folder, arguments, environment = marshal.loads(bytes(wanted))
    return folder, arguments, environment


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
