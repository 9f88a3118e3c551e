"""The errors of sending to a cluster, each with the name of its condition.

StoreError
├── SendFailedError     messages that no broker acknowledged in the time there was
└── NotReplicatedError  messages that a broker stored and did not flush or copy in time
"""

from mqstore.errors import StoreError


class SendFailedError(StoreError):
    """Messages of a queue were not sent in ``sendTimeout``; ``may_be_stored`` tells what is known.

    ``queue`` names topic, broker and queue, ``reason`` is the last failure.
    """

    condition = "MQLOG_SEND_FAILED"
    text = (
        "{queue}: {count} messages were not acknowledged in sendTimeout, {known!s}. "
        "The last failure: {reason!l}"
    )
    queue: str
    count: int
    reason: str
    may_be_stored: bool

    @property
    def known(self) -> str:
        """Return what is known of the messages."""
        if self.may_be_stored:
            return "it is not known whether the broker stored them"
        return "the broker did not store them"


class NotReplicatedError(StoreError):
    """A broker stored messages, but did not flush them, or no slave had them, in its time."""

    condition = "MQLOG_NOT_REPLICATED"
    text = (
        "{queue}: {count} messages are stored, but the broker answered {code} (10: not flushed in "
        "time, 11: no slave, 12: no slave in time). requireReplica=false accepts that"
    )
    queue: str
    count: int
    code: int
