"""The commit of a write that is to happen once: all that tasks handed on is published."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from mqstore.codec.client_ids import IdSet
from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.once.handed import HandedRows
from mqstore.deliver.once.publish import Publication, Write
from mqstore.deliver.once.wire import LiveWire
from mqstore.deliver.parts import sweep
from mqstore.deliver.receipts import Receipts
from mqstore.live.send.pace import Pace
from mqstore.live.send.sender import SendCounts


@dataclass(frozen=True, slots=True)
class Published:
    """What a publisher did: messages of the write, and how many were stored by an earlier try.

    ``is_repeated``: the write, or a newer version, was committed before; nothing was sent.
    """

    messages: int
    found: int
    is_repeated: bool
    counts: SendCounts


def publish(job: SendJob, reports: Sequence[SendReport]) -> Published:
    """Have every message of the reports in the cluster once, and remove the files of the write.

    Raises StagingNotSharedError and CorruptStagingError before anything is sent, and what
    Publication#run raises: then the write may be run again, with the same key.
    """
    ordered = sorted(reports, key=lambda report: report.partition)
    return publish_rows(HandedRows.of(job, [report.handed for report in ordered]))


def publish_rows(
    rows: HandedRows,
    *,
    source: str = "",
    receipts: Receipts | None = None,
    pace: Pace | None = None,
) -> Published:
    """Have the rows in the cluster once, as ``publish``; ``source`` stands in the control records.

    ``receipts`` note where each row is stored, but not those of a write that is repeated.
    """
    job = rows.job
    assert job.key is not None
    done = Published(0, 0, is_repeated=False, counts=SendCounts())
    if len(rows.ids):
        write = Write(job.key.app_id, job.key.version, IdSet(rows.ids), source)
        with LiveWire(job, rows, receipts=receipts, pace=pace) as wire:
            owner = secrets.token_hex(16)
            lost = job.settings.allow_lost_history
            found = Publication(write, wire, owner, allows_lost=lost).run()
            done = Published(len(rows.ids), found or 0, found is None, wire.counts)
    if job.settings.staging_path is not None:
        sweep(job.settings.staging_path, job.key)
    return done
