"""The errors of merging changes into tables.

StoreError
├── NoChangeOrderError    changes of a table that nobody can put in order
└── NewSourceError        the order of changes begins again: another database, or a new log
"""

from mqstore.errors import StoreError


class NoChangeOrderError(StoreError):
    """Changes without a sequence lie in several queues, and a row's key changed."""

    condition = "MQLOG_CHANGES.NO_ORDER"
    text = (
        "table {table!r}: its changes have no sequence and lie in {queues}, and the key of a row "
        "changed ({moved}): the order of changes in different queues is lost. Nothing of this "
        "batch was written, rows of earlier batches stay. Send each table to one queue (Canal: "
        "canal.mq.partitionHash=.*\\\\..* without a key), or send positions "
        "(canal.mq.flatMessage=false); --order queue takes the times at which messages were stored"
    )
    table: str
    queues: str
    moved: str


class NewSourceError(StoreError):
    """The sequence of changes falls while their time grows."""

    condition = "MQLOG_CHANGES.NEW_SOURCE"
    text = (
        "{queue}, offset {queue_offset}: the sequence {sequence!s} is below {greatest!s}, read "
        "before, but the change is {seconds} s later: the database has a new log (RESET "
        "MASTER, a fail-over, a restored server), whose changes would all be lost as old ones. "
        "Nothing of this batch was written. --new-source goes on with it: changes after {since!s} "
        "are of the new log"
    )
    queue: str
    queue_offset: int
    sequence: str
    greatest: str
    seconds: int
    since: str
