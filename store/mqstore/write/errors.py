"""The error of an interrupted commit, with the name of its condition.

StoreError
└── CommitInDoubtError  a commit was decided and not finished: the next writer finishes it
"""

from mqstore.errors import StoreError


class CommitInDoubtError(StoreError):
    """A commit was decided and is not finished; its messages will be stored exactly once.

    ``state`` is decided (no broker sees its messages) or published (a broker sees all of them).
    ``reason`` is the error that interrupted it.
    """

    condition = "MQLOG_COMMIT_IN_DOUBT"
    text = (
        "{path}: commit {key} is {state!s}, but not finished ({reason}). The next write to this "
        "store finishes it, or: mqlog recover {path}. Do not write its rows again, unless with the "
        "same txnAppId and txnVersion"
    )
    path: str
    key: str
    state: str
    reason: str
