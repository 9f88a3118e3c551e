"""What a broken or hostile server can do: each time a named error, soon, without much memory."""

import json
import socket
import struct
import threading
import time
import tracemalloc
from dataclasses import replace

import pytest

from live.loopback import BINARY, Play, frame, json_answer, listening, read_request
from mqstore.errors import StoreError
from mqstore.live.remoting.answers import checked
from mqstore.live.remoting.connection import Connection
from mqstore.live.remoting.errors import (
    BrokenAnswerError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    RequestRefusedError,
)
from mqstore.live.remoting.requests import GET_BROKER_RUNTIME_INFO
from mqstore.live.remoting.settings import Limits

QUICK = Limits(connect_timeout_ms=30_000, request_timeout_ms=300, max_frame_bytes=1 << 20)
PATIENT = replace(QUICK, request_timeout_ms=60_000)
SOON_SECONDS = 30
MOST_BYTES = 8 << 20


def sends(data: bytes) -> Play:
    """Answer the first request with those bytes, then wait for the client to go."""

    def play(peer: socket.socket) -> None:
        read_request(peer)
        peer.sendall(data)
        read_request(peer)

    return play


def closes(peer: socket.socket) -> None:
    read_request(peer)


def gives_half(peer: socket.socket) -> None:
    read_request(peer)
    peer.sendall(struct.pack(">iI", 1_000, 10))


def keeps_silent(peer: socket.socket) -> None:
    read_request(peer)
    read_request(peer)


def drips(peer: socket.socket) -> None:
    read_request(peer)
    peer.sendall(struct.pack(">iI", 1 << 19, 100))
    pause = threading.Event()
    while True:
        peer.sendall(b"x")
        pause.wait(0.02)


def answers_others(peer: socket.socket) -> None:
    read_request(peer)
    while True:
        peer.sendall(json_answer(-7, body=b"x" * 100_000))


def asks_us(peer: socket.socket) -> None:
    read_request(peer)
    while True:
        peer.sendall(frame(json.dumps({"code": 39, "opaque": 1, "flag": 0}).encode()))


def binary(*, remark: int, fields: int, rest: bytes = b"") -> bytes:
    head = struct.pack(">hbhiii", 0, 0, 0, 1, 1, remark)
    return frame(head + struct.pack(">i", fields) + rest, kind=BINARY)


Case = tuple[Play, type[StoreError], str]
CASES: dict[str, Case] = {
    "a web server": (sends(b"HTTP/1.1 400 Bad Request\r\n\r\n"), BrokenAnswerError, "HTTP"),
    "a frame of 2 GiB": (sends(struct.pack(">iI", 2**31 - 1, 0)), BrokenAnswerError, "2147483647"),
    "a negative length": (sends(struct.pack(">iI", -5, 0)), BrokenAnswerError, "-5 bytes"),
    "a length of 0": (sends(struct.pack(">iI", 0, 0)), BrokenAnswerError, "of 0 bytes"),
    "silence": (keeps_silent, BrokerTimeoutError, "requestTimeout"),
    "a byte now and then": (drips, BrokerTimeoutError, "requestTimeout"),
    "answers to nothing, without end": (answers_others, BrokerTimeoutError, "requestTimeout"),
    "requests of its own, without end": (asks_us, BrokerTimeoutError, "requestTimeout"),
    "a header longer than its frame": (
        sends(struct.pack(">iI", 9, 500) + b"hello"),
        BrokenAnswerError,
        "header of 500",
    ),
    "a header of kind 9": (
        sends(struct.pack(">iI", 9, 9 << 24 | 5) + b"hello"),
        BrokenAnswerError,
        "kind 9",
    ),
    "no JSON": (sends(frame(b"hello")), BrokenAnswerError, "no JSON"),
    "a JSON list": (sends(frame(b"[1]")), BrokenAnswerError, "no JSON object"),
    "a code that is text": (
        sends(frame(b'{"code":"x","opaque":1,"flag":1}')),
        BrokenAnswerError,
        "code is no",
    ),
    "fields that are a list": (
        sends(frame(b'{"code":0,"opaque":1,"flag":1,"extFields":[1,2]}')),
        BrokenAnswerError,
        "extFields",
    ),
    "fields that are numbers": (
        sends(frame(b'{"code":0,"opaque":1,"flag":1,"extFields":{"a":1}}')),
        BrokenAnswerError,
        "extFields",
    ),
    "JSON without end of depth": (
        sends(frame(b'{"a":' * 100_000)),
        BrokenAnswerError,
        "nested deeper",
    ),
    "a number of 5,000 digits": (
        sends(frame(b'{"code":0,"opaque":' + b"9" * 5_000 + b"}")),
        BrokenAnswerError,
        "5000 digits",
    ),
    "a string that never ends": (
        sends(frame(b'{"a":"' + b'\\"' * 400_000)),
        BrokenAnswerError,
        "no JSON",
    ),
    "binary lengths that lie": (
        sends(binary(remark=2**31 - 1, fields=0)),
        BrokenAnswerError,
        "remark",
    ),
    "a negative binary length": (
        sends(binary(remark=0, fields=9, rest=struct.pack(">h", -5) + b"x" * 7)),
        BrokenAnswerError,
        "field name of -5",
    ),
    "binary fields that end early": (
        sends(binary(remark=0, fields=400, rest=b"x" * 8)),
        BrokenAnswerError,
        "do not end with it",
    ),
    "half a frame, then the end": (
        gives_half,
        BrokerUnavailableError,
        "without an answer",
    ),
    "the end": (closes, BrokerUnavailableError, "in front of a server that is away"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_answer_is_a_named_error_soon_and_in_little_memory(name: str) -> None:
    play, error, words = CASES[name]
    with listening(play) as address:
        connection = Connection(address, QUICK if error is BrokerTimeoutError else PATIENT)
        tracemalloc.start()
        before = time.monotonic()
        try:
            with pytest.raises(error, match=words) as caught:
                connection.receive(connection.send(GET_BROKER_RUNTIME_INFO()))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            connection.close()
        assert address in str(caught.value)
        assert time.monotonic() - before < SOON_SECONDS
        assert peak < MOST_BYTES
        assert not connection.is_open


def test_a_port_where_nobody_listens_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(BrokerUnavailableError, match="no connection"):
        Connection(address, PATIENT)


def test_a_server_that_does_not_accept_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        crowd = [socket.socket() for _ in range(8)]
        for one in crowd:  # They fill the queue of the port that nobody accepts from.
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        before = time.monotonic()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(BrokerTimeoutError, match="connectTimeout"):
            Connection(address, Limits(connect_timeout_ms=300))
        assert time.monotonic() - before < SOON_SECONDS
        for one in crowd:
            one.close()


@pytest.mark.parametrize("address", ["nowhere", "host:", ":9", "h:99999", "h:-1", "[::1]"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(BrokerUnavailableError, match="no address"):
        Connection(address, PATIENT)


def test_a_host_that_is_not_known_is_unavailable() -> None:
    with pytest.raises(BrokerUnavailableError):
        Connection("no-such-host.invalid:9876", PATIENT)


def test_what_a_server_says_is_shown_as_one_short_line() -> None:
    remark = "\x1b[31mbad\x07 \u202e" + "x" * 5_000 + "\n\tat java.lang.Thread"

    def play(peer: socket.socket) -> None:
        request = read_request(peer)
        assert request is not None
        peer.sendall(json_answer(request["opaque"], 1, remark=remark))

    request = GET_BROKER_RUNTIME_INFO()
    with listening(play) as address, Connection(address, PATIENT) as connection:
        answer = connection.receive(connection.send(request))
        with pytest.raises(RequestRefusedError) as caught:
            checked(address, request, answer)
    told = str(caught.value)
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert "\n" not in told
    assert "java.lang" not in told
    assert len(told) < 400
