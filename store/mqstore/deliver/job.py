"""A job that sends rows to a cluster, and what its tasks report: frozen values that pickle."""

from dataclasses import dataclass, field

from mqstore.deliver.parts import HandedMessages, folder_of
from mqstore.deliver.settings import SendSettings
from mqstore.files.txn.ledger import Key
from mqstore.live.send.requests import Queue
from mqstore.live.send.sender import SendCounts
from mqstore.live.send.topics import MessageLimits
from mqstore.write.stage.job import RowJob, TaskReport


@dataclass(frozen=True, slots=True, kw_only=True)
class SendJob(RowJob):
    """A job that may run: made by ``prepare`` on the driver, read by every task."""

    settings: SendSettings
    limits: MessageLimits
    """What every broker of the topic takes."""
    queues: tuple[Queue, ...] = ()
    """The queues of the option ``topic``, or of the topics that rows are known to name."""
    key: Key | None = None
    """Identifies a write that is to happen once."""
    made: tuple[str, ...] = ()
    """Directories that ``prepare`` made, outermost first; removed again if the job fails."""

    @property
    def staging(self) -> str | None:
        """The directory for files of messages; None without ``stagingPath`` or a key."""
        path = self.settings.staging_path
        return folder_of(path, self.key) if path and self.key else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport(TaskReport):
    """What one task sent, or handed on to the publisher."""

    counts: SendCounts = field(default_factory=SendCounts)
    handed: HandedMessages = field(default_factory=HandedMessages)
    """Messages for the publisher."""
