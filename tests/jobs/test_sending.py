"""mqlog send: lines of standard input to a cluster on loopback, and what is refused."""

import fcntl
import json
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jobs.command import Run
from live.taking import Take, TakingCluster
from support.processes import until


@pytest.fixture
def taking() -> Iterator[TakingCluster]:
    with TakingCluster().running() as found:
        assert isinstance(found, TakingCluster)
        found.topic("T")
        yield found


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as files:

        def put(data: bytes) -> None:
            path = tmp_path / "lines"
            path.write_bytes(data)
            monkeypatch.setattr("sys.stdin", files.enter_context(path.open()))

        yield put


def held(taking: TakingCluster) -> list[tuple[bytes, dict[str, str]]]:
    return [
        (m.body, {k: v for k, v in m.properties_map.items() if k not in {"UNIQ_KEY", "WAIT"}})
        for m in taking.queues["broker-a", "T", 0].messages
        if m
    ]


def test_each_line_is_a_message(run: Run, taking: TakingCluster, typed: Any) -> None:
    typed(b"one\ntwo \xff\r\n\nthree")
    done = run("send", f"rocketmq://{taking.address}", "T", "--tag", "t", "-k", "k", "-p", "a=b=c")
    assert (done.code, done.out, done.err) == (0, "3 messages to T\n", "")
    more = {"TAGS": "t", "KEYS": "k", "a": "b=c"}
    assert held(taking) == [(b"one", more), (b"two \xff\r", more), (b"three", more)]


def test_a_line_may_have_a_key(run: Run, taking: TakingCluster, typed: Any) -> None:
    typed(b"k1\tone\nk2\ttwo\tthree\n")
    assert run("send", f"rocketmq://{taking.address}", "T", "-K", "\t").code == 0
    assert held(taking) == [(b"one", {"KEYS": "k1"}), (b"two\tthree", {"KEYS": "k2"})]
    typed(b"k1\tone\nno key\n")
    done = run("send", f"rocketmq://{taking.address}", "T", "-K", "\t")
    assert done.code == 2
    assert "line 2 has no '\\t' between a key and a body" in done.err


def test_a_line_may_be_an_object(run: Run, taking: TakingCluster, typed: Any) -> None:
    lines: list[dict[str, Any]] = [
        {"body": "é", "tags": "x", "keys": ["a", "b"], "properties": {"p": "q"}, "flag": 3},
        {"body": {"n": 1}, "shardingKey": "s"},
        {"body": "late", "delayTimeLevel": 2, "tags": None},
    ]
    typed("\n".join(map(json.dumps, lines)).encode())
    done = run("send", f"rocketmq://{taking.address}", "T", "--json-lines", "--tag", "d", "--json")
    assert done.code == 0
    assert done.rows[0]["messages"] == 3
    assert held(taking) == [
        ("é".encode(), {"TAGS": "x", "KEYS": "a b", "p": "q"}),
        (b'{"n":1}', {"TAGS": "d", "__SHARDINGKEY": "s"}),
        (b"late", {"TAGS": "d", "DELAY": "2"}),
    ]
    assert [m.flag for m in taking.queues["broker-a", "T", 0].messages if m] == [3, 0, 0]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"[]", "is no JSON object"),
        (b"{", "is not JSON"),
        (b'{"body":"x","tag":"y"}', "did you mean tags?"),
        (b'{"body":"x","flag":"y"}', "has a flag that is not a number"),
        (b'{"body":"x","tags":5}', "has a tags that is not a text"),
        (b'{"body":"x","properties":{"a":1}}', "has properties that are no object of texts"),
        (b'{"body":"\\ud800"}', "half of a surrogate pair"),
        (b"\xff", "is not UTF-8"),
        (b'{"tags":"x"}', "body is null"),
    ],
)
def test_a_wrong_line_is_named_and_sends_nothing(
    run: Run, taking: TakingCluster, typed: Any, line: bytes, told: str
) -> None:
    typed(b'{"body":"first"}\n' + line)
    done = run("send", f"rocketmq://{taking.address}", "T", "--json-lines")
    assert done.code == 2
    assert told in done.err
    assert taking.sends() == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("/data/store", "T"), "must be a running cluster"),
        (("ADDRESS", "U"), "[MQLOG_UNKNOWN_TOPIC] no broker has a topic U"),
        (("ADDRESS", "t"), "did you mean T?; -o createTopic=true makes it"),
        (("ns1:9876", "T"), "must be a running cluster: rocketmq://ns1:9876\n"),
        (("https://ns1", "T"), "must be a running cluster: rocketmqs://ns1\n"),
        (("ADDRESS", "T", "-o", "accessKey=x"), "would show in the list of processes"),
        (("ADDRESS", "T", "-o", "lockTimeout=1s"), "is for the directories of stores"),
        (("ADDRESS", "T", "-o", "createTopic"), "must be NAME=VALUE"),
        (("ADDRESS", "T", "-K", "x", "--json-lines"), "cannot stand with --json-lines"),
        (
            (
                "ADDRESS",
                "T",
                "-o",
                "delivery=exactlyOnce",
                "-o",
                "txnAppId=a",
                "-o",
                "txnVersion=1",
            ),
            "standard input cannot be read again",
        ),
        (("ADDRESS", "T", "--linger", "soon"), "option --linger='soon': must be a duration"),
        (("ADDRESS", "T", "--linger", "25h"), "must be at most 24h"),
    ],
)
def test_wrong_arguments_are_told(
    run: Run, taking: TakingCluster, typed: Any, arguments: tuple[str, ...], told: str
) -> None:
    typed(b"x\n")
    address = f"rocketmq://{taking.address}"
    done = run("send", *(address if a == "ADDRESS" else a for a in arguments))
    assert done.code == 2
    assert told in done.err
    assert taking.sends() == []


def test_a_topic_is_made_on_request(run: Run, taking: TakingCluster, typed: Any) -> None:
    typed(b"x\n")
    assert run("send", f"rocketmq://{taking.address}", "N", "-o", "createTopic=true").code == 0
    assert taking.all_bodies("N") == [b"x"]


def test_more_lines_than_a_group_has_are_all_sent(
    run: Run, taking: TakingCluster, typed: Any
) -> None:
    typed(b"".join(b"%d\n" % n for n in range(40_000)))
    done = run("send", f"rocketmq://{taking.address}", "T", "-o", "batchMaxMessages=4096")
    assert (done.code, done.out) == (0, "40,000 messages to T\n")
    assert taking.bodies("T") == [b"%d" % n for n in range(40_000)]


def test_a_wrong_line_has_its_number_behind_many(
    run: Run, taking: TakingCluster, typed: Any
) -> None:
    typed(b'{"body":"x"}\n\n' * 20_000 + b"[]\n")
    done = run("send", f"rocketmq://{taking.address}", "T", "--json-lines")
    assert done.code == 2
    assert "line 40001 is no JSON object" in done.err


def test_closed_input_is_one_line(
    run: Run, taking: TakingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    done = run("send", f"rocketmq://{taking.address}", "T")
    assert (done.code, done.err) == (2, "mqlog: standard input: Bad file descriptor\n")


class Sending:
    """The command in a process of its own, with its input open."""

    def __init__(self, taking: TakingCluster, *options: str) -> None:
        words = ["send", f"rocketmq://{taking.address}", "T", *options]
        program = "from mqlog_jobs.cli import main; main()"
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-c", program, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def interrupt(self) -> None:
        """Send SIGINT, and return once it was noticed."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if b"interrupted: the lines that came are sent" in line:
                return
        raise AssertionError("it ended without a word about the interrupt")

    def ended(self) -> tuple[int, bytes]:
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        return self.process.wait(60), out


@pytest.fixture
def sending(taking: TakingCluster) -> Iterator[Callable[..., Sending]]:
    with ExitStack() as stack:

        def start(*options: str) -> Sending:
            made = Sending(taking, *options)
            stack.enter_context(made.process)
            stack.callback(made.process.kill)
            return made

        yield start


def test_lines_go_while_the_input_is_open_and_a_kill_loses_none_of_them(
    taking: TakingCluster, sending: Callable[..., Sending]
) -> None:
    command = sending()
    for count in range(1, 4):
        command.write(b"%d\nunfin" % count)
        until(lambda count=count: len(taking.bodies("T")) == count)  # type: ignore[misc]
        command.write(b"ished\n")
        until(lambda count=count: taking.bodies("T")[-1] == b"unfinished")  # type: ignore[misc]
        taking.queues["broker-a", "T", 0].messages.pop()
    command.process.kill()
    assert taking.bodies("T") == [b"1", b"2", b"3"]


def test_an_interrupt_sends_what_came_and_ends_with_130(
    taking: TakingCluster, sending: Callable[..., Sending]
) -> None:
    """A line waits for more of them for an hour here; one without its end is not sent."""
    command = sending("--linger", "1h")
    command.write(b"one\ntwo\nthr")
    until(lambda: not _unread(command))
    command.interrupt()
    assert command.ended() == (130, b"2 messages to T\n")
    assert taking.bodies("T") == [b"one", b"two"]


def test_an_interrupt_behind_the_end_of_the_input_does_not_fail_what_succeeds(
    taking: TakingCluster, sending: Callable[..., Sending]
) -> None:
    goes_on = threading.Event()
    taking.take = lambda _: Take() if goes_on.wait(60) else None
    command = sending()
    command.write(b"without an end of line: it is sent at the end of the input")
    command.end_input()
    until(lambda: bool(taking.sends()))
    command.interrupt()
    goes_on.set()
    assert command.ended() == (0, b"1 message to T\n")


def test_a_second_interrupt_ends_the_command_while_a_broker_does_not_answer(
    taking: TakingCluster, sending: Callable[..., Sending]
) -> None:
    goes_on = threading.Event()
    taking.take = lambda _: Take() if goes_on.wait(60) else None
    command = sending()
    command.write(b"one\n")
    until(lambda: bool(taking.sends()))
    command.interrupt()
    command.process.send_signal(signal.SIGINT)
    assert command.ended() == (130, b"")
    goes_on.set()


def _unread(command: Sending) -> int:
    """Return the bytes in the pipe that the command did not read yet."""
    assert command.process.stdin is not None
    count = bytearray(4)
    fcntl.ioctl(command.process.stdin.fileno(), termios.FIONREAD, count)
    return int.from_bytes(count, sys.byteorder)
