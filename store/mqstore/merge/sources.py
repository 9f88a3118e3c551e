"""The end of an order: a database whose log begins again, or another one in its place."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self, TypeAlias

from mqstore.merge.errors import NewSourceError

LogPlace: TypeAlias = tuple[int, ...]
"""(file, position, row) of a change."""
_GROWN_US: Final = 60_000_000
"""A change that is older by its sequence and later by more than this is of a new source: what a
producer sends twice has its old times."""


@dataclass(slots=True)
class SourceWatch:
    """What was seen of a source, queue by queue.

    greatest: by queue, of the sequences. newest_us: the latest time of a change that was in order.
    resets_us: after each of these times changes are of a new source. fallen: queues in which
    sequences are below the greatest.
    """

    greatest: dict[str, LogPlace] = field(default_factory=dict)
    newest_us: int | None = None
    resets_us: list[int] = field(default_factory=list)
    fallen: set[str] = field(default_factory=set)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the watch that ``as_json`` gave."""
        greatest = {queue: tuple(place) for queue, place in value["greatest"].items()}
        return cls(greatest, value["newestUs"], list(value["resetsUs"]), set(value["fallen"]))

    def as_json(self) -> dict[str, Any]:
        """Return the watch as a value of JSON."""
        return {
            "greatest": {queue: list(place) for queue, place in self.greatest.items()},
            "newestUs": self.newest_us,
            "resetsUs": self.resets_us,
            "fallen": sorted(self.fallen),
        }

    def epoch_of(self, time_us: int | None) -> int:
        """Return the number of the source of a change, from 0."""
        return 0 if time_us is None else sum(time_us > reset for reset in self.resets_us)

    def see(self, queue: str, queue_offset: int, place: LogPlace, time_us: int | None) -> int:
        """Take a change, in the order of its queue; return its epoch. Raises NewSourceError."""
        epoch = self.epoch_of(time_us)
        place = (epoch, *place)
        greatest = self.greatest.get(queue, place)
        if place >= greatest:
            self.greatest[queue] = place
            self.fallen.discard(queue)
            if time_us is not None:
                self.newest_us = max(time_us, self.newest_us or time_us)
            return epoch
        self.fallen.add(queue)
        newest = self.newest_us
        if time_us is not None and newest is not None and time_us > newest + _GROWN_US:
            since = datetime.fromtimestamp(newest / 1_000_000, UTC).isoformat(timespec="seconds")
            seconds = (time_us - newest) // 1_000_000
            raise NewSourceError(queue, queue_offset, _text(place), _text(greatest), seconds, since)
        return epoch

    def begin_again(self) -> None:
        """Take what comes after the latest change so far as of a new source."""
        if self.newest_us is not None:
            self.resets_us.append(self.newest_us)
        self.fallen.clear()


def _text(place: LogPlace) -> str:
    return ":".join(map(str, place[1:]))
