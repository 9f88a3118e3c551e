"""The errors of sending to a cluster, each with the name of its condition.

StoreError
├── SendFailedError     messages that no broker acknowledged in the time there was
└── NotReplicatedError  messages that a broker stored and did not flush or copy in time
"""

from typing import Final

from mqstore.errors import StoreError, shown

_REASON_CHARS: Final = 600


class SendFailedError(StoreError):
    """Messages of a queue were not sent in ``sendTimeout``; ``may_be_stored`` tells what is known.

    ``queue`` names topic, broker and queue, ``reason`` is the last failure.
    """

    condition = "MQLOG_SEND_FAILED"

    def __init__(self, queue: str, count: int, reason: str, *, may_be_stored: bool) -> None:
        super().__init__(queue, count, reason, may_be_stored)

    def __reduce__(self) -> tuple[object, ...]:
        return (_send_failed, self.args)

    def message(self) -> str:
        """Name the queue, what is known of the messages, and the option that waits longer."""
        queue, count, reason, may_be_stored = self.args
        known = (
            "it is not known whether the broker stored them"
            if may_be_stored
            else "the broker did not store them"
        )
        return (
            f"{shown(queue)}: {count} messages were not acknowledged in sendTimeout, {known}. "
            f"The last failure: {shown(reason, _REASON_CHARS)}"
        )


def _send_failed(queue: str, count: int, reason: str, may_be_stored: bool) -> SendFailedError:
    return SendFailedError(queue, count, reason, may_be_stored=may_be_stored)


class NotReplicatedError(StoreError):
    """A broker stored messages, but did not flush them, or no slave had them, in its time."""

    condition = "MQLOG_NOT_REPLICATED"

    def __init__(self, queue: str, count: int, code: int) -> None:
        super().__init__(queue, count, code)

    def message(self) -> str:
        """Name the queue, the answer, and the option that accepts it."""
        queue, count, code = self.args
        return (
            f"{shown(queue)}: {count} messages are stored, but the broker answered {code} "
            "(10: not flushed in time, 11: no slave, 12: no slave in time). requireReplica=false "
            "accepts that"
        )
