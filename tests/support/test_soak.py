"""How much a test does: what the three variables say, and what they cannot say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import soak

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "kind", "seed"),
    [("check", "check", 1), ("whole:7", "whole", 7), ("7", "test", 7)],
)
def test_a_sample_is_a_kind_or_a_seed_or_both(text: str, kind: str, seed: int) -> None:
    assert soak._read_sample(text) == (kind, seed)


@pytest.mark.parametrize("text", ["wole", "whole:x", "soak"])
def test_a_sample_of_no_kind_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition(":")[2] or text):
        soak._read_sample(text)


def test_a_factor_is_of_every_size_and_sample_and_a_named_size_is_of_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(soak, "WHOLE", False)
    monkeypatch.setattr(soak, "CHECK", False)
    monkeypatch.setattr(soak, "FACTOR", 0.1)
    monkeypatch.setattr(soak, "SIZES", {"named": 5})
    assert [soak.size(name, check=1, test=100, whole=9) for name in ("named", "other")] == [5, 10]
    assert soak.size("few", check=1, test=2, whole=9) == 1
    assert soak.size("none", check=1, test=0, whole=9) == 0
    assert len(soak.sample(range(100), check=1, test=50)) == 5


def test_a_size_that_no_test_has_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", str(Path(__file__).parent)],
        cwd=ROOT,
        env=os.environ | {"MQLOG_SIZE": "crash_sates=7"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "crash_sates" in done.stderr
