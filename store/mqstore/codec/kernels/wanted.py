"""Maps the columns of a read to the outputs of the decode kernel that they need."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mqstore.codec.kernels.abi import MOST_PICKS
from mqstore.format.properties import KEYS, SHARDING_KEY, TAGS, UNIQ_KEY

FIXED: Final[dict[str, tuple[str, int]]] = {
    "queueId": ("queue_id", 4),
    "partition": ("queue_id", 4),
    "storeSize": ("total_size", 4),
    "bodyCRC": ("body_crc", 4),
    "flag": ("flag", 4),
    "sysFlag": ("sys_flag", 4),
    "compression": ("sys_flag", 4),
    "transactionState": ("sys_flag", 4),
    "reconsumeTimes": ("reconsume_times", 4),
    "bornTimestamp": ("born_us", 8),
    "storeTimestamp": ("store_us", 8),
    "timestamp": ("store_us", 8),
    "preparedTransactionOffset": ("prepared_transaction_offset", 8),
}
"""Numbers, by column: the kernel's output and the bytes of one."""
TEXTS: Final[dict[str, str]] = {
    "topic": "topic",
    "brokerName": "broker",
    "body": "body",
    "value": "body",
    "bornHost": "born_host",
    "storeHost": "store_host",
    "offsetMsgId": "msg_id",
}
PICKS: Final[dict[str, tuple[str, bool]]] = {
    "tags": (TAGS, False),
    "keys": (KEYS, False),
    "key": (KEYS, False),
    "shardingKey": (SHARDING_KEY, False),
    "msgId": (UNIQ_KEY, True),
}
"""Properties with a column: the name, and whether the broker's id stands in for a missing one."""
ENTRY_COLUMNS: Final = frozenset({"properties", "headers"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """The outputs for some columns, each once."""

    fixed: dict[str, int]
    texts: tuple[str, ...]
    picks: tuple[tuple[str, bool], ...]
    entries: bool

    @classmethod
    def of(cls, columns: Iterable[str]) -> "Wanted":
        """Return what those columns of ``codec.schema`` are made of."""
        names = list(columns)
        picks = tuple(dict.fromkeys(PICKS[name] for name in names if name in PICKS))
        assert len(picks) <= MOST_PICKS
        return cls(
            dict(FIXED[name] for name in names if name in FIXED),
            tuple(dict.fromkeys(TEXTS[name] for name in names if name in TEXTS)),
            picks,
            not ENTRY_COLUMNS.isdisjoint(names),
        )
