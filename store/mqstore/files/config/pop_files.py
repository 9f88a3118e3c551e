"""What a broker keeps of POP beside its messages: batches in order, modes, the KV service.

    config/consumerOrderInfo.json    {"table": {"topic@group": {queueId: {"o": [first offset,
                                     differences to it], "cm": bits of the acknowledged,
                                     "popTime", "i": invisible ms, "ot": {offset: visible ms}}}}}
    config/messageRequestMode.json   {"messageRequestModeMap": {topic: {group: {"mode": "POP"}}}}
    kvStore/                         a RocksDB with an entry for each open message

Both files are written every few seconds. A file that cannot be parsed is left out with a warning:
a broker does without it, too.

Reference: ConsumerOrderInfoManager.OrderInfo, MessageRequestModeManager, PopConsumerRocksdbStore.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol

from mqstore.errors import CorruptConfigError, shown
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.rocksdb.pop_entries import has_entries, read_entries
from mqstore.format import config, names
from mqstore.format.arrays import TopicGroup
from mqstore.format.pop import KvPops, OrderInfo

_LOG = logging.getLogger(__name__)
_POP_MODE: Final = "POP"
_BEYOND: Final = 2**63
_MOST_BITS: Final = 64  # A bit of a long for each; a pop gives 32 at most.


@dataclass(frozen=True, slots=True)
class PopFacts:
    """What one broker keeps of POP, by (topic, group).

    ``order_info`` None: the broker does not tell. ``kv`` None: it has entries of the KV service,
    and they cannot be read from here. ``is_buffered``: checkpoints and acknowledgements of the
    last seconds may be in the broker's memory alone.
    """

    order_info: Mapping[TopicGroup, Mapping[int, OrderInfo]] | None = field(default_factory=dict)
    modes: frozenset[TopicGroup] = frozenset()
    kv: KvPops | None = field(default_factory=KvPops)
    is_buffered: bool = False


class _Files(Protocol):
    @property
    def place(self) -> StoreDir: ...
    def load(self, name: str) -> dict[str, Any]: ...


def pop_facts(files: _Files) -> PopFacts:
    """Return what the store of these files keeps of POP. Raises as ``kv_pops``."""
    return PopFacts(
        order_infos(_loaded(files, config.CONSUMER_ORDER_INFO)),
        pop_modes(_loaded(files, config.MESSAGE_REQUEST_MODE)),
        kv_pops(files.place),
    )


def kv_pops(place: StoreDir) -> KvPops | None:
    """Return what the KV service keeps; nothing without ``kvStore``, None in an object store.

    Raises as ``read_entries``.
    """
    if not has_entries(place.folder):
        return KvPops()
    return None if place.folder.is_remote else read_entries(place.folder)


def order_infos(document: Mapping[str, Any]) -> dict[TopicGroup, dict[int, OrderInfo]]:
    """Return the batches of consumerOrderInfo.json; what no broker writes is left out."""
    found: dict[TopicGroup, dict[int, OrderInfo]] = {}
    for key, queues in _table(document, "table").items():
        topic, group = config.split_topic_group(key)
        if not names.is_topic(topic):
            continue
        by_id = {names.parse_queue_id(name): _batch(entry) for name, entry in _items(queues)}
        batches = {
            queue_id: batch
            for queue_id, batch in by_id.items()
            if queue_id is not None and batch is not None
        }
        if batches:
            found[topic, group] = batches
    return found


def pop_modes(document: Mapping[str, Any]) -> frozenset[TopicGroup]:
    """Return the (topic, group) that messageRequestMode.json switches to POP."""
    return frozenset(
        (topic, group)
        for topic, groups in _table(document, "messageRequestModeMap").items()
        for group, entry in _items(groups)
        if isinstance(entry, dict) and entry.get("mode") == _POP_MODE and names.is_topic(topic)
    )


def _batch(entry: object) -> OrderInfo | None:
    if not isinstance(entry, dict):
        return None
    differences, bits, pop_ms = entry.get("o"), entry.get("cm", 0), _time(entry.get("popTime"))
    if type(bits) is not int or pop_ms is None or not isinstance(differences, list):
        return None
    if not 0 < len(differences) <= _MOST_BITS or any(type(one) is not int for one in differences):
        return None
    first: int = differences[0]
    places = (first, *(first + one for one in differences[1:]))
    ascend = all(before < after for before, after in zip((-1, *places), places, strict=False))
    invisible = entry.get("i")
    shared = _time(pop_ms + invisible) if type(invisible) is int else pop_ms
    own = dict(_items(entry.get("ot")))
    times = [_time(own.get(str(place), shared)) for place in places]
    visible = tuple(time for time in times if time is not None)
    if not ascend or places[-1] >= _BEYOND or len(visible) < len(places):
        return None
    acknowledged = tuple(bool(bits >> number & 1) for number in range(len(places)))
    return OrderInfo(places, acknowledged, visible, pop_ms)


def _time(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _BEYOND else None


def _loaded(files: _Files, name: str) -> Mapping[str, Any]:
    try:
        return files.load(name)
    except CorruptConfigError as error:
        _warn(str(error))
        return {}


@lru_cache(maxsize=1024)
def _warn(error: str) -> None:
    """Warn once in a process and for a file."""
    _LOG.warning("POP groups are counted without it: %s", shown(error))


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = document.get(key)
    return table if isinstance(table, dict) else {}


def _items(table: object) -> list[tuple[str, Any]]:
    return list(table.items()) if isinstance(table, dict) else []
