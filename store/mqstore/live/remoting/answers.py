"""Answers checked: a refusal is an error by name, a value is of the type it must be.

Reference: org.apache.rocketmq.remoting.protocol.ResponseCode; AclException of ACL 1.0, which a
broker answers with code 1; AuthenticationException and AuthorizationException of ACL 2.0, which a
broker answers with 16 and a proxy with 1 (DefaultAuthenticationHandler, UserAuthorizationHandler,
AclAuthorizationHandler).
"""

import re
from typing import Any, Final

from mqstore.live.remoting.errors import (
    AccessDeniedError,
    BrokenAnswerError,
    BrokerUnavailableError,
    RequestRefusedError,
)
from mqstore.live.remoting.fastjson import InvalidBodyError, loads
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import (
    BUSY,
    JSON_FORMAT,
    NO_PERMISSION,
    PROPERTIES,
    SYSTEM_ERROR,
    Request,
)

NOT_READABLE: Final = "pulling message is forbidden"
"""PullMessageProcessor, for want of the topic's perm R: whoever asks."""
_ACL_1: Final = "AclException"
_ACL_2: Final = re.compile(
    "username cannot be null|check signature failed|has no permission to access"
    r"|Authentication failed|^User:.* (is not found|not found|is disabled)\."
)
_KNOWN: Final = "has no permission to access"
_INT64: Final = range(-(2**63), 2**63)


class BusyError(BrokerUnavailableError):
    """The server refused before it did anything; the connection is good."""


def checked(address: str, request: Request, answer: Frame) -> Frame:
    """Return the answer if its code is one that the request accepts; NO_PERMISSION: any denial.

    Raises BusyError, AccessDeniedError or RequestRefusedError, with the first line of what the
    server says (the rest is a Java stack or a link).
    """
    if (NO_PERMISSION if denies(answer) else answer.code) in request.accepts:
        return answer
    if answer.code in BUSY:
        remark = first_line(answer)
        reason = f"is busy, or shuts down: {request.name} got code {answer.code} {remark}"
        raise BusyError(address, reason)
    raise refusal(address, request, answer)


def denies(answer: Frame) -> bool:
    """Tell whether an answer is a refusal because of ACL 1.0, ACL 2.0 or a topic's perm."""
    if answer.code == SYSTEM_ERROR:
        first = first_line(answer)
        return _ACL_1 in first or _ACL_2.search(first) is not None
    return answer.code == NO_PERMISSION


def is_of_rights(error: AccessDeniedError) -> bool:
    """Tell whether ACL 2.0 knew the user, who lacks a right: the credentials are good."""
    return _KNOWN in error.remark


def refusal(address: str, request: Request, answer: Frame) -> RequestRefusedError:
    """Return the error for a request that was refused, with the first line of the remark."""
    if denies(answer):
        rights = request.rights or "to be known to the server"
        return AccessDeniedError(address, request.name, answer.code, first_line(answer), rights)
    return RequestRefusedError(address, request.name, answer.code, first_line(answer))


def first_line(answer: Frame) -> str:
    """Return the first line of the remark: the rest is a Java stack or a link."""
    lines = answer.remark.splitlines()
    return lines[0] if lines else ""


def value(address: str, request: Request, answer: Frame) -> Any:
    """Return the value in the body: of JSON, or of properties a dict of texts.

    Raises BrokenAnswerError.
    """
    try:
        if request.answer == PROPERTIES:
            return dict(_properties(bytes(answer.body)))
        assert request.answer == JSON_FORMAT, request.name
        return loads(answer.body)
    except InvalidBodyError as error:
        raise BrokenAnswerError(address, f"{request.name}: {error}") from error


def table(address: str, found: Any, name: str) -> dict[Any, Any]:
    """Return ``found[name]``, an object; empty if it is not there. Raises BrokenAnswerError."""
    inner = found.get(name) if isinstance(found, dict) else None
    if inner is None:
        inner = {}
    if not isinstance(found, dict) or not isinstance(inner, dict):
        raise BrokenAnswerError(address, f"{name} is no object")
    return inner


def rows(address: str, found: Any, name: str) -> list[Any]:
    """Return ``found[name]``, an array; empty if it is not there. Raises BrokenAnswerError."""
    inner = found.get(name) if isinstance(found, dict) else None
    if inner is None:
        inner = []
    if not isinstance(found, dict) or not isinstance(inner, list):
        raise BrokenAnswerError(address, f"{name} is no array")
    return inner


def number(address: str, found: Any, name: str) -> int:
    """Return ``found[name]``, a 64-bit integer. Raises BrokenAnswerError."""
    inner = found.get(name) if isinstance(found, dict) else None
    if not isinstance(inner, int) or isinstance(inner, bool) or inner not in _INT64:
        raise BrokenAnswerError(address, f"{name} is no 64-bit integer")
    return inner


def text(address: str, found: Any, name: str) -> str:
    """Return ``found[name]``, a text. Raises BrokenAnswerError."""
    inner = found.get(name) if isinstance(found, dict) else None
    if not isinstance(inner, str):
        raise BrokenAnswerError(address, f"{name} is no text")
    return inner


def header_number(address: str, answer: Frame, name: str) -> int:
    """Return the 64-bit integer of a header field. Raises BrokenAnswerError."""
    digits = answer.fields.get(name, "")
    bare = digits[1:] if digits.startswith("-") else digits
    if not (bare.isascii() and bare.isdigit() and len(bare) < 20 and int(digits) in _INT64):
        raise BrokenAnswerError(address, f"{name} is no 64-bit integer")
    return int(digits)


def _properties(body: bytes) -> list[tuple[str, str]]:
    lines = body.decode(errors="replace").splitlines()
    pieces = (line.partition("=") for line in lines if not line.startswith("#"))
    return [(name, text) for name, mark, text in pieces if mark]
