"""The places that a command names, opened: directories, globs of them, addresses of clusters."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from mqstore import tables
from mqstore.errors import InvalidOptionError, UnknownTopicError
from mqstore.options import grammar, store_paths
from mqstore.origins import open_all, places
from mqstore.printable import shown
from mqstore.read.selection import OpenStores, Selection
from mqstore.read.source import Snapshot


@dataclass(frozen=True, slots=True)
class Named:
    """Stores as typed: ``paths`` of directories, globs or clusters; CommitLog folders of one."""

    paths: tuple[str, ...]
    commit_log: tuple[str, ...] = ()

    @contextmanager
    def opened(self) -> Iterator[OpenStores]:
        """Open them all; raises as ``mqstore.origins.open_all``, advising what a command can do."""
        options = {"storePathCommitLog": ",".join(self.commit_log)} if self.commit_log else {}
        with _own_advice():
            found = places(self.paths, options)
            selection = Selection(store_paths.expand(found.paths), self.commit_log)
            stores = open_all(selection, found.clusters)
            with closing(stores):
                yield stores

    def snapshots(self, topic: str | None = None) -> tuple[Snapshot, ...]:
        """Return what the queues of a topic hold now, of all topics if None, store by store.

        Raises UnknownTopicError for a topic that no store knows.
        """
        with self.opened() as stores:
            if topic is None:
                return stores.snapshots_of(lambda _: True)
            found = stores.snapshots_of(lambda name: name == topic)
            if not any(queue.topic == topic for one in found for queue in one.queues):
                check_known(topic, stores)
            return found

    def snapshots_of_users(self) -> tuple[Snapshot, ...]:
        """Return the same of all topics but RocketMQ's own."""
        return tuple(map(_without_system, self.snapshots()))


def check_known(topic: str, stores: OpenStores) -> None:
    """Raise UnknownTopicError, with the nearest names, for a topic that no store knows."""
    known = stores.topics
    if topic in known:
        return  # The broker knows it, and nothing was ever sent to it.
    near = grammar.near(topic, known) or sorted(known)[:3]
    where = "this store" if len(stores.sources) == 1 else "these stores"
    raise UnknownTopicError(
        f"{shown(topic)}: no such topic in {where}; there are {len(known)}"
        + (f", among them {', '.join(map(shown, near))}" if near else "")
    )


@contextmanager
def _own_advice() -> Iterator[None]:
    """Let errors that advise options of a read advise what a command has instead."""
    try:
        yield
    except InvalidOptionError as error:
        name, value, expected = error.args
        if name == "brokerName":
            stores = str(expected).partition("; set brokerName")[0]
            error.args = ("STORE", value, f"{stores}; show them one by one")
        elif name == "storePathCommitLog":
            error.args = ("--commit-log", value, "is for one directory: show stores one by one")
        raise


def _without_system(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without the queues of RocketMQ's own topics."""
    known = tables.topics(replace(snapshot, queues=()), ["topic"]).to_pylist()
    system = {row["topic"] for row in known if row["isSystem"]}
    queues = tuple(queue for queue in snapshot.queues if queue.topic not in system)
    return replace(snapshot, queues=queues)
