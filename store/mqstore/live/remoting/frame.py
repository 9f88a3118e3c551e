"""One command of the Remoting protocol as a value, and its bytes: JSON and binary headers.

Every length in a frame is checked against what is there, and numbers, text and fields against
what they must be: a server is not trusted.

Reference: org.apache.rocketmq.remoting.protocol.RemotingCommand#encode, #decode,
RocketMQSerializable#rocketMQProtocolEncode, #rocketMQProtocolDecode.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from mqstore.format.remoting import (
    BINARY,
    BINARY_HEAD,
    EXT_LENGTH,
    FRAME,
    HEADER_LENGTH_MASK,
    JSON,
    KIND_SHIFT,
    NAME_LENGTH,
    RESPONSE_FLAG,
    VALUE_LENGTH,
    VERSION,
)
from mqstore.live.remoting.fastjson import InvalidBodyError, loads

_LENGTH_BYTES: Final = FRAME["length"].itemsize
_MARK_BYTES: Final = FRAME["mark"].itemsize
_HTTP: Final = int.from_bytes(b"HTTP", "big")  # What such a server begins its answer with.
HEAD_BYTES: Final = FRAME.itemsize
_INT32_RANGE: Final = range(-(2**31), 2**31)
_MOST_FIELDS: Final = 1_000
_MOST_HEADER_BYTES: Final = 1 << 20  # A remark with a Java stack and a few fields are kilobytes.
_LANGUAGE: Final = "PYTHON"
_TO_JSON: Final = json.JSONEncoder(separators=(",", ":")).encode


class FrameError(ValueError):
    """Bytes that are no frame; the message names the rule they break."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A command: ``code`` of a request or an answer, its header fields and its body."""

    code: int
    opaque: int
    flag: int = 0
    fields: Mapping[str, str] = field(default_factory=dict, repr=False)
    remark: str = ""
    body: bytes | bytearray | memoryview = field(default=b"", repr=False)

    @property
    def is_response(self) -> bool:
        """Tell an answer from a request of the server's."""
        return bool(self.flag & RESPONSE_FLAG)


def encode(frame: Frame) -> bytes:
    """Return the bytes of a command, with a header in JSON."""
    header = _json_header(frame)
    length = _MARK_BYTES + len(header) + len(frame.body)
    mark = JSON << KIND_SHIFT | len(header)
    head = length.to_bytes(_LENGTH_BYTES, "big") + mark.to_bytes(_MARK_BYTES, "big")
    return b"".join((head, header, frame.body))


def sizes(head: bytes | bytearray, most_bytes: int) -> tuple[int, int, int]:
    """Return kind, header bytes and body bytes of the frame that starts with ``head``.

    ``head`` has HEAD_BYTES. Raises FrameError for a frame larger than ``most_bytes`` behind its
    length, one that has no room for its header, and a kind of header that does not exist.
    """
    length = int.from_bytes(head[:_LENGTH_BYTES], "big", signed=True)
    mark = int.from_bytes(head[_LENGTH_BYTES:], "big")
    check_length(length, most_bytes)
    kind, header_bytes = mark >> KIND_SHIFT, mark & HEADER_LENGTH_MASK
    if kind not in (JSON, BINARY):
        raise FrameError(f"a frame whose header is of kind {kind}, which does not exist")
    if header_bytes > min(length - _MARK_BYTES, _MOST_HEADER_BYTES):
        raise FrameError(f"a header of {header_bytes} bytes in a frame of {length}")
    return kind, header_bytes, length - _MARK_BYTES - header_bytes


def check_length(length: int, most_bytes: int) -> None:
    """Raise FrameError for a frame that cannot be, or is larger than ``most_bytes``."""
    if length == _HTTP:
        raise FrameError("an answer of HTTP: a web server or a proxy, no name server or broker")
    if length < _MARK_BYTES:
        raise FrameError(f"a frame of {length} bytes")
    if length > most_bytes:
        raise TooLargeError(f"a frame of {length} bytes, more than maxFrameBytes={most_bytes}")


class TooLargeError(FrameError):
    """A frame above the limit; it may be a good one."""


def decode(kind: int, header: bytes | bytearray, body: bytes | bytearray | memoryview) -> Frame:
    """Return the command of a header of that kind and a body; raises FrameError."""
    return _of_json(header, body) if kind == JSON else _of_binary(bytes(header), body)


def _json_header(frame: Frame) -> bytes:
    found: dict[str, Any] = {
        "code": frame.code,
        "flag": frame.flag,
        "language": _LANGUAGE,
        "opaque": frame.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": VERSION,
    }
    if frame.fields:
        found["extFields"] = dict(frame.fields)
    if frame.remark:
        found["remark"] = frame.remark
    return _TO_JSON(found).encode()


def _of_json(header: bytes | bytearray, body: bytes | bytearray | memoryview) -> Frame:
    try:
        found = loads(header)
    except InvalidBodyError as error:
        raise FrameError(f"a header that is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise FrameError("a header that is no JSON object")
    fields = found.get("extFields") or {}
    remark = found.get("remark") or ""
    if not isinstance(fields, dict) or len(fields) > _MOST_FIELDS or not isinstance(remark, str):
        raise FrameError("a header whose extFields or remark are of another type")
    if {*map(type, fields), *map(type, fields.values())} - {str}:
        raise FrameError("a header whose extFields are no texts")
    code, opaque, flag = (_number(found, name) for name in ("code", "opaque", "flag"))
    return Frame(code, opaque, flag, fields, remark, body)


def _number(found: dict[Any, Any], name: str) -> int:
    value = found.get(name, 0 if name == "flag" else None)
    if type(value) is not int or value not in _INT32_RANGE:  # A bool is no number here.
        raise FrameError(f"a header whose {name} is no 32-bit number")
    return value


def _of_binary(header: bytes, body: bytes | bytearray | memoryview) -> Frame:
    if len(header) < BINARY_HEAD.itemsize:
        raise FrameError(f"a binary header of {len(header)} bytes")
    head = np.ndarray((), BINARY_HEAD, header)
    at = BINARY_HEAD.itemsize
    remark, at = _piece(header, at, int(head["remark_length"]), "remark")
    (length, at) = _length(header, at, EXT_LENGTH)
    if length != len(header) - at:
        raise FrameError("a binary header whose fields do not end with it")
    fields: dict[str, str] = {}
    while at < len(header) and len(fields) <= _MOST_FIELDS:
        length, at = _length(header, at, NAME_LENGTH)
        name, at = _piece(header, at, length, "field name")
        length, at = _length(header, at, VALUE_LENGTH)
        fields[name], at = _piece(header, at, length, "field value")
    if at < len(header):
        raise FrameError(f"a binary header of more than {_MOST_FIELDS} fields")
    code, opaque, flag = (int(head[name]) for name in ("code", "opaque", "flag"))
    return Frame(code, opaque, flag, fields, remark, body)


def _length(header: bytes, at: int, dtype: "np.dtype[Any]") -> tuple[int, int]:
    end = at + dtype.itemsize
    if end > len(header):
        raise FrameError("a binary header that ends in a length")
    return int.from_bytes(header[at:end], "big", signed=True), end


def _piece(header: bytes, at: int, length: int, what: str) -> tuple[str, int]:
    if not 0 <= length <= len(header) - at:
        raise FrameError(f"a binary header with a {what} of {length} bytes, which reach out of it")
    return header[at : at + length].decode(errors="replace"), at + length
