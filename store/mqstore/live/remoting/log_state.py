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
_SIZE_TEXT: Final = r"([0-9]{1,5})([.,][0-9]{1,3})? ([KMGTPE]?)i?B"
_CAPACITY: Final = re.compile(rf"Total : {_SIZE_TEXT}, Free : {_SIZE_TEXT}\.?")
_ROUNDED: Final = 0.01
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

    Sizes are rounded to a tenth of their unit. What a file system keeps for root is in them, but
    not in the ratio, which is rounded up to a hundredth: between both lies the size that counts.
    """
    told = runtime.get("commitLogDiskRatio", "")
    capacity = _CAPACITY.fullmatch(runtime.get("commitLogDirCapacity", "").strip())
    if _RATIO.fullmatch(told) is None or capacity is None:
        return None
    total, free = _size(*capacity.groups()[:3]), _size(*capacity.groups()[3:])
    used, ratio = max(total - free, 0), float(told)
    if not total or not used or not ratio:
        return DiskUse(total, used) if total else None
    most = used / (ratio - _ROUNDED) if ratio > _ROUNDED else total
    return DiskUse(math.floor(min(max(total, used / ratio), most)), used)


def _size(whole: str, part: str | None, unit: str) -> int:
    number = float(whole + (part or "").replace(",", "."))
    return int(number * 1024 ** _UNIT_POWERS[unit])
