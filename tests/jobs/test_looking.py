"""find, tags, snapshot, --watch, completion; and what a terminal gets and a pipe does not."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from mqlog_jobs.command import maintenance
from mqlog_jobs.output.progress import Bar
from mqlog_jobs.output.watch import watch
from mqstore.check import check
from mqstore.errors import InvalidOptionError
from support import goldens

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(maintenance.app, list(map(str, words)), catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def rows(*words: object) -> list[dict[str, object]]:
    code, out, _ = run(*words, "--json")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def test_a_key_is_found_in_every_topic_and_more_often_than_a_broker_tells(
    golden: tuple[str, Path],
) -> None:
    version, root = golden
    told: dict[str, set[int]] = {}
    for message in goldens.expected(version):
        for key in str(message["properties"].get("KEYS", "")).split():
            told.setdefault(key, set()).add(message["physicalOffset"])
    often = max(told, key=lambda key: len(told[key]))

    for key in ("late78", often):
        found = {row["physicalOffset"] for row in rows("find", root, "--key", key)}
        assert found >= told[key]


def test_both_ids_of_a_message_find_it(golden: tuple[str, Path]) -> None:
    _, root = golden
    (message,) = rows("find", root, "--key", "late78")

    for name in ("msgId", "offsetMsgId"):
        assert rows("find", root, "--id", message[name]) == [message]


def test_a_message_is_shown_whole(golden_550: Path) -> None:
    code, out, _ = run("find", golden_550, "--key", "late78", "--topic", "GTopic")

    assert code == 0
    assert out.startswith("GTopic/0@119\n")
    assert re.search(r"tags +GA\n", out)
    assert re.search(r"body +late 78\n", out)
    assert re.search(r"storeTimestamp +2026-11-21 03:01:36.782 UTC\n", out)


def test_nothing_found_is_exit_code_one_and_said_on_standard_error(golden_550: Path) -> None:
    code, out, err = run("find", golden_550, "--key", "nobody\x1b[2J")

    assert (code, out) == (1, "")
    assert err == "no message has the key nobody\\x1b[2J\n"


@pytest.mark.parametrize("words", [(), ("--key", "a", "--id", "b")])
def test_find_wants_keys_or_ids(golden_550: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidOptionError, match="give either --key or --id"):
        run("find", golden_550, *words)


def test_tags_are_counted_by_queue_for_programs_and_by_topic_for_people(golden_550: Path) -> None:
    wanted: dict[tuple[str, str | None], int] = {}
    for message in goldens.expected("5.5.0"):
        if message["topic"] == "GTopic":
            tag = message["properties"].get("TAGS")
            wanted["GTopic", tag] = wanted.get(("GTopic", tag), 0) + 1
    found: dict[tuple[object, object], int] = {}
    for row in rows("tags", golden_550, "--topic", "GTopic"):
        key = (row["topic"], row["tag"])
        found[key] = found.get(key, 0) + int(str(row["messageCount"]))
    assert found == wanted

    lines = run("tags", golden_550)[1].splitlines()
    assert re.match(rf"GTopic  GB +{wanted['GTopic', 'GB']} ", next(s for s in lines if "GTo" in s))


def test_a_copy_is_told_of_and_is_whole(golden_550: Path, tmp_path: Path) -> None:
    code, out, _ = run("copy", golden_550, tmp_path / "copy")

    assert code == 0
    assert out.startswith("1,365 messages in 27 queues copied to ")
    assert [found for found in check(tmp_path / "copy") if found.severity == "error"] == []


def test_a_watch_looks_as_often_as_it_is_told(golden_550: Path) -> None:
    looks = ("backlog", golden_550, "-g", "CG_G", "--watch", "--count", "3", "--interval", "0.1")

    assert run(*looks)[1].count("86 messages waiting") == 3
    assert len(rows(*looks)) == 12
    with pytest.raises(InvalidOptionError, match="use --json"):
        run(*looks, "--csv")


def test_a_watch_draws_over_what_it_drew() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, height=20)
    left = iter(("first", "second"))
    watch(
        console,
        lambda shown: shown.print(next(left)) if shown else None,
        interval_s=0,
        rounds=2,
    )
    drawn = stream.getvalue()

    assert drawn.index("first") < drawn.index("\x1b[1A") < drawn.index("second")
    assert drawn.count("first") == 1
    assert "every 0 s; Ctrl-C ends" in drawn


def test_a_bar_is_for_terminals_and_for_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, patience, drawn in ((True, 0.0, True), (True, 60.0, False), (False, 0.0, False)):
        monkeypatch.setattr("mqlog_jobs.output.progress._PATIENCE_S", patience)
        stream = io.StringIO()
        with Bar("Checking", Console(file=stream, force_terminal=terminal, width=80)) as bar:
            bar(50, 100)
        assert ("Checking" in stream.getvalue()) is drawn


def test_a_check_tells_how_far_it_is(golden_550: Path) -> None:
    told: list[tuple[int, int]] = []
    check(golden_550, progress=lambda done, total: told.append((done, total)))

    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 0


def test_every_command_has_help_with_an_example_and_a_shell_can_complete_it() -> None:
    commands = [
        str(command.name or command.callback.__name__) for command in commands_of(maintenance)
    ]
    assert {"backlog", "find", "tags", "snapshot", "copy", "verify"} <= set(commands)
    for command in commands:
        assert f"mqlog {command}" in run(command, "--help")[1].split("Example")[1]

    done = CliRunner().invoke(
        maintenance.app,
        prog_name="mqlog",
        env={"_MQLOG_COMPLETE": "complete_bash", "COMP_WORDS": "mqlog sn", "COMP_CWORD": "1"},
    )
    assert done.stdout.split() == ["snapshot"]


def commands_of(module: object) -> Iterator[object]:
    yield from module.app.registered_commands  # type: ignore[attr-defined]


def test_tables_fit_eighty_columns_of_a_terminal_and_have_colours_only_there(
    golden_550: Path,
) -> None:
    """Commands in a process of their own, on a pseudo-terminal and then in a pipe."""
    commands = [
        ["backlog", "{}"],
        ["backlog", "{}", "--by-tag", "-g", "CG_G", "--subscription", "GA || GB"],
        ["topics", "{}", "--system"],
        ["queues", "{}", "--system"],
        ["tags", "{}"],
        ["cat", "{}", "GTopic", "-n", "30"],
        ["verify", "{}"],
    ]
    told = json.dumps([[word.format(golden_550) for word in words] for words in commands])
    program = (
        "import json, sys; from mqlog_jobs.command.maintenance import app\n"
        "for words in json.loads(sys.argv[1]): app(words, standalone_mode=False)"
    )
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    environment.pop("CI", None)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program, told], stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b"")).decode()
    os.close(ours)
    piped = subprocess.run(
        [sys.executable, "-c", program, told],
        env=environment,
        check=True,
        capture_output=True,
        timeout=300,
    )

    assert process.returncode == 0, shown
    lines = ANSI.sub("", shown).splitlines()
    too_long = [line for line in lines if len(line.rstrip()) > 80 and str(golden_550) not in line]
    assert too_long == []
    assert "\x1b[" in shown
    assert b"\x1b" not in piped.stdout
    assert piped.stderr == b""


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says EIO when the other end is closed.
        return b""
