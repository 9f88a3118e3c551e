"""A job that sends rows to a cluster, and what its tasks report: frozen values that pickle."""

from dataclasses import dataclass, field

from mqstore.deliver.settings import SendSettings
from mqstore.live.send.sender import SendCounts
from mqstore.stage.job import RowJob, TaskReport


@dataclass(frozen=True, slots=True, kw_only=True)
class SendJob(RowJob):
    """A job that may run: made by ``prepare`` on the driver, read by every task."""

    settings: SendSettings
    max_message_size: int
    """Bytes of a body that every broker of the topic takes."""
    made: tuple[str, ...] = ()
    """Directories that ``prepare`` made, outermost first; removed again if the job fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport(TaskReport):
    """What one task sent."""

    counts: SendCounts = field(default_factory=SendCounts)
