"""Messages as they are stored, batch by batch, with positions to go on from."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from mqlog.keywords import in_keywords
from mqstore.read.follow import Follower
from mqstore.read.group_progress import PublishedProgress
from mqstore.read.progress import Progress, brokers_in, from_json, to_json
from mqstore.read.selection import OpenStores
from mqstore.read.settings import BATCH_BYTES
from mqstore.request.chosen_queues import open_stores, starting_progress, takes_topics_of_group
from mqstore.request.plan import followed_work, read_schema
from mqstore.request.read_options import StreamOptions

_WAIT_S: Final = 0.2  # Between two looks that find nothing.


class Following:
    """Follows the places of a stream's options; everything is opened when it is made."""

    def __init__(
        self, options: StreamOptions, position: Mapping[str, Any] | None, timeout: float | None
    ) -> None:
        if options.max_bytes is None and options.max_offsets is None:
            options = replace(options, max_bytes=BATCH_BYTES)
        self._options = options
        self._schema = read_schema(options.read)
        self._timeout = timeout
        self._opened = ExitStack()
        try:
            self._stores = self._opened.enter_context(closing(open_stores(options.read)))
            self._follower = self._opened.enter_context(closing(_follower(self._stores, options)))
            self._at = self._start(position)
            self._group = self._published()
        except BaseException:
            self._opened.close()
            raise

    def batches(self) -> Iterator[tuple[pa.RecordBatch, dict[str, Any]]]:
        """Yield each batch with the position behind it, until nothing came for the timeout."""
        with in_keywords(), self._opened:
            seen = time.monotonic()
            if self._timeout == 0:
                self._follower.aim()
            while True:
                end = self._follower.next(self._at)
                if end == self._at:
                    if self._timeout is not None and time.monotonic() - seen >= self._timeout:
                        return
                    time.sleep(_WAIT_S)
                    continue
                batch = self._read(end)
                self._at = end
                if batch.num_rows:
                    yield batch, to_json(end, by_broker=self._stores.has_many_brokers)
                if self._group is not None:
                    self._group.publish(end)
                seen = time.monotonic()

    def _read(self, end: Progress) -> pa.RecordBatch:
        """Return the messages from the position to ``end`` in one batch."""
        read = self._options.read
        slices = self._follower.slices(self._at, end)
        work = followed_work(read, slices, tuple(self._schema.names))
        rows = chain.from_iterable(one.batches() for one in work)
        empty = pa.RecordBatch.from_pylist([], schema=self._schema)
        return pa.concat_batches([empty, *rows])

    def _start(self, position: Mapping[str, Any] | None) -> Progress:
        if position is not None:
            self._follower.meet(brokers_in(position))
            return from_json(position, self._follower.brokers)
        self._follower.await_all()  # Where it starts in their queues is theirs to tell.
        snapshots = self._follower.snapshots
        self._stores.check_chosen(snapshots)
        return starting_progress(self._options.read, self._stores, snapshots)

    def _published(self) -> PublishedProgress | None:
        name = self._options.commit_group
        if name is None:
            return None
        group = PublishedProgress(name, self._follower.origins)
        return self._opened.enter_context(closing(group))


def _follower(stores: OpenStores, options: StreamOptions) -> Follower:
    """Return what plans the batches of a stream of those stores."""
    loss = options.read.fail_on_data_loss
    return Follower(
        stores.tails(fail_on_data_loss=loss),
        options,
        fail_on_data_loss=loss,
        same_topics=takes_topics_of_group(options.read),
        find=stores.tails_beside,
    )
