"""mqlog send: lines of standard input to a cluster on loopback, and what is refused."""

import io
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.command import Run
from live.taking import TakingCluster


@pytest.fixture
def taking() -> Iterator[TakingCluster]:
    with TakingCluster().running() as found:
        assert isinstance(found, TakingCluster)
        found.topic("T")
        yield found


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(data: bytes) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))

    return put


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
