"""What tests see of other processes."""

import os

import pytest

from support.processes import running, stats

# A name may be any bytes, also those that look like its end.
NAMED = """
open("/proc/self/comm", "wb").write(b"a) S 1 \\xff (")
print("named", flush=True)
input()
"""
NO_PID = 1 << 22  # One more than the kernel gives.


def test_every_process_has_its_parent_whatever_its_name_is() -> None:
    with running(NAMED) as program:
        assert program.line() == "named"
        found = stats()
    assert int(found[program.pid][1]) == os.getpid()
    assert int(found[os.getpid()][1]) == os.getppid()


def test_a_process_that_ends_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ["self", str(NO_PID), str(os.getpid())]
    monkeypatch.setattr(os, "listdir", lambda _: listed)
    assert list(stats()) == [os.getpid()]
