"""The command, run in this process."""

import signal
import sys
from pathlib import Path

import pytest

from jobs.command import Done, Run, commands
from mqlog_jobs import cli
from mqlog_jobs.command import maintenance
from mqlog_jobs.machine import installation
from mqstore.diagnosis import GOOD, Diagnosis


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr(maintenance, "app", commands())

    def command(*arguments: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["mqlog", *map(str, arguments)])
        at_interrupt = signal.getsignal(signal.SIGINT)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        signal.signal(signal.SIGINT, at_interrupt)
        out, err = capsys.readouterr()
        code = ended.value.code
        return Done(code if isinstance(code, int) else 0, out, err)

    return command


@pytest.fixture
def doctor_of_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let doctor start no interpreter and no Java: each takes a second."""
    monkeypatch.setattr(installation, "_lookup", lambda: iter(()))
    monkeypatch.setattr(installation, "_java", lambda: Diagnosis(GOOD, "Java", ""))
