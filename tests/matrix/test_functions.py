"""``pyspark_mqlog.read`` and ``write`` do the same on Sparks without and with Python data sources.

3.5 in `make test`, the other lines in `make matrix`; 4.0 also by a client of Spark Connect.
"""

import json
import sys
from pathlib import Path

import pytest

from doors.questions import QUESTIONS
from matrix.function_steps import FunctionSteps
from matrix.test_lines import MATRIX, OTHERS, done, interpreter
from mqlog.keywords import keyword
from places import kinds

STEPS = [name for name in vars(FunctionSteps) if not name.startswith("_")]
SCRIPT = "function_steps.py"


def ask(folder: Path) -> None:
    """Put a store and the questions of the contract of doors, with their answers, into a folder."""
    place = kinds.in_directory(folder)
    questions = []
    for name, question in QUESTIONS.items():
        right = question.answer(place.held)
        options = {keyword(option): text for option, text in question.texts.items()}
        offsets = (
            right if isinstance(right, str) else sorted((m.queue_id, m.queue_offset) for m in right)
        )
        questions.append(
            {"name": name, "place": place.options["path"], "options": options, "right": offsets}
        )
    (folder / "questions.json").write_text(json.dumps(questions), encoding="utf-8")


@pytest.mark.spark
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Spark 3 is for Python up to 3.11")
@pytest.mark.parametrize(
    "line", ["3.5", *(pytest.param(line, marks=OTHERS) for line in ("3.4", "4.0", "4.3"))]
)
def test_functions_read_and_write_on_the_line(line: str, tmp_path: Path) -> None:
    ask(tmp_path)
    assert done(interpreter(line), "local[2,2]", tmp_path, *STEPS, script=SCRIPT) == STEPS


@pytest.mark.spark
@pytest.mark.skipif(not MATRIX, reason="for `make matrix`")
def test_functions_read_and_write_as_a_client_of_spark_connect(tmp_path: Path) -> None:
    steps = [name for name in STEPS if name not in ("failed_task", "questions")]
    assert done(interpreter("4.0"), "connect", tmp_path, *steps, script=SCRIPT) == steps
