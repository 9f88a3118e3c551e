"""The comparison with other tools: the versions were run, the words of mqlog exist."""

import json
import re

from broker.toolchain import VERSIONS
from mqlog_jobs.command.maintenance import app
from mqstore.request.read_options import READ_OPTIONS, STREAM_OPTIONS
from mqstore.tables.catalog import CATALOG
from style.documents import ROOT

PAGE = (ROOT / "connector" / "COMPARISON.md").read_text(encoding="utf-8")
MEASURED = ROOT / "benchmarks" / "results" / "spark_read.jsonl"
OPTIONS = {option.name for option in (*READ_OPTIONS.values(), *STREAM_OPTIONS.values())}


def chapter(heading: str) -> str:
    return re.split(r"^#", PAGE.split(f"### {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def words(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


def test_versions_that_are_said_to_be_run_are_run() -> None:
    lines = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]
    (connector,) = {line["kafkaConnector"] for line in lines}
    (spark,) = {line["pyspark"] for line in lines}

    page = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", PAGE)  # Without its links.
    assert f"| mqadmin, of RocketMQ | {', '.join(VERSIONS)} | run" in page
    assert f"| Spark's connector for Kafka | {connector}, Spark {spark} | run" in page


def test_options_that_are_said_to_be_those_of_kafka_exist() -> None:
    assert words(chapter("Coming from Kafka").split(" are those of", 1)[0]) <= OPTIONS


def test_for_each_command_of_mqadmin_there_is_one_here_and_a_table_or_an_option() -> None:
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in chapter("Coming from mqadmin").splitlines()
        if line.startswith("| `")
    ]
    heads, *pairs = rows

    assert heads[0].startswith("`mqadmin")
    for theirs, ours, table in pairs:
        shown = re.search(r"`(?:echo .* mqlog )?(\w+) ", ours)
        assert shown is not None, theirs
        assert shown[1] in commands, theirs
        known = OPTIONS if table.startswith("option") else {*CATALOG, "df.write"}
        assert set(re.findall(r"`([\w.]+)`", table)) <= known, theirs
