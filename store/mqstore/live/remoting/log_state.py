"""A broker's CommitLog and its retention, as the broker tells them.

Reference: AdminBrokerProcessor#prepareRuntimeInfo (commitLogMinOffset, commitLogDiskRatio,
commitLogDirCapacity), MixAll#humanReadableByteCount.
"""

import math
import re
from collections.abc import Mapping
from typing import Final

from mqstore.live.remoting import requests
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.topics import broker_infos
from mqstore.read.retention import RETENTION_SETTINGS, DiskUse, LogState

_FILE_SIZE: Final = "mappedFileSizeCommitLog"
_DEFAULT_LOG_FILE_BYTES: Final = 1 << 30
_COUNT: Final = re.compile(r"[0-9]{1,18}")
_RATIO: Final = re.compile(r"(0|1)(\.[0-9]{1,20})?")
_CAPACITY: Final = re.compile(r"Total : ([0-9]{1,5})([.,][0-9]{1,3})? ([KMGTPE]?)i?B\b.*")
_UNIT_POWERS: Final = {letter: power for power, letter in enumerate(["", *"KMGTPE"])}


def retention_settings(cluster: Cluster, broker: str) -> dict[str, str]:
    """Return those RETENTION_SETTINGS that a broker has. Raises as Cluster#ask_all."""
    found, _ = cluster.value(broker, requests.GET_BROKER_CONFIG())
    return {name: str(found[name]) for name in RETENTION_SETTINGS if name in found}


def log_state(cluster: Cluster, broker: str) -> LogState:
    """Return the CommitLog's bounds, the size of its files, and its disk if the broker tells it.

    Raises as Cluster#ask_all.
    """
    settings, _ = cluster.value(broker, requests.GET_BROKER_CONFIG())
    digits = str(settings.get(_FILE_SIZE, ""))
    size = int(digits) if _COUNT.fullmatch(digits) else 0
    size = size or _DEFAULT_LOG_FILE_BYTES
    (info,) = broker_infos(cluster, [broker])
    last = max(info.high - 1, 0) // size * size
    return LogState(info.low, info.high, size, last, disk_of(info.runtime))


def disk_of(runtime: Mapping[str, str]) -> DiskUse | None:
    """Return the disk of a broker's runtime information; None where it tells none.

    The ratio is rounded up to a hundredth, and the size to a tenth of its unit, so ``used`` may be
    a hundredth of the disk too large.
    """
    ratio = runtime.get("commitLogDiskRatio", "")
    capacity = _CAPACITY.fullmatch(runtime.get("commitLogDirCapacity", "").strip())
    if _RATIO.fullmatch(ratio) is None or capacity is None:
        return None
    whole, part, unit = capacity.groups()
    number = float(whole + (part or "").replace(",", "."))
    size = math.floor(number * 1024 ** _UNIT_POWERS[unit])
    return DiskUse(size, min(size, math.floor(float(ratio) * size))) if size else None
