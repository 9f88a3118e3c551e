"""What a checker of types, help, completion and a notebook know of the package."""

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import mqlog
import mqstore
from face import option_types
from mqlog import errors
from mqlog.keywords import DECLARED, keyword
from mqstore.errors import StoreError
from support import soak

RIGHT = """
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.compute as pc

import mqlog
from mqlog.errors import BrokerUnavailableError, CommitInDoubtError

place: mqlog.Place = mqlog.open(Path("/x"), broker_name="a", tls=True, fs={"region": "eu"})
scan: mqlog.Scan = place.scan(
    "T", tags=["a", "b"], starting_timestamp=datetime.now(UTC), batch_rows=3, broker_name="a"
)
later = place.scan(["T"], starting_timestamp=timedelta(hours=-1), on_corrupt="skip", keys=None)
count: int = scan.count() + later.select("body", ["tags"]).count_rows()
bodies: list[object] = [row["body"] for row in scan]
names: list[str] = place.topics(system=True) + scan.schema.names
first = scan.head(3), scan.to_table(columns=["body"]), next(iter(scan.to_batches()))
for batch, position in place.follow("T", timeout=0, max_offsets_per_trigger=5):
    place.follow(position=position, table="traces", trace_topic="T")
done: mqlog.WriteResult = mqlog.write(scan, "/y", topic="T", create_store=True)
few: mqlog.ScanRows = scan.filter(pc.field("tags") == "a").limit(5).select("body")
kept = [row["body"] for row in few], few.count(), few.to_table()
lag = place.table("backlog", groups="CG", lag_mode="exact").to_pandas()
"""
WRONG = (
    'mqlog.open("/x", brokr_name="a")',
    "mqlog.open(3)",
    'mqlog.open("/x").scan(tag="a")',
    'mqlog.open("/x").scan(verify_crc="a", create_store=True)',
    'mqlog.open("/x").scan(decompress=3.5)',
    'mqlog.open("/x").follow(timout=3)',
    'mqlog.open("/x").scan().nope()',
    'mqlog.open("/x").scan().take([1])',
    'mqlog.open("/x").scans()',
    'mqlog.write(3, "/x", create_stor=True)',
    "mqlog.nope()",
)


def test_the_keywords_are_the_declared_options() -> None:
    assert option_types.FILE.read_text(encoding="utf-8") == option_types.text()


@soak.not_in_check
def test_a_program_with_a_wrong_name_is_refused_by_mypy_and_a_right_one_is_not(
    tmp_path: Path,
) -> None:
    program = tmp_path / "program.py"
    program.write_text(RIGHT + "".join(f"{line}\n" for line in WRONG), encoding="utf-8")
    first_wrong = 1 + RIGHT.count("\n")

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir",
         str(tmp_path / "cache"), "--config-file", str(_settings(tmp_path)), str(program)],
        capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path,
    )  # fmt: skip

    lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if "program.py" in line}
    assert lines == set(range(first_wrong, first_wrong + len(WRONG))), done.stdout + done.stderr


def _settings(folder: Path) -> Path:
    """Return a configuration in which packages without types are not there."""
    file = folder / "mypy.ini"
    text = "[mypy]\n[mypy-pyarrow.*,pandas.*,polars.*,numpy.*]\nignore_missing_imports = true\n"
    file.write_text(text + "follow_imports = skip\n", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("call", "options"),
    [
        (mqlog.open, {"broker_name", "queues", "fs"}),
        (mqlog.Place.scan, {"tags", "starting_timestamp"}),
        (mqlog.Place.table, {"groups", "lag_mode"}),
        (mqlog.Place.follow, {"max_offsets_per_trigger", "commit_group", "timeout"}),
        (mqlog.write, {"create_store", "delivery", "partitioner"}),
    ],
)
def test_help_and_completion_show_each_option(call: Any, options: set[str]) -> None:
    shown = inspect.signature(call).parameters

    assert options <= shown.keys()
    assert shown.keys() - {keyword(name) for one in DECLARED for name in (one.name, one.alias)
                           if name} <= {"self", "path", "data", "topic", "name", "position",
                                        "timeout"}  # fmt: skip


def test_every_error_of_the_core_can_be_imported() -> None:
    root = Path(mqstore.__file__).parent
    modules = [
        import_module(".".join(("mqstore", *file.relative_to(root).with_suffix("").parts)))
        for file in root.rglob("errors.py")
    ]
    declared = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, StoreError)
    }

    assert declared == {getattr(errors, name) for name in errors.__all__}
    assert len(declared) > 40


def test_a_list_of_names_has_no_method_that_only_raises(golden_550: Path) -> None:
    scan = mqlog.open(golden_550).scan("GTopic")

    listed = {name for name in dir(scan) if not name.startswith("_")}
    assert listed >= {"count", "select", "to_pandas", "to_reader", "splits", "head", "schema"}
    assert listed.isdisjoint(
        {"join", "join_asof", "sort_by", "take", "get_fragments", "replace_schema",
         "partition_expression"}
    )  # fmt: skip


def test_a_scan_is_iterated_row_by_row(golden_550: Path) -> None:
    scan = mqlog.open(golden_550).scan("GTopic", columns=["queueId", "queueOffset"])

    assert list(scan) == scan.to_table().to_pylist()
    assert next(iter(scan)).keys() == {"queueId", "queueOffset"}


def test_a_notebook_shows_places_and_scans_without_a_secret(tmp_path: Path) -> None:
    place = mqlog.open("rocketmq://127.0.0.1:9876", access_key="me", secret_key="hush")
    odd = mqlog.open(tmp_path / "<b>")

    for value in (place, place.scan(columns="tags"), place.table("backlog"), odd, odd.scan("T")):
        page = value._repr_html_()
        assert page.startswith("<table>")
        assert "hush" not in page
        assert "<b>" not in page
    assert "&lt;b&gt;" in odd._repr_html_()
    assert "tags</th><td>string" in place.scan(columns="tags")._repr_html_()
