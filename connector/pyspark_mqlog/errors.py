"""The errors of the data source, each with the name of its condition.

StoreError
├── InvalidOptionError
│   └── OverwriteUnsupportedError  any save mode but append
├── SparkTooOldError               Spark has no Python data sources that read and write streams
└── VersionMismatchError           a task's host has another version of mqlog than the driver
"""

from mqstore.errors import InvalidOptionError, StoreError


class OverwriteUnsupportedError(InvalidOptionError):
    """A save mode other than append."""

    condition = "MQLOG_OVERWRITE_UNSUPPORTED"
    text = "{expected!s}"
    option: str = "mode"
    value: object = "overwrite"
    expected: str = (
        "a message store only grows: write "
        'df.write.format("mqlog").mode("append").save(path) instead'
    )


class SparkTooOldError(StoreError):
    """Spark is of a version before the first one with Python data sources that stream."""

    condition = "MQLOG_SPARK_TOO_OLD"
    what: str


class VersionMismatchError(StoreError):
    """The host of a task has another version of mqlog than the driver."""

    condition = "MQLOG_VERSION_MISMATCH"
    text = (
        "the driver has mqlog {driver}, and this host has {here}: install one version on all of "
        "them, or send it along (--py-files, --archives)"
    )
    driver: str
    here: str
