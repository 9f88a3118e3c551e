"""What the doctor says of this machine, and of machines with something missing."""

import io
import json
import sys
from pathlib import Path

import pytest

from mqlog_jobs.output import render, views
from mqlog_jobs.work import doctor
from mqstore.check.replica import doubts_of
from mqstore.diagnosis import ERROR, GOOD, WARNING, Diagnosis, folded
from pyspark_mqlog.interpreter import NAMES
from support import goldens, soak


def found(store: Path | None = None) -> dict[str, Diagnosis]:
    return {
        diagnosis.subject: diagnosis for diagnosis in doctor.examine(*([store] if store else []))
    }


def interpreter(folder: Path, program: str) -> Path:
    """A python of its own: this one, after a program that changes what it finds."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "python3"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "$(cat <<"END"\n{program}\nEND\n)"\n')
    script.chmod(0o755)
    return script


def test_an_interpreter_with_the_package_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    diagnoses = found()

    assert diagnoses["PYSPARK_PYTHON"].severity == GOOD
    assert "finds pyspark_mqlog" in diagnoses["PYSPARK_PYTHON"].found
    assert {diagnoses[name].severity for name in ("pyspark", "pandas", "pyarrow")} == {GOOD}


def test_the_python3_of_path_is_asked_when_no_other_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter(tmp_path, "print('{}')")
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    diagnosis = found()["python3 on PATH"]

    assert diagnosis.severity == ERROR
    assert "has no pyspark_mqlog" in diagnosis.found
    assert f"PYSPARK_PYTHON={sys.executable}" in diagnosis.advice


def test_the_variable_that_spark_prefers_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = NAMES
    monkeypatch.setenv(first, "no-such-python")
    monkeypatch.setenv(second, sys.executable)
    diagnosis = found()[first]

    assert (diagnosis.severity, diagnosis.found) == (ERROR, "not there")
    assert f"export {first}={sys.executable}" in diagnosis.advice


def test_an_interpreter_of_another_version_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"python": [3, 99], "modules": {"pyspark_mqlog": None}}
    other = interpreter(tmp_path, f"print({json.dumps(json.dumps(told))})")
    monkeypatch.setenv(NAMES[0], str(other))
    diagnosis = found()[NAMES[0]]

    assert (diagnosis.severity, diagnosis.found) == (ERROR, f"{other}: Python 3.99")


def test_an_interpreter_without_what_the_source_needs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"python": list(sys.version_info[:2]), "modules": {"pyspark_mqlog": None, "numpy": "no"}}
    monkeypatch.setenv(
        NAMES[0], str(interpreter(tmp_path, f"print({json.dumps(json.dumps(told))})"))
    )
    diagnosis = found()[NAMES[0]]

    assert (diagnosis.severity, diagnosis.found[-9:]) == (ERROR, "numpy: no")


@soak.not_in_check
def test_a_neighbour_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "pyspark_broken.py").write_text("import no_such_module")
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    diagnosis = found()["PYSPARK_PYTHON"]

    assert diagnosis.severity == ERROR
    assert (
        "pyspark_broken: ModuleNotFoundError: No module named 'no_such_module'" in diagnosis.found
    )
    assert "hides all sources" in diagnosis.advice


@pytest.mark.parametrize("named", ["no-such-python", "true", "false"])
def test_what_is_no_python_has_no_source(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", named)

    assert found()["PYSPARK_PYTHON"].severity == ERROR


@pytest.mark.usefixtures("doctor_of_stores")
def test_a_store_is_told_and_an_unclean_one_is_a_warning(golden_550: Path, tmp_path: Path) -> None:
    well = found(golden_550)["Store"]
    nowhere = found(tmp_path / "nowhere")["Store"]
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "abort").touch()
    unclean = found(tmp_path)["Store"]

    assert (well.severity, well.found.split(":")[0]) == (GOOD, "broker-a")
    assert (nowhere.severity, "[MQLOG_STORE_NOT_FOUND]" in nowhere.found) == (ERROR, True)
    assert (unclean.severity, "abort exists" in unclean.advice) == (WARNING, True)


@pytest.mark.parametrize("broker", ["b", "broker-a-of-the-second-region", "x" * 127, "a\x1b[2Jb"])
def test_a_subject_is_parted_from_what_was_found(broker: str) -> None:
    out = io.StringIO()
    told = [Diagnosis(GOOD, "Python", "3.11"), Diagnosis(WARNING, f"Settings {broker}", "max=8")]
    views.diagnoses(render.terminal(out), [*told, Diagnosis(ERROR, "Java", "none", "a\x1bb")])
    lines = out.getvalue().splitlines()

    assert [line.split()[-1] for line in lines] == ["3.11", "max=8", "none", "a\\x1bb"]
    assert lines[1].split()[1:-1] == ["Settings", broker.replace("\x1b", "\\x1b")]
    assert lines[0].index("3.11") == lines[2].index("none")


@pytest.mark.usefixtures("doctor_of_stores")
def test_the_place_is_told_before_this_machine(golden_550: Path) -> None:
    subjects = [diagnosis.subject for diagnosis in doctor.examine(golden_550)]
    assert (subjects[0], subjects[-1]) == ("Store", "Kernels")


def test_brokers_of_which_the_same_is_said_are_one_line() -> None:
    settings = [Diagnosis(WARNING, f"Settings broker-{n}", "max=8", "set 32") for n in range(1_203)]
    other = Diagnosis(GOOD, "Settings broker-x", "max=32")
    alone = [Diagnosis(GOOD, "TLS", "off"), Diagnosis(GOOD, "Kernels", "off")]
    out = io.StringIO()
    views.diagnoses(render.terminal(out), [*alone, *settings[:1], other, *settings[1:]])
    lines = [" ".join(line.split()[1:]) for line in out.getvalue().splitlines()]
    assert lines == [
        "TLS off",
        "Kernels off",
        "Settings broker-0, broker-1 and 1,201 more max=8",
        "32",
        "Settings broker-x max=32",
    ]
    assert folded(settings[:2])[0].subject == "Settings broker-0, broker-1"
    assert folded(alone + alone) == alone + alone


@pytest.mark.parametrize(
    ("disk", "told"),
    [
        ("r1-killed", "120 records lie behind physical offset 168080"),
        ("r2-live", "200 records that consumers get lie behind the confirmed offset 171422"),
        ("r1-rejoined", None),
    ],
)
def test_doctor_says_what_is_not_known_of_the_records_of_a_replica(
    tmp_path: Path, disk: str, told: str | None
) -> None:
    root = goldens.unpack(goldens.CONTROLLER, tmp_path, disk)
    doubts = doubts_of(root)
    assert len(doubts) == (told is not None)
    assert all(told is not None and text.startswith(told) for text in doubts)
    diagnoses = doctor.examine(root, spark=False)
    assert [one.found for one in diagnoses if one.subject == "Replica"] == doubts
