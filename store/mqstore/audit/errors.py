"""The errors of tables.

StoreError
└── CorruptTableError         a file of a table, or of samples, that cannot be read
"""

from mqstore.errors import StoreError


class CorruptTableError(StoreError):
    """A Parquet, Avro or log file of a table, or of samples, cannot be read as what it is."""

    condition = "MQLOG_CORRUPT_TABLE"
    text = "{path}: {reason!l}"
    path: str
    reason: str
