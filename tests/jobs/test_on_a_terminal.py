"""What a person gets to see of a store that strangers have written to, on a pseudo-terminal."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.oracle import Message
from support.stores import MakeStore

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[2J\x9b2J\u202etxt\u2028\x85"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
PROGRAM = """
import json, sys
from mqlog_jobs.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended.code
    print("--", flush=True)
"""


def shown(*commands: list[str]) -> list[str]:
    """Return what each command writes to a terminal of 80 columns, all in one process."""
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "CI"):
        environment.pop(name, None)
    ours, theirs = pty.openpty()
    program = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    with subprocess.Popen(
        program, stdout=theirs, stderr=subprocess.PIPE, env=environment
    ) as process:
        os.close(theirs)
        told = b"".join(iter(lambda: read(ours), b"")).decode()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    os.close(ours)
    assert process.returncode == 0
    return told.replace("\r\n", "\n").split("--\n")[:-1]


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says EIO when the other end is closed.
        return b""


@pytest.fixture
def root(store: MakeStore) -> Path:
    properties = f"KEYS\x01k{HOSTILE}\x02TAGS\x01t{HOSTILE}\x02UNIQ_KEY\x01u{HOSTILE}\x02"
    body = f"one\ntwo{HOSTILE}".encode()
    root = store([Message(topic="T", body=body, properties=properties.encode())]).root
    committed = {"offsetTable": {f"T@g{HOSTILE}": {"0": 0}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(committed))
    return root


COMMANDS = (
    ["cat", "STORE", "T"],
    ["cat", "STORE", "T", "-f", "{keys}|{tags}|{body}"],
    ["cat", "STORE", "T", "--json"],
    ["find", "STORE", "--key", f"k{HOSTILE}"],
    ["tags", "STORE"],
    ["tags", "STORE", "--csv"],
    ["tags", "STORE", "--json"],
    ["cat", "STORE", "T", "--follow", "--since", "1", "-n", "1", "-f", "{keys}|{body}"],
    ["offsets", "STORE"],
    ["lagcompare", "STORE"],
    ["backlog", "STORE", "--summary"],
    ["backlog", "STORE", "--csv"],
)


def test_nothing_in_a_message_is_a_command_to_the_terminal(root: Path) -> None:
    commands = [[str(root) if word == "STORE" else word for word in words] for words in COMMANDS]
    for words, told in zip(commands, shown(*commands), strict=True):
        assert "\x1b[31mred" not in told, words
        assert "red" in told, words
        assert COLOURS.sub("", told).replace("\n", "").isprintable(), words


def test_a_message_is_a_line_on_a_terminal_and_as_it_is_in_a_pipe(root: Path) -> None:
    words = ["cat", str(root), "T", "-f", "{body}"]
    program = [sys.executable, "-c", "from mqlog_jobs.cli import main; main()"]
    piped = subprocess.run([*program, *words], check=True, capture_output=True, timeout=300).stdout

    (told,) = shown(words)
    assert told.count("\n") == 1
    assert piped == f"one\ntwo{HOSTILE}\n".encode()
