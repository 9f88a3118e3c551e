"""``mqlog cat --follow``: messages as they are stored; bodies as hexadecimal and base64."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from jobs.command import Run
from mqlog_jobs.output.render import Row
from mqlog_jobs.places import Named
from mqlog_jobs.work.following import follow
from mqstore.read.message_query import MessageQuery
from support.growing import grow
from support.oracle import Message
from support.stores import MakeStore

MESSAGES = [Message(topic="T", queue_id=n % 2, body=b"m%d" % n) for n in range(8)]
ADDED = [*MESSAGES[:5], *(Message(topic="T", queue_id=2, body=b"new%d" % n) for n in range(2))]


def followed(root: Path, query: MessageQuery, wait: object) -> Iterator[Row]:
    with Named.of([str(root)]).opened(query.topic) as stores:
        yield from follow(stores, query, ("body",), 0, wait)  # type: ignore[arg-type]


def bodies(rows: Iterator[Row], number: int) -> list[object]:
    return [row["body"] for row in islice(rows, number)]


def test_what_is_stored_after_the_start_is_followed_through_new_queues(store: MakeStore) -> None:
    laid = store(MESSAGES[:3])
    steps = iter((MESSAGES[:5], ADDED))
    rows = followed(laid.root, MessageQuery("T"), lambda: grow(laid, next(steps, ADDED)))

    assert bodies(rows, 4) == [b"m3", b"m4", b"new0", b"new1"]


@pytest.mark.parametrize(
    ("query", "seen"),
    [
        (MessageQuery("T/1"), [b"m3", b"m5"]),
        (MessageQuery("T/0@-1"), [b"m2", b"m4"]),
        (MessageQuery("T", since="1"), [b"m0", b"m1"]),
        (MessageQuery("T/1@0"), [b"m1", b"m3"]),
    ],
)
def test_a_follower_may_name_a_queue_and_a_start(
    store: MakeStore, query: MessageQuery, seen: list[bytes]
) -> None:
    laid = store(MESSAGES[:3])

    assert bodies(followed(laid.root, query, lambda: grow(laid, MESSAGES)), 2) == seen


def test_a_command_that_follows_prints_each_message_at_once(store: MakeStore) -> None:
    laid = store(MESSAGES[:2])
    words = ["cat", laid.root, "T", "--follow", "--since", "1", "-n", "4", "-f", "{body}"]
    program = "from mqlog_jobs.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"m0\n", b"m1\n"]
        grow(laid, MESSAGES[:4])
        assert process.stdout.read() == b"m2\nm3\n"
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_follower_has_a_line_of_its_own_form(run: Run, store: MakeStore) -> None:
    root = store(MESSAGES[:1]).root
    out = run("cat", root, "T", "--follow", "--since", "1", "-n", "1").out
    assert out.count("\n") == 1
    assert "T/0@0" in out
    (row,) = run("cat", root, "T", "--follow", "--since", "1", "-n", "1", "--json").rows
    assert row["body"] == "m0"
    told = run("cat", root, "T", "--follow", "--until", "1")
    assert (told.code, "not together with --follow" in told.err) == (2, True)


BODY = bytes(range(256))


def test_bodies_are_printed_as_hexadecimal_or_base64(run: Run, store: MakeStore) -> None:
    root = store([Message(topic="T", body=BODY)]).root
    text = base64.b64encode(BODY).decode()

    for option, name, shown in (("--hex", "bodyHex", BODY.hex()), ("--base64", "bodyBase64", text)):
        assert run("cat", root, "T", option, "-f", "{body}").out == f"{shown}\n"
        assert shown[:150] in run("cat", root, "T", option).out
        (row,) = run("cat", root, "T", option, "--json").rows
        assert row[name] == shown
        assert "body" not in row
    assert "choose either --hex or --base64" in run("cat", root, "T", "--hex", "--base64").err


def test_json_has_a_name_for_each_form_of_a_body(run: Run, store: MakeStore) -> None:
    """Without an option it is text, or base64 where the bytes are no UTF-8."""
    root = store([Message(topic="T", body=b"text"), Message(topic="T", body=BODY)]).root
    first, second = (json.loads(line) for line in run("cat", root, "T", "--json").out.splitlines())

    assert first["body"] == "text"
    assert second["body"] is None
    assert base64.b64decode(second["bodyBase64"]) == BODY
