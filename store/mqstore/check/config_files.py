"""Check the JSON files of config/: what a broker that starts makes of them.

A broker that cannot parse a file, or finds it empty, reads its .bak. If that cannot be parsed
either, it does not start; if it is not there, it starts as if there had never been a file. A
.bak is the state before: the broker makes it of the file when it writes the file anew.

Reference: ConfigManager#load and #loadBak; BrokerController#initialize; MixAll#string2File.
"""

from typing import Final

from mqstore.check.finding import FindingPlace, Findings
from mqstore.errors import UnsafePathError
from mqstore.files.config.broker_config import (
    BEYOND_US,
    BROKEN,
    EMPTY,
    MISSING,
    SOUND,
    ConfigFileState,
)
from mqstore.files.store import Store
from mqstore.format import names
from mqstore.format.config import (
    BACKUP_SUFFIX,
    CONSUMER_FILTER,
    CONSUMER_OFFSET,
    DELAY_OFFSET,
    LMQ_CONSUMER_OFFSET,
    SUBSCRIPTION_GROUP,
    TOPICS,
)

_FILES: Final = (
    TOPICS,
    CONSUMER_OFFSET,
    LMQ_CONSUMER_OFFSET,
    SUBSCRIPTION_GROUP,
    CONSUMER_FILTER,
    DELAY_OFFSET,
)


def check_config_files(store: Store, findings: Findings) -> None:
    """Check that brokers can read each file, and need no .bak to."""
    for name in _FILES:
        place = FindingPlace(f"{names.CONFIG}/{name}")
        try:
            itself = store.config.look(name)
            backup = store.config.look(name + BACKUP_SUFFIX)
        except UnsafePathError as error:
            findings.error(place, error.message())
            continue
        if itself.state == SOUND or {itself.state, backup.state} == {MISSING}:
            continue
        is_safe = backup.state == SOUND or {itself.state, backup.state} <= {MISSING, EMPTY}
        report = findings.warning if is_safe else findings.error
        report(place, f"{_what(itself)}: {_consequence(itself, backup, name + BACKUP_SUFFIX)}")


def _what(file: ConfigFileState) -> str:
    return {MISSING: "not there", EMPTY: "empty"}.get(file.state, file.problem)


def _consequence(itself: ConfigFileState, backup: ConfigFileState, backup_name: str) -> str:
    """Return what a broker does when it starts on these files."""
    if itself.state == BEYOND_US:
        return f"mqlog does not read it, and takes {backup_name} if it can"
    if backup.state == SOUND:
        return (
            f"brokers read {backup_name}, the state before, and do not start if that breaks too, "
            "or start as if there had been neither if it is lost"
        )
    if backup.state == BROKEN:
        return f"brokers do not start, as {backup_name} cannot be read either ({backup.problem})"
    if backup.state == BEYOND_US:
        return f"brokers read {backup_name}, which mqlog does not ({backup.problem})"
    return f"brokers start as if it had never been, as {backup_name} is {_what(backup)}"
