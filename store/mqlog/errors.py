"""The errors of mqlog: ``MqlogError`` is the base of all, and ``mqstore.errors`` has the tree.

Each has a ``condition``, which its text begins with in brackets: ``[MQLOG_STORE_NOT_FOUND] …``.
"""

from mqstore import errors as _tree
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
    NotAStoreError,
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

MqlogError = _tree.StoreError

__all__ = [
    "CorruptConfigError",
    "CorruptStoreError",
    "DataLossError",
    "HoldLostError",
    "InvalidMessageError",
    "InvalidOptionError",
    "InvalidQueryError",
    "InvalidSchemaError",
    "MessageTooLargeError",
    "MqlogError",
    "NoSpaceError",
    "NondeterministicWriteError",
    "NotAStoreError",
    "StoreLockedError",
    "StoreNotFoundError",
    "StoreReplacedError",
    "StoreUnavailableError",
    "UncleanStoreError",
    "UnknownGroupError",
    "UnknownTopicError",
    "UnsafePathError",
    "UnsupportedStoreError",
    "UnsupportedTopicError",
]
