"""The commit of a write that is to happen once: all that tasks handed on is published."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mqstore.codec.client_ids import IdSet
from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.once.handed import HandedRows
from mqstore.deliver.once.parts import sweep
from mqstore.deliver.once.publish import Publication, Write
from mqstore.deliver.once.wire import LiveWire
from mqstore.live.send.sender import SendCounts
from mqstore.txn.ledger import Key


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
    assert job.key is not None
    ordered = sorted(reports, key=lambda report: report.partition)
    rows = HandedRows.of(job, [report.handed for report in ordered])
    done = _published(job, job.key, rows) if len(rows.ids) else _NOTHING
    if job.settings.staging_path is not None:
        sweep(job.settings.staging_path, job.key)
    return done


_NOTHING: Final = Published(0, 0, is_repeated=False, counts=SendCounts())


def _published(job: SendJob, key: Key, rows: HandedRows) -> Published:
    write = Write(key.app_id, key.version, IdSet(rows.ids))
    with LiveWire(job, rows) as wire:
        owner = secrets.token_hex(16)
        lost = job.settings.allow_lost_history
        found = Publication(write, wire, owner, allows_lost=lost).run()
        return Published(len(rows.ids), found or 0, found is None, wire.counts)
