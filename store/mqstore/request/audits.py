"""The places of brokers that an audit compares, as a command or a job names them."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial

from mqstore.audit.query import AUDIT_OPTIONS, AuditOptions
from mqstore.audit.sides import AuditSide
from mqstore.options.texts import parse
from mqstore.request.chosen_queues import open_other, open_stores
from mqstore.request.places import Places
from mqstore.request.read import read_options


def audit_options(texts: Mapping[str, str]) -> AuditOptions:
    """Return the options of an audit. Raises InvalidOptionError.

    ``texts`` are the options by name in lower case.
    """
    values, given = parse(texts, AUDIT_OPTIONS, {})
    found = AuditOptions(**values)
    found.check_together(given)
    return found


def broker_sides(
    paths: Sequence[str], audit: Mapping[str, str], texts: Mapping[str, str]
) -> tuple[AuditSide, ...]:
    """Return the sides at one or two paths of brokers; of one, the other side is a table.

    ``audit`` are options as in ``audit_options``, ``texts`` those of the reads. Raises as
    ``read_options`` and ``AuditOptions.sides``.
    """
    beside = {"table": "digests"}
    if paths[1:]:
        beside = {"table": "audit", "against": paths[1], **audit}
    options = read_options((paths[0],), {**texts, **beside})
    with closing(open_stores(options)) as stores:
        if not isinstance(options.other, Places):
            return (options.audit.side(stores),)
        return options.audit.sides(stores, partial(open_other, options, options.other))
