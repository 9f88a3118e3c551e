"""The end of a write to a cluster: what the tasks did is counted, and published where it waits."""

import logging
from dataclasses import dataclass
from typing import Final

from mqstore.deliver.job import SendJob, SendReport
from mqstore.deliver.once.commit import publish
from mqstore.deliver.prepare import finish
from mqstore.deliver.settings import EXACTLY_ONCE
from mqstore.live.send.sender import SendCounts

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Completed:
    """What a write did: ``is_repeated`` if it was committed before, so that nothing was sent."""

    counts: SendCounts
    is_repeated: bool = False


def complete(job: SendJob, reports: list[SendReport], what: str) -> Completed:
    """Finish a write whose tasks are done; ``what`` names it in warnings.

    Exactly once publishes here what the tasks handed on. Raises as ``publish``.
    """
    done = Completed(finish(job, reports))
    if job.settings.delivery == EXACTLY_ONCE:
        published = publish(job, reports)
        done = Completed(published.counts, published.is_repeated)
        if published.is_repeated:
            _LOG.warning("%s was committed before: nothing was sent", job.key)
        elif published.found:
            note = "%s: %d of %d messages were stored by an earlier try"
            _LOG.warning(note, job.key, published.found, published.messages)
    counts = done.counts
    _LOG.info("%s: %s", what, counts)
    if counts.repeats:
        note = "%s: %d requests were sent again without knowing whether they were stored"
        _LOG.warning(note, what, counts.repeats)
    if counts.alone:
        note = "%s: %d messages were not flushed, or copied to a slave, as the broker should"
        _LOG.warning(note, what, counts.alone)
    return done
