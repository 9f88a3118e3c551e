"""The errors of staged files, each with the name of its condition.

StoreError
├── StagingNotSharedError  a task cannot see the driver's staging directory
└── CorruptStagingError    a staged file differs from the report of its task
"""

from mqstore.errors import StoreError


class StagingNotSharedError(StoreError):
    """A task or the commit does not see a file that was left in the staging directory."""

    condition = "MQLOG_STAGING_NOT_SHARED"
    what: str


class CorruptStagingError(StoreError):
    """A staged file is missing or differs from what its task reported."""

    condition = "MQLOG_CORRUPT_STAGING"
    what: str
