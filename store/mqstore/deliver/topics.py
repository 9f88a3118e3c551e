"""The topics that the rows of a task name, and the queue of each row."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np

from mqstore.deliver.job import SendJob
from mqstore.deliver.parcels import PlacedMessages, place
from mqstore.format.arrays import Int64s
from mqstore.format.names import is_system_topic, is_writable_topic
from mqstore.live.send.requests import Queue
from mqstore.live.send.topics import WriteQueues
from mqstore.write.stage.compose import Composed
from mqstore.write.stage.job import TopicQueues
from mqstore.write.stage.rows import Rows

Placing: TypeAlias = Callable[[Rows, Int64s, Composed], PlacedMessages]
"""Gives each message of rows its queue; the numbers are those that ``assign_queues`` gives."""


class TaskTopics(Mapping[str, TopicQueues]):
    """The topics that rows name, asked for when one first does: how many queues each has.

    A name that no topic may have, or that the options do not allow, is not asked for.
    """

    def __init__(self, write_queues: WriteQueues, job: SendJob) -> None:
        self._write_queues = write_queues
        self._allows_system = job.settings.allow_system_topics

    def queues(self, topic: str) -> tuple[Queue, ...]:
        """Return the queues to send to; raises KeyError if there is no such topic."""
        is_open = self._allows_system or not is_system_topic(topic)
        found = self._write_queues.of(topic) if is_writable_topic(topic) and is_open else None
        if found is None:
            raise KeyError(topic)
        return found

    def __getitem__(self, topic: str) -> TopicQueues:
        queues = self.queues(topic)
        highest = max((queue.queue_id + 1 for queue in queues), default=0)
        return TopicQueues(len(queues), highest)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def placed(self, rows: Rows, queue_ids: Int64s, composed: Composed) -> PlacedMessages:
        """Return the messages with the queue of each; ``queue_ids`` as ``assign_queues`` gives."""
        queues_of = [self.queues(name) for name in rows.topic_names]
        places = place(rows, queue_ids, queues_of)
        bases = np.cumsum([0, *map(len, queues_of)])
        queues = [queue for of_topic in queues_of for queue in of_topic]
        return PlacedMessages(rows, composed, queues, bases[rows.topics] + places)
