"""The errors of mqlog: ``MqlogError`` is the base of all, ``StoreError`` in ``mqstore.errors``.

Each has a ``condition``, which its text begins with in brackets: ``[MQLOG_STORE_NOT_FOUND] …``.
"""

from mqstore import errors as _tree
from mqstore.audit.errors import CorruptTableError
from mqstore.bodies.errors import CorruptBodyError
from mqstore.copy.errors import ClockJumpError, OtherStoreError
from mqstore.deliver.once.errors import (
    ControlTooLargeError,
    InterruptedSendError,
    LostHistoryError,
    NewerOwnerError,
    NotVisibleError,
    PublicationError,
    TornMessageError,
)
from mqstore.errors import (
    CorruptConfigError,
    CorruptStoreError,
    DataLossError,
    HoldLostError,
    InvalidMessageError,
    InvalidOptionError,
    InvalidQueryError,
    InvalidSchemaError,
    MessageTooLargeError,
    NondeterministicWriteError,
    NoSpaceError,
    NotARepositoryError,
    NotAStoreError,
    PointNotFoundError,
    StoreLockedError,
    StoreNotFoundError,
    StoreReplacedError,
    StoreUnavailableError,
    UncleanStoreError,
    UnknownGroupError,
    UnknownTopicError,
    UnsafePathError,
    UnsupportedStoreError,
    UnsupportedTopicError,
)
from mqstore.files.txn.errors import CorruptStagingError, StagingNotSharedError
from mqstore.live.remoting.errors import (
    AccessDeniedError,
    BrokenAnswerError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    LocalModeError,
    NoMasterError,
    NotServedError,
    RequestRefusedError,
    ServerError,
)
from mqstore.live.send.errors import (
    NotReplicatedError,
    SendFailedError,
)
from mqstore.merge.errors import NewSourceError, NoChangeOrderError
from mqstore.read.errors import StoreNotSharedError
from mqstore.write.errors import (
    CommitInDoubtError,
)

MqlogError = _tree.StoreError

__all__ = [
    "AccessDeniedError",
    "BrokenAnswerError",
    "BrokerTimeoutError",
    "BrokerUnavailableError",
    "ClockJumpError",
    "CommitInDoubtError",
    "ControlTooLargeError",
    "CorruptBodyError",
    "CorruptConfigError",
    "CorruptStagingError",
    "CorruptStoreError",
    "CorruptTableError",
    "DataLossError",
    "HoldLostError",
    "InterruptedSendError",
    "InvalidMessageError",
    "InvalidOptionError",
    "InvalidQueryError",
    "InvalidSchemaError",
    "LocalModeError",
    "LostHistoryError",
    "MessageTooLargeError",
    "MqlogError",
    "NewSourceError",
    "NewerOwnerError",
    "NoChangeOrderError",
    "NoMasterError",
    "NoSpaceError",
    "NondeterministicWriteError",
    "NotARepositoryError",
    "NotAStoreError",
    "NotReplicatedError",
    "NotServedError",
    "NotVisibleError",
    "OtherStoreError",
    "PointNotFoundError",
    "PublicationError",
    "RequestRefusedError",
    "SendFailedError",
    "ServerError",
    "StagingNotSharedError",
    "StoreLockedError",
    "StoreNotFoundError",
    "StoreNotSharedError",
    "StoreReplacedError",
    "StoreUnavailableError",
    "TornMessageError",
    "UncleanStoreError",
    "UnknownGroupError",
    "UnknownTopicError",
    "UnsafePathError",
    "UnsupportedStoreError",
    "UnsupportedTopicError",
]
