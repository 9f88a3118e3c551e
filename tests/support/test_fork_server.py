"""A daemon of Spark's workers that is forked does what the real one does; the rest is real."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from support import fork_server, soak

SECONDS = 60


def started(python: str, **environment: str) -> "subprocess.Popen[bytes]":
    own = {"PYTHON_WORKER_FACTORY_SECRET": "secret", **environment}
    return subprocess.Popen(
        [python, "-m", "pyspark.daemon", "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | own,
    )


@soak.not_in_check
def test_a_daemon_is_forked_and_ends_with_its_input_or_by_a_signal() -> None:
    # A short path: that of a socket has at most 107 bytes.
    with TemporaryDirectory(prefix="mqlog-") as folder, fork_server.forking() as forks:
        sockets, python = Path(folder), forks.python
        words = ["-c", "import sys; print(sys.executable, sys.argv[1])", "1 2"]
        real = subprocess.run([python, *words], capture_output=True, text=True, check=True)
        assert real.stdout == f"{sys.executable} 1 2\n"
        forked = [
            started(
                python,
                PYTHON_UNIX_DOMAIN_ENABLED="true",
                PYTHON_WORKER_FACTORY_SOCK_DIR=folder,
            )
            for _ in range(2)
        ]
        for daemon in forked:
            assert daemon.stdin
            assert daemon.stdout
            length = int.from_bytes(daemon.stdout.read(4), "big")
            assert Path(daemon.stdout.read(length).decode()).parent == sockets
        forked[0].communicate()
        forked[1].send_signal(signal.SIGTERM)
        assert [daemon.wait(SECONDS) for daemon in forked] == [1, 1]  # Also of the real daemon.
        assert list(sockets.iterdir()) == []
        forked[1].communicate()
    assert not Path(python).exists()


def test_without_a_server_the_real_interpreter_runs(tmp_path: Path) -> None:
    client = [sys.executable, "-I", "-S", fork_server.CLIENT, tmp_path / "none", sys.executable]
    done = subprocess.run(
        [*client, "-m", "pyspark.daemon"],
        stdin=subprocess.DEVNULL,
        env={},
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stdout) == 4  # The port, as the real one tells it.
