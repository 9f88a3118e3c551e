"""connector/README.md says what the code does: its tables are compared, its examples run."""

import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type

from mqstore.codec.schema import COLUMNS, KAFKA_COLUMNS
from pyspark_mqlog.option import Option
from pyspark_mqlog.options import READ_OPTIONS
from pyspark_mqlog.schema import TABLE_SCHEMAS
from pyspark_mqlog.stream_options import OWN_OPTIONS
from pyspark_mqlog.write_options import WRITE_OPTIONS

README = Path(__file__).parents[2] / "connector" / "README.md"
TEXT = README.read_text(encoding="utf-8")


def table(heading: str) -> list[tuple[str, ...]]:
    section = re.split(r"^#+ ", TEXT.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)
    lines = [line for line in section[0].splitlines() if line.startswith("| `")]
    cells = (re.split(r"(?<!\\)\|", line.strip("|")) for line in lines)
    return [tuple(cell.strip().strip("`") for cell in row) for row in cells]


@pytest.mark.parametrize(
    ("heading", "options"), [("Read options", READ_OPTIONS), ("Write options", WRITE_OPTIONS)]
)
def test_the_options_are_those_of_the_code(heading: str, options: dict[str, Option]) -> None:
    told = [(name, default) for name, default, _ in table(heading)]
    assert told == [("path", "–"), *((o.name, o.default or "–") for o in options.values())]


def test_the_options_of_streams_are_those_of_the_code() -> None:
    told = [(name, default) for name, default, _ in table("Stream options")]
    assert told == [(o.name, o.default or "–") for o in OWN_OPTIONS.values()]


def test_the_columns_are_those_of_the_code() -> None:
    assert table("Columns") == [
        (
            column.name,
            from_arrow_type(column.type).simpleString() + "?" * column.nullable,
            column.profile,
            column.meaning,
        )
        for column in COLUMNS
    ]
    assert ", ".join(f"`{column.name}`" for column in KAFKA_COLUMNS) in TEXT


def test_the_tables_are_those_of_the_code() -> None:
    assert dict(table("Tables")) == {  # type: ignore[arg-type]
        name: ", ".join(schema.names) for name, schema in TABLE_SCHEMAS.items()
    }


def test_every_link_within_the_page_has_its_heading() -> None:
    headings = {h.lower().replace(" ", "-") for h in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]*)\)", TEXT)) <= headings


@pytest.mark.spark
def test_every_example_runs(spark: SparkSession, golden_550: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for root in ("broker-a/store", "brokers/one/store"):
        shutil.copytree(golden_550, data / root)
    for example in re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL):
        exec(example.replace("/data/", f"{data}/"), {"spark": spark})
