"""A port is given once, also to processes that ask at the same time."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from broker import ports
from broker.ports import NoPortError, free_ports

TESTS = Path(__file__).parents[1]
ASK = """
import sys
from broker import ports
ports.FIRST, ports.LAST, ports.TRIES = 29_900, 29_930, 30
print(*[ports.free_ports(0, 1) for _ in range(4)], flush=True)
sys.stdin.read()  # The ports are its own until it ends.
"""


def test_processes_that_ask_at_once_get_different_ports() -> None:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", ASK],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    lines = [process.stdout.readline() for process in running if process.stdout]
    for process in running:
        process.communicate(timeout=60)
    given = [int(port) for line in lines for port in line.split()]
    assert len(given) == 8
    assert len({port + distance for port in given for distance in (0, 1)}) == 16


def test_a_port_that_a_server_has_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        monkeypatch.setattr(ports, "FIRST", port)
        monkeypatch.setattr(ports, "LAST", port + 1)
        monkeypatch.setattr(ports, "TRIES", 1)
        with pytest.raises(NoPortError):
            free_ports(0)
