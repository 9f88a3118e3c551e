"""The errors of publishing exactly once, each with the name of its condition.

StoreError
├── TornMessageError            a killed broker kept a message of the write in part
├── LostHistoryError            the control topic no longer has the records of an application
├── NewerOwnerError             another publisher of the same application has begun
├── NotVisibleError             a broker does not show what it stored
├── ControlTooLargeError        what a control record would say is more than brokers take
├── PublicationError            a write that is not finished: run it again
└── InterruptedSendError        it is not known what a broker stored
"""

from mqstore.errors import StoreError


class TornMessageError(StoreError):
    """A broker that was killed kept a message of this write without the end of its properties.

    Brokers check the body of a record when they start again, not its properties, and serve it
    (CommitLog#checkMessageAndReturnSize).
    """

    condition = "MQLOG_TORN_MESSAGE"
    text = (
        "{write}: the broker of {queue} was killed while it stored the message at queue offset "
        "{queue_offset}, and serves it since: its body is that of a row of this write, and the end "
        "of its properties is lost (keys, tags). It cannot be removed, and with the row sent again "
        "its body would be there twice. Decide about that row; write it and the rows that are "
        "missing under another txnVersion, or with a new checkpoint"
    )
    write: str
    queue: str
    queue_offset: int


class LostHistoryError(StoreError):
    """Records of the control topic expired, and none of this application is left."""

    condition = "MQLOG_LOST_HISTORY"
    text = (
        "{write}: the topic {topic} has no record of its application, and older records have "
        "expired there (fileReservedTime), so it is not known whether the write was sent before. "
        "If it was not, as for a new application, set allowLostHistory=true"
    )
    write: str
    topic: str


class NewerOwnerError(StoreError):
    """Another driver has begun a write of this application; this one sends nothing more."""

    condition = "MQLOG_NEWER_OWNER"
    text = (
        "{write}: another publisher of the same application has begun on broker {broker}. Only one "
        "may run at a time: look for a second driver with the same txnAppId or checkpoint. Rows "
        "that both sent in this moment may be there twice"
    )
    write: str
    broker: str


class NotVisibleError(StoreError):
    """A broker acknowledged a record and does not show it in its queue."""

    condition = "MQLOG_NOT_VISIBLE"
    text = (
        "{queue}: the broker stored a record at queue offset {queue_offset} and does not show it "
        "after {seconds:g} s (visibilityTimeout). Its ConsumeQueues stand still: without them it "
        "cannot be seen what is stored. Run the write again when they move"
    )
    queue: str
    queue_offset: int
    seconds: float


class ControlTooLargeError(StoreError):
    """A write goes to so many queues, or comes from so many places, that its record is too large.

    ``size`` are the bytes that the record would have at least, ``most`` those that it may have.
    """

    condition = "MQLOG_CONTROL_TOO_LARGE"
    text = (
        "{write}: its control record would have {size:,} bytes or more, and the brokers take "
        "{most:,} (maxMessageSize, mappedFileSizeCommitLog). It names each queue of the topics, "
        "and for a replay each range of its source: write to fewer topics at a time; replay fewer "
        "messages (--topic, --since, --until, no --key) or --at-least-once. Nothing was sent"
    )
    write: str
    size: int
    most: int


class PublicationError(StoreError):
    """A write ended before all of its rows were acknowledged; it may be run again.

    ``found`` are the messages that were there at the last look.
    """

    condition = "MQLOG_PUBLICATION_UNFINISHED"
    text = (
        "{write}: not all messages could be stored ({reason!l}); {found} were there at the last "
        "look. Run it again with the same rows, txnAppId and txnVersion, or restart the query: "
        "what is there is not sent again"
    )
    write: str
    found: int
    reason: str


class InterruptedSendError(StoreError):
    """It is not known which messages a broker stored; ``reason`` says what happened."""

    condition = "MQLOG_INTERRUPTED_SEND"
    reason: str
