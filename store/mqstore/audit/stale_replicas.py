"""Two replicas of a controller's group: from where on the log of one is no longer the group's.

Their epochs tell it, and no message does. What lies behind the end of the newest epoch that both
have, and before which the other has a newer one, the group threw away, acknowledged or not: a
replica that comes back cuts it off.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mqstore.derive.unconfirmed import records_behind
from mqstore.errors import CorruptStoreError
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.epochs import load_epochs
from mqstore.format.epochs import Epoch, divergence
from mqstore.read.source import Origin

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StaleReplica:
    """The log of ``root`` is stale from where ``epoch`` begins in the log of ``other``."""

    root: str
    other: str
    epoch: Epoch
    records: int
    """How many records it has behind that place."""

    def __str__(self) -> str:
        records, are = ("records", "are") if self.records > 1 else ("record", "is")
        return (
            f"epoch {self.epoch.number} begins at {self.epoch.start} in {self.other}: "
            f"{self.root} is stale from there on, and its {self.records} {records} behind it "
            f"{are} not the group's"
        )


def stale_replica(place: StoreDir, other: StoreDir) -> StaleReplica | None:
    """Return from where on the log at ``place`` is stale, by that of ``other``; None if it is not.

    Raises CorruptStoreError where the epochs of one cannot be known.
    """
    newer = divergence(load_epochs(place), load_epochs(other))
    if newer is None:
        return None
    records = records_behind(place, newer.start)
    return StaleReplica(place.root, other.root, newer, records) if records else None


def warn_of_stale(first: Sequence[Origin], second: Sequence[Origin]) -> None:
    """Log a warning where each side is one replica, and the log of one is stale."""
    places = [one for one in (*first, *second) if isinstance(one, StoreDir)]
    if not len(first) == len(second) == 1 or len(places) != 2:
        return
    for place, other in (places, places[::-1]):
        try:
            stale = stale_replica(place, other)
        except CorruptStoreError as error:
            _LOG.warning("%s; so which of the two is stale is not known", error)
            return
        if stale is not None:
            _LOG.warning("%s", stale)
