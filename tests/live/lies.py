"""What a server may say in place of an answer: each a function that says it on a connection.

Reference: the rules of frames that ``mqstore.live.remoting.frame`` checks.
"""

import json
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from live.loopback import BINARY, frame, json_answer

Lie = Callable[[socket.socket, dict[str, Any]], None]
"""Says something to the client of a request; ends when there is no more to say."""
PAUSE_S = 0.02


def says(data: bytes) -> Lie:
    return lambda peer, _: peer.sendall(data)


def answers(code: int, body: bytes = b"", remark: str | None = None, **fields: object) -> Lie:
    """An answer to the request that it was asked for."""
    return lambda peer, request: peer.sendall(
        json_answer(request["opaque"], code, body, remark, **fields)
    )


def ends(peer: socket.socket, _: dict[str, Any]) -> None:
    peer.shutdown(socket.SHUT_RDWR)


def ends_in_a_frame(peer: socket.socket, _: dict[str, Any]) -> None:
    peer.sendall(struct.pack(">iI", 1_000, 10) + b"{")
    peer.shutdown(socket.SHUT_RDWR)


def drips(peer: socket.socket, _: dict[str, Any]) -> None:
    peer.sendall(struct.pack(">iI", 1 << 19, 100))
    pause = threading.Event()
    while True:
        peer.sendall(b"x")
        pause.wait(PAUSE_S)


def answers_others(peer: socket.socket, request: dict[str, Any]) -> None:
    answer = json_answer(request["opaque"] + 1, 0, b"x" * 100_000, offset=5)
    while True:
        peer.sendall(answer)


def asks_without_end(peer: socket.socket, _: dict[str, Any]) -> None:
    question = frame(json.dumps({"code": 39, "opaque": 1, "flag": 0}).encode()) * 100
    while True:
        peer.sendall(question)


def names_many_fields(peer: socket.socket, request: dict[str, Any]) -> None:
    peer.sendall(json_answer(request["opaque"], 0, **{f"f{n}": n for n in range(2_000)}))


def is_binary_and_lies(peer: socket.socket, request: dict[str, Any]) -> None:
    head = struct.pack(">hbhiii", 0, 0, 0, request["opaque"], 1, 2**31 - 1)
    peer.sendall(frame(head + struct.pack(">i", 0), kind=BINARY))


ENDLESS: dict[str, Lie] = {
    "silence": lambda _peer, _request: None,
    "a byte now and then": drips,
    "answers to others": answers_others,
    "requests of its own": asks_without_end,
}
"""Those that a time-out ends."""
GARBAGE: dict[str, Lie] = {
    "the end": ends,
    "half a frame, then the end": ends_in_a_frame,
    "a web server": says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "a frame of 2 GiB": says(struct.pack(">iI", 2**31 - 1, 0)),
    "a negative length": says(struct.pack(">iI", -5, 0)),
    "a header longer than its frame": says(struct.pack(">iI", 9, 500) + b"hello"),
    "a header of kind 9": says(struct.pack(">iI", 9, 9 << 24 | 5) + b"hello"),
    "no JSON": says(frame(b"hello")),
    "JSON without end of depth": says(frame(b'{"a":' * 100_000)),
    "a number of 5,000 digits": says(frame(b'{"code":0,"opaque":' + b"9" * 5_000 + b"}")),
    "fields that are a list": says(frame(b'{"code":0,"opaque":1,"flag":1,"extFields":[1]}')),
    "binary lengths that lie": is_binary_and_lies,
    "2,000 fields": names_many_fields,
}
CODES: dict[str, Lie] = {
    "it shuts down, always": answers(1500, remark="GO_AWAY"),
    "it is busy, always": answers(2, remark="REJECTREQUEST"),
    "a code that does not exist": answers(999_999),
    "a negative code": answers(-1),
    "a stack of 500 KB": answers(1, remark="NullPointerException\n" + "\tat x.y.Z\n" * 50_000),
    "colours and a name that ends a line": answers(1, remark="\x1b[31mbad\x07 \u202e\r\nok"),
    "that it does not serve this": answers(3, remark="request type not supported"),
    "that a field is not there": answers(15, remark="Request doesn't have field bname"),
}
