"""The filter of a scan: by tag expression, SQL92, key, message id."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.format.arrays import Mask
from mqstore.format.properties import KEY_SEPARATOR
from mqstore.read.settings import ScanOptions
from mqstore.read.sql.filter import SqlFilter, parse_sql
from mqstore.read.tags import TagFilter, parse_tags

_IDS: Final = ("msgId", "offsetMsgId")


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A message passes if its tag and its properties do, and it has any of the keys, of the ids.

    Ids are upper-case hex and may be given in lower case; keys and tags are taken as they are.
    Reference: MQAdminImpl#queryMessage (keys), #viewMessage (ids).
    """

    tags: TagFilter | None
    sql: SqlFilter | None
    keys: frozenset[str]
    msg_ids: frozenset[str]

    @classmethod
    def of(cls, settings: ScanOptions) -> "RowFilter":
        """Return the filter of a scan; raises InvalidOptionError for an expression."""
        ids = frozenset((*settings.msg_ids, *(text.upper() for text in settings.msg_ids)))
        sql = parse_sql(settings.sql)
        return cls(parse_tags(settings.tags), sql, frozenset(settings.keys), ids)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that ``matches`` looks at."""
        looked_at = {"tags": self.tags is not None, "keys": bool(self.keys)}
        looked_at["properties"] = self.sql is not None
        looked_at |= dict.fromkeys(_IDS, bool(self.msg_ids))
        return tuple(name for name, used in looked_at.items() if used)

    def matches(self, column: Callable[[str], pa.Array]) -> Mask | None:
        """Return which of n messages pass, given their columns by name; None if all do."""
        masks = []
        if self.tags is not None:
            masks.append(self.tags.matches(column("tags")))
        if self.sql is not None:
            masks.append(self.sql.matches(column("properties")))
        if self.keys:
            masks.append(self._has_key(column("keys")))
        if self.msg_ids:
            masks.append(self._has_id([column(name) for name in _IDS]))
        if not masks:
            return None
        passed: Mask = np.logical_and.reduce(masks)
        return None if passed.all() else passed

    def _has_key(self, keys: pa.StringArray) -> Mask:
        # Substrings first, which is vectorised and leaves few; then the words of those.
        may = np.zeros(len(keys), np.bool_)
        for key in self.keys:
            may |= pc.match_substring(keys, key).fill_null(False).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(may).tolist():
            may[row] = not self.keys.isdisjoint(keys[row].as_py().split(KEY_SEPARATOR))
        return may

    def _has_id(self, ids: Sequence[pa.StringArray]) -> Mask:
        wanted = pa.array(sorted(self.msg_ids), pa.string())
        found = np.zeros(len(ids[0]), np.bool_)
        for column in ids:
            found |= pc.is_in(column, value_set=wanted).to_numpy(zero_copy_only=False)
        return found
