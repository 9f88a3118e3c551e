"""Messages by a key or an id, in all topics of a store: through the IndexFiles, then verified."""

from collections.abc import Iterator
from dataclasses import dataclass

from mqlog_jobs.render import Row
from mqlog_jobs.views import rows_of
from mqstore.codec.schema import resolve_columns
from mqstore.errors import InvalidOptionError
from mqstore.read.lookup import narrow
from mqstore.read.plan import slices_of
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """What was asked for, as typed: keys, or message ids (UNIQ_KEY or offsetMsgId); any of them.

    Raises InvalidOptionError for both or neither.
    """

    keys: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.keys) == bool(self.ids):
            given = "both" if self.keys else "neither"
            raise InvalidOptionError("--key, --id", given, "give the one or the other")


def find(snapshot: Snapshot, sought: KeyQuery, on_corrupt: str = "rescue") -> Iterator[Row]:
    """Yield every message found, all columns, by topic and queue; there is no limit to them.

    ``on_corrupt`` is fail, skip or rescue, as in ScanSettings; raises what a scan raises.
    Where no IndexFile covers a range it is scanned, and a warning says how much of it.
    Differs from the broker: DefaultMessageStore#queryMessage stops at maxMsgsNumBatch (64), and
    mqadmin queryMsgByKey at its own limit and a span of time.
    """
    slices = slices_of(snapshot)
    settings = ScanSettings(
        columns=resolve_columns("full"), keys=sought.keys, msg_ids=sought.ids, on_corrupt=on_corrupt
    )
    for batch in scan(narrow(slices, sought.keys, sought.ids), settings):
        yield from rows_of(batch)
