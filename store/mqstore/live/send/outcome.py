"""Classifies answers to sends: the messages are stored, not stored, or it is not known.

What is stored is never sent again. What is not stored may be; a refusal of the messages
themselves is an error. Of a code that is not here nothing is known.

Reference: SendMessageProcessor#handlePutMessageResult, BrokerFastFailure, ResponseCode.
"""

from enum import Enum
from typing import Final

from mqstore.live.remoting.answers import denies, first_line
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import (
    FLOW_CONTROL,
    GO_AWAY,
    NO_PERMISSION,
    REQUEST_CODE_NOT_SUPPORTED,
    SERVICE_NOT_AVAILABLE,
    SUCCESS,
    SYSTEM_BUSY,
    SYSTEM_ERROR,
    TOPIC_NOT_EXIST,
)

FLUSH_DISK_TIMEOUT: Final = 10
SLAVE_NOT_AVAILABLE: Final = 11
FLUSH_SLAVE_TIMEOUT: Final = 12
MESSAGE_ILLEGAL: Final = 13
INVALID_PARAMETER: Final = 29


class Outcome(Enum):
    """The outcome for the messages of a request."""

    STORED = "stored"
    STORED_ALONE = "stored, but not flushed or copied as configured"
    BUSY = "not stored: the broker has too much to do"
    AWAY = "not stored: the broker shuts down, is a slave, or its disk is full"
    REFUSED = "not stored: the messages are not accepted"
    UNKNOWN = "not known"


_BY_CODE: Final = {
    SUCCESS: Outcome.STORED,
    FLUSH_DISK_TIMEOUT: Outcome.STORED_ALONE,
    SLAVE_NOT_AVAILABLE: Outcome.STORED_ALONE,
    FLUSH_SLAVE_TIMEOUT: Outcome.STORED_ALONE,
    SYSTEM_BUSY: Outcome.BUSY,
    FLOW_CONTROL: Outcome.BUSY,
    SERVICE_NOT_AVAILABLE: Outcome.AWAY,
    GO_AWAY: Outcome.AWAY,
    REQUEST_CODE_NOT_SUPPORTED: Outcome.REFUSED,
    MESSAGE_ILLEGAL: Outcome.REFUSED,
    NO_PERMISSION: Outcome.REFUSED,
    TOPIC_NOT_EXIST: Outcome.REFUSED,
    INVALID_PARAMETER: Outcome.REFUSED,
}
# A broker answers SYSTEM_ERROR to what it does not accept too, and says so in words: queueId and
# topic "illegal", "message body size exceeded", "message properties length too long".
_OF_THE_MESSAGE: Final = ("illegal", "length", "size exceeded")


def outcome(answer: Frame) -> Outcome:
    """Return what an answer to SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE says of the messages."""
    if answer.code == SYSTEM_ERROR:
        first = first_line(answer).lower()
        if denies(answer) or any(words in first for words in _OF_THE_MESSAGE):
            return Outcome.REFUSED
    return _BY_CODE.get(answer.code, Outcome.UNKNOWN)
