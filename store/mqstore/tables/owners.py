"""Whose the rows of tables are: the column ``isSystem``, of topics and of groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

from mqstore.codec import compute as pc
from mqstore.codec.arrow_compat import with_column
from mqstore.format.names import is_system_group, is_system_topic
from mqstore.tables.columns import Columns

IS_SYSTEM: Final = "isSystem"
OF_TOPIC: Final[Columns] = ((IS_SYSTEM, pa.bool_(), False, "one of RocketMQ's own topics"),)
OF_GROUP: Final[Columns] = ((IS_SYSTEM, pa.bool_(), False, "one of RocketMQ's own groups"),)


@dataclass(frozen=True, slots=True)
class Owners:
    """Tells of rows whether their topic or group, in the column ``owner``, is RocketMQ's own.

    ``own`` are the topics that brokers have under names of their own. Pickles into a task.
    """

    owner: Literal["topic", "group"]
    own: frozenset[str] = frozenset()

    def columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns to read for those."""
        if IS_SYSTEM not in columns or self.owner in columns:
            return tuple(columns)
        return (*columns, self.owner)

    def marked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the column ``isSystem``, if they do not have it already."""
        if IS_SYSTEM in rows.schema.names:
            return rows
        names = rows[self.owner].dictionary_encode()
        is_own = [self._is_system(str(name)) for name in names.dictionary.to_pylist()]
        column = pc.take(pa.array(is_own, pa.bool_()), names.indices)
        return with_column(rows, pa.field(IS_SYSTEM, pa.bool_(), nullable=False), column)

    def _is_system(self, name: str) -> bool:
        if self.owner == "group":
            return is_system_group(name)
        return is_system_topic(name) or name in self.own
