"""The error of a task that reads another store than the one that was planned.

StoreError
└── StoreNotSharedError  a task sees another store under the path than its driver
"""

from mqstore.errors import StoreError


class StoreNotSharedError(StoreError):
    """A task sees another store under the path than the driver planned with, or an older copy."""

    condition = "MQLOG_STORE_NOT_SHARED"
    text = (
        "{path}: this is not the store that the read was planned with: {why!s}. Driver and "
        "executors must see one store under this path: mount it on each host"
    )
    path: str
    why: str
