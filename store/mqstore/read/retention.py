"""What a place tells about the deletion of its CommitLog's files: settings, files, the disk.

Reference: MessageStoreConfig; DefaultMessageStore#isTimeToDelete,
CleanCommitLogService#isSpaceToDelete; UtilAll#isItTimeToDo, #getDiskPartitionSpaceUsedPercent.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from mqstore.errors import InvalidOptionError, shown
from mqstore.files.config.java_properties import parse_int, parse_properties

_LOG = logging.getLogger(__name__)

HOUR_MS: Final = 3_600_000
RETENTION_SETTINGS: Final = (
    "fileReservedTime",
    "deleteWhen",
    "diskMaxUsedSpaceRatio",
    "diskSpaceCleanForciblyRatio",
    "cleanFileForciblyEnable",
)
_DEFAULT_KEPT_MS: Final = 72 * HOUR_MS
_DEFAULT_HOURS: Final = frozenset({4})
_RECLAIM: Final = (75, 10, 95)
"""diskMaxUsedSpaceRatio: the default, and the least and most that its getter returns."""
_FORCE: Final = (85, 30, 85)
"""diskSpaceCleanForciblyRatio likewise; 4.9 has it as a property of the JVM only."""
_NUMBER_SETTINGS: Final = frozenset(
    {"fileReservedTime", "diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio"}
)
_MOST_CONF_BYTES: Final = 1 << 20
_MOST_HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """When a broker deletes files: MessageStoreConfig's settings, with its defaults.

    A file expires ``kept_ms`` after its last message, and goes at one of the ``hours`` of the
    broker's day, or at once while more than the part ``reclaimed_above`` of the disk is in use.
    Above ``forced_above`` the first files go, expired or not; None: never.
    """

    kept_ms: int = _DEFAULT_KEPT_MS
    hours: frozenset[int] = _DEFAULT_HOURS
    reclaimed_above: float = _RECLAIM[0] / 100
    forced_above: float | None = _FORCE[0] / 100

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "RetentionPolicy":
        """Return the policy of a broker's settings by name; those that Java cannot parse: defaults.

        Reference: MixAll#properties2Object, which leaves a default where Integer#parseInt throws;
        UtilAll#isItTimeToDo, which comes no further than the first hour that is no number.
        """
        kept = parse_int(settings.get("fileReservedTime", ""))
        forces = settings.get("cleanFileForciblyEnable", "true").lower() == "true"
        return cls(
            _DEFAULT_KEPT_MS if kept is None else max(kept, 0) * HOUR_MS,
            frozenset(h for h in _hours(settings) if 0 <= h < _MOST_HOURS) or _DEFAULT_HOURS,
            _ratio(settings.get("diskMaxUsedSpaceRatio"), _RECLAIM),
            _ratio(settings.get("diskSpaceCleanForciblyRatio"), _FORCE) if forces else None,
        )


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The disk of a CommitLog: ``used`` of ``size`` bytes, as RocketMQ counts them."""

    size: int
    used: int


@dataclass(frozen=True, slots=True)
class LogState:
    """The CommitLog: bytes [low, high) in files of ``file_bytes``; ``high`` is where it is written.

    ``is_here``: the files can be looked at, on a disk of this machine. Then ``filled`` has the end
    of each of the last full ones, and when it was last written (epoch ms), and ``high`` is the end
    of the last of them. ``last_file`` is the start of the one that is written: it is not deleted.
    """

    low: int
    high: int
    file_bytes: int
    last_file: int
    disk: DiskUse | None = None
    is_here: bool = False
    filled: tuple[tuple[int, int], ...] = ()

    def file_of(self, physical_offset: int) -> int:
        """Return where the file begins that holds a byte."""
        return physical_offset - physical_offset % self.file_bytes

    def index_of(self, physical_offset: int) -> int:
        """Return how many files lie before the one that holds a byte."""
        first = self.file_of(self.low)
        return max(0, (self.file_of(physical_offset) - first) // self.file_bytes)


def policy_of_file(option: str, text: str) -> RetentionPolicy:
    """Return the policy of a broker.conf; raises InvalidOptionError where it cannot be read."""
    settings = settings_of_file(option, text)
    _warn_of_defaults(text, *(settings.get(name) for name in RETENTION_SETTINGS))
    return RetentionPolicy.of(settings)


def settings_of_file(option: str, text: str) -> dict[str, str]:
    """Return the settings of a broker.conf; raises InvalidOptionError where it cannot be read."""
    path = Path(text)
    try:
        with path.open("rb") as file:
            found = file.read(_MOST_CONF_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidOptionError(option, text, f"cannot be read: {reason}") from None
    if len(found) > _MOST_CONF_BYTES:
        raise InvalidOptionError(option, text, "is longer than 1 MiB: give a broker.conf")
    try:
        return parse_properties(found)
    except ValueError as error:
        raise InvalidOptionError(option, text, f"no broker starts with it: {error}") from None


@lru_cache(maxsize=1024)
def _warn_of_defaults(path: str, *values: str | None) -> None:
    """Warn once in a process and for what a file says: of no name, and of what is no number."""
    if not any(value is not None for value in values):
        names = ", ".join(RETENTION_SETTINGS)
        _LOG.warning("%s has none of %s: RocketMQ's defaults count", shown(path), names)
    for name, value in zip(RETENTION_SETTINGS, values, strict=True):
        if name in _NUMBER_SETTINGS and value is not None and parse_int(value) is None:
            told = shown(repr(value))
            _LOG.warning("%s: a broker takes its default for %s=%s", shown(path), name, told)


def _hours(settings: Mapping[str, str]) -> Iterator[int]:
    """Yield the hours of deleteWhen up to one that is no number; a broker of 5.x trims the text."""
    for text in settings.get("deleteWhen", "").strip().split(";")[:_MOST_HOURS]:
        hour = parse_int(text)
        if hour is None:
            return
        yield hour


def _ratio(text: str | None, usual: tuple[int, int, int]) -> float:
    default, least, most = usual
    number = parse_int(text or "")
    return min(max(default if number is None else number, least), most) / 100
