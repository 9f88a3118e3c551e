"""What a place may have beside messages: queues that grow, progress that it takes, brokers.

A reader asks for a capability; a place that lacks it is refused by name here, and nowhere else.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

from mqstore.errors import InvalidOptionError, StoreError
from mqstore.format.arrays import TopicQueue
from mqstore.read.broker_state import GroupMember
from mqstore.read.queues import Bounds, QueueBounds, QueueFilter
from mqstore.read.retention import LogState, RetentionPolicy
from mqstore.read.source import BoundsSource, Snapshot

COMMIT_GROUP: Final = "commitGroup"
NO_STREAM: Final = (
    "this is read at rest, and a stream follows a place that grows: the directory of a store with "
    "its ConsumeQueues, or a cluster. Read it with spark.read"
)


class Tail(Protocol):
    """The moving bounds of one broker's queues, for a stream. Keeps things open: ``close`` it."""

    @property
    def chosen(self) -> QueueFilter:
        """Which queues are followed."""

    @property
    def away(self) -> StoreError | None:
        """Why the broker could not be looked at: bounds are those before. None: it could."""

    @property
    def snapshot(self) -> Snapshot:
        """The chosen queues as they were at the last look."""

    def look(self, *, at_once: bool = False) -> Bounds:
        """Return what each queue holds: now if ``at_once``, else as of a moment ago.

        The same object as before if nothing was found to have changed. Raises StoreReplacedError
        if the place is not the one it was, and what ``BoundsSource.snapshot`` raises.
        """

    def fitting(self, queue: TopicQueue, start: int, end: int, room: int) -> tuple[int, int]:
        """Return how many messages of [start, end) have at most ``room`` bytes, and their bytes."""

    def is_gone(self, queue: TopicQueue) -> bool:
        """Tell whether a queue that no look found is not there any more, for all that is known."""

    def await_here(self) -> None:
        """Return once the broker is not ``away``; raises why it is after ``retryTimeout``."""

    def close(self) -> None:
        """Close what is open; the next look opens it again."""


@runtime_checkable
class Followable(Protocol):
    """A BoundsSource whose queues grow: a stream may follow them. Not every one has this."""

    def tail(
        self, chosen: QueueFilter, *, strict: bool = True, fail_on_data_loss: bool = True
    ) -> Tail:
        """Return the moving bounds of the chosen queues. Raises as ``BoundsSource.snapshot``."""


@runtime_checkable
class PublishesGroups(Protocol):
    """A BoundsSource that takes a stream's progress as a consumer group's. Not every one does."""

    def claim_group(self, group: str) -> None:
        """Make ready to publish a stream's progress as that consumer group's.

        Raises InvalidOptionError (option ``commitGroup``) for a group that the broker knows, and
        where this process may not write.
        """

    def publish_group(self, group: str, queues: Mapping[TopicQueue, int]) -> bool:
        """Publish the next queue offsets of a group by topic and queueId. Raises OSError.

        False: the broker is away, and nothing was published.
        """


def followable(source: BoundsSource) -> Followable:
    """Return the source, which a stream may follow; raises InvalidOptionError where none may."""
    if isinstance(source, Followable):
        return source
    raise InvalidOptionError("path", source.origin.name, NO_STREAM)


def group_publisher(source: BoundsSource, group: str) -> PublishesGroups:
    """Return the source, which takes the progress of ``group``; raises InvalidOptionError."""
    if isinstance(source, PublishesGroups):
        return source
    expected = f"progress is kept in the store, and mqlog only reads {source.origin.name}"
    raise InvalidOptionError(COMMIT_GROUP, group, f"{expected}: leave the option out")


@runtime_checkable
class GrantsRights(Protocol):
    """A BoundsSource that lets a user read some topics and not others. Not every one does."""

    def unreadable(self, queues: Sequence[QueueBounds]) -> Mapping[str, StoreError]:
        """Return the topics of those queues whose messages this user may not read, and why.

        With a warning; raises the refusal of one that the user named.
        """


def unreadable(source: BoundsSource, queues: Sequence[QueueBounds]) -> Mapping[str, StoreError]:
    """Return the topics of those queues whose messages may not be read; none where all may."""
    return source.unreadable(queues) if isinstance(source, GrantsRights) else {}


@runtime_checkable
class SamplesTimes(Protocol):
    """A BoundsSource that can look whether the clock of its broker went back. Not every one can."""

    def went_back(self, queues: Sequence[QueueBounds]) -> list[bool]:
        """Tell for each queue whether a few of its messages show that store timestamps go back."""


def went_back(source: BoundsSource, queues: Sequence[QueueBounds]) -> list[bool]:
    """Return what ``SamplesTimes.went_back`` does; False where nobody looks."""
    return source.went_back(queues) if isinstance(source, SamplesTimes) else [False] * len(queues)


@runtime_checkable
class ShowsMembers(Protocol):
    """A BoundsSource whose broker can ask the consumers of a group. Not every one does."""

    def members(self, group: str) -> Sequence[GroupMember] | None:
        """Return the members of a group that are connected; None if that cannot be known."""


@runtime_checkable
class DeletesFiles(Protocol):
    """A BoundsSource that can tell when its broker deletes messages. Not every one can."""

    def retention_policy(self) -> RetentionPolicy | None:
        """Return the broker's settings of retention; None: not known."""

    def log_state(self) -> LogState | None:
        """Return the CommitLog's files and their disk; None: not known."""

    def file_written_ms(self, physical_offset: int) -> int | None:
        """Return when the file with that byte was last written (epoch ms); None: not known."""


@runtime_checkable
class IsLookedAt(Protocol):
    """A BoundsSource whose broker is looked at together with others. Not every one is."""

    @property
    def away(self) -> StoreError | None:
        """Why the last look left the broker out; None: it did not."""

    @property
    def look(self) -> int | None:
        """The number of the look that last found a change of the broker; None: not known.

        Topics, settings, offsets, bounds and consumers are the same until the number changes.
        """


def unchanged_since(source: BoundsSource) -> int | None:
    """Return the number of the look that last found a change of the broker; None: not known."""
    return source.look if isinstance(source, IsLookedAt) else None


def check_here(sources: Sequence[BoundsSource]) -> None:
    """Raise the error of a broker that the last look left out."""
    for source in sources:
        if isinstance(source, IsLookedAt) and source.away is not None:
            raise source.away


class BrokerFinder(Protocol):
    """A place with several brokers, which come and go: a cluster. ``close`` it."""

    @property
    def is_proxy(self) -> bool:
        """Whether a proxy stands before them, which tells of what is named alone."""

    def brokers(self) -> Sequence[str]:
        """Return the names of the brokers that are there now."""

    def registered(self) -> Sequence[str]:
        """Return the same by connections of its own that wait for no server, in any one thread."""

    def look(
        self,
        brokers: Sequence[str],
        topics: Callable[[str], bool] | None = None,
        groups: Callable[[str], object] | None = None,
    ) -> None:
        """Ask all those brokers at once what is then asked of each, for some seconds.

        What queues of those ``topics`` hold, and who consumes as those ``groups``; None: of none.
        A broker that does not answer is as if it had nothing, with a warning, unless all are so.
        """

    def source(self, broker_name: str) -> "FoundBounds":
        """Return that broker, there or not."""

    def close(self) -> None:
        """Close what is open."""


class FoundBounds(BoundsSource, Followable, Protocol):
    """A broker that was found, and may go away: its tail may be ``away`` from the start."""
