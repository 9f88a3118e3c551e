"""Directories, clusters, object stores, points: the one place that tells the paths of a read apart.

All that is above knows OpenStores only. Options that are only for one kind are refused by name
where no path is of that kind; where there are both, each option is for those it is made for.

What opens a kind of place is imported for a place of that kind: a read of a directory does not
wait for the code of clusters, object stores and points.
"""

# ruff: noqa: PLC0415

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mqstore.errors import InvalidOptionError, StoreError
from mqstore.files.base.directory import Directory
from mqstore.files.base.folder import Folder
from mqstore.files.objects.address import (
    FILE_SYSTEM,
    OBJECT_OPTIONS,
    PLAIN,
    is_object_option,
    is_object_store,
    parse_object_store,
)
from mqstore.files.queue.tier_queue import STORE_PATH_TIERED
from mqstore.live.options import LIVE_OPTIONS, cluster_settings
from mqstore.live.remoting.address import Address, is_address, parse_address
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.options import store_paths
from mqstore.options.store_paths import expand
from mqstore.read.by_log import BY_LOG_WORD, CACHE_DIR, QUEUES, READ_UNCOMMITTED
from mqstore.read.capabilities import NO_STREAM
from mqstore.read.directory import open_origin
from mqstore.read.selection import OpenStores, Selection, broker_names
from mqstore.read.store_bounds import StoreOrigin
from mqstore.request.repositories import point_at

if TYPE_CHECKING:
    from mqstore.live.origin.cluster_origin import ClusterBrokers

NAME_SERVERS: Final = "nameServers"
LIVE: Final = LIVE_OPTIONS
"""The options of clusters, by the field that each is."""
SECRETS: Final = frozenset({"accessKey", "secretKey", "securityToken"})
OF_READS: Final = ("pullsInFlight", "pullBatchSize", "readFrom", "maxTasksPerBroker")
"""Options of clusters that say how messages are read."""
OBJECTS: Final = OBJECT_OPTIONS
"""The options of object stores. The name of one ends in ``*``: it stands for any name."""
PLAIN_OBJECT_OPTIONS: Final = frozenset(f"{FILE_SYSTEM}{name}" for name in PLAIN)
"""Options of file systems that are no secrets."""
OF_STORES: Final = (
    "brokerName",
    "storePathCommitLog",
    STORE_PATH_TIERED,
    "readMode",
    QUEUES,
    CACHE_DIR,
    READ_UNCOMMITTED,
)
"""Options that say how directories are read."""
_BY_LOG_ONLY: Final = (
    "is for what the CommitLog has and no queue: read the store with queues=log (mqlog: --from-log)"
)


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of a read: directories as typed, clusters, and the topics that addresses name.

    Stores in object stores and points of repositories are among the paths, as folders that are
    opened when they are listed.
    """

    paths: tuple[str | Folder, ...]
    clusters: tuple[ClusterSettings, ...] = ()
    topics: tuple[str, ...] = ()

    def roots(self) -> tuple[Folder, ...]:
        """Return the stores' roots, directories by their absolute paths; looks for those of globs.

        Raises as ``store_paths.expand``.
        """
        found: list[Folder] = []
        for path in self.paths:
            found += [path] if isinstance(path, Folder) else map(Directory, expand([path]))
        return tuple(found)

    def check_grows(self) -> None:
        """Raise InvalidOptionError for a store at rest, which no stream can follow."""
        self.check_local(NO_STREAM)

    def check_local(self, why: str) -> None:
        """Raise InvalidOptionError with ``why`` for a store that is not in a directory."""
        for path in self.paths:
            if isinstance(path, Folder):
                raise InvalidOptionError("path", path.name, why)


def is_cluster(path: str) -> bool:
    """Tell whether a path is the address of a cluster, and no directory."""
    return is_address(path)


def places(
    paths: Sequence[str], texts: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> Places:
    """Return what the paths name, with the options as texts; connects to nothing.

    ``texts`` are all that were set, by name; secrets of clusters may be taken from the
    ``environment``. Raises InvalidOptionError, which never shows a secret.
    """
    names = {option.name for option in LIVE.values()}
    live = {name: text for name, text in texts.items() if name in names}
    addresses = [parse_address(path) for path in paths if is_address(path)]
    directories = _stores([path for path in paths if not is_address(path)], texts)
    if directories and NAME_SERVERS in live:
        expected = "cannot stand with a path: give the cluster as one more path, rocketmq://…"
        raise InvalidOptionError(NAME_SERVERS, live[NAME_SERVERS], expected)
    if not addresses and NAME_SERVERS not in live:
        for name, text in live.items():
            shown = "***" if name in SECRETS else text
            expected = "is for clusters: a path rocketmq://HOST:9876/TOPIC, or nameServers"
            raise InvalidOptionError(name, shown, expected)
        return Places(directories)
    for name in OF_STORES if not directories else ():
        if name in texts:
            expected = "is for the directories of stores: a cluster's brokers are read by network"
            raise InvalidOptionError(name, texts[name], expected)
    named: list[Address | None] = [*addresses] or [None]
    settings = tuple(cluster_settings(live, one, environment) for one in named)
    topics = {one.topics for one in addresses} | ({()} if directories else set())
    if len(topics) > 1:
        expected = "the paths name different topics: name them in subscribe, or read one by one"
        raise InvalidOptionError("path", ", ".join(paths), expected)
    return Places(directories, settings, next(iter(topics), ()))


def for_kinds(
    paths: Sequence[str], texts: Mapping[str, str], beside: Sequence[str]
) -> dict[str, str]:
    """Return options of paths without those that are only for the kinds of paths ``beside``."""
    live = {option.name for option in LIVE.values()}
    has_cluster = NAME_SERVERS in texts or any(map(is_address, paths))
    of_other = {name for name in texts if name in live and not has_cluster}
    of_other = of_other if any(map(is_address, beside)) else set()
    if any(map(is_object_store, beside)) and not any(map(is_object_store, paths)):
        of_other |= set(filter(is_object_option, texts))
    return {name: text for name, text in texts.items() if name not in of_other}


def _stores(paths: Sequence[str], texts: Mapping[str, str]) -> tuple[str | Folder, ...]:
    """Return directories as typed, and the folders of stores in object stores and of points."""
    points = {path: point for path in paths if (point := point_at(path, texts)) is not None}
    remote = [path for path in paths if path not in points and is_object_store(path)]
    for path in remote:
        meant = store_paths.cluster_meant(path)
        if meant:
            expected = f"is neither a directory nor an object store; a cluster is {meant}"
            raise InvalidOptionError("path", path, expected)
    for name in filter(is_object_option, texts if not any(map(is_object_store, paths)) else ()):
        expected = "is for stores in object stores: a path such as s3://BUCKET/STORE"
        raise InvalidOptionError(name, "***", expected)
    if remote and "storePathCommitLog" in texts:
        expected = "is for directories: in an object store the CommitLog is the folder commitlog"
        raise InvalidOptionError("storePathCommitLog", texts["storePathCommitLog"], expected)
    return tuple(
        points[path] if path in points else _objects(path, texts) if path in remote else path
        for path in paths
    )


def _objects(path: str, texts: Mapping[str, str]) -> Folder:
    from mqstore.files.objects.folder import open_objects

    return open_objects(parse_object_store(path, texts))


def names_cluster(paths: Sequence[str], texts: Mapping[str, str]) -> bool:
    """Tell whether the paths of a write, or its options by lower-case name, name a cluster."""
    return NAME_SERVERS.lower() in texts or any(map(is_address, paths))


def write_target(paths: Sequence[str], texts: Mapping[str, str]) -> tuple[ClusterSettings, str]:
    """Return the cluster that a write names, and the topic of its path, if any.

    Takes and raises what ``places`` does; a write goes to one cluster and one topic.
    """
    expected = "a write goes to one cluster, and a path names one topic of it at most"
    if len(paths) > 1:
        raise InvalidOptionError("path", ", ".join(paths), expected)
    found = places(paths, texts)
    if len(found.topics) > 1:
        raise InvalidOptionError("path", ", ".join(paths), expected)
    return found.clusters[0], next(iter(found.topics), "")


def open_all(
    selection: Selection, clusters: Sequence[ClusterSettings], *, strict: bool = True
) -> OpenStores:
    """Open the stores of ``selection.roots`` and the clusters; ``strict`` as in OpenStores.

    Raises StoreNotFoundError, NotAStoreError, UnsupportedStoreError, InvalidOptionError for names
    of brokers that do not fit and a store that is named twice, and what Cluster raises.
    """
    stores = [
        _open_store(root, selection).bounds(name)
        for root, name in zip(selection.roots, broker_names(selection), strict=True)
    ]
    named = selection.subscribe or selection.assign or ()
    found = [_cluster(settings, named, selection) for settings in clusters]
    try:
        return OpenStores(selection, stores, found, strict=strict)
    except StoreError:
        for store in stores:
            store.close()
        for cluster in found:
            cluster.close()
        raise


def _cluster(
    settings: ClusterSettings, named: Collection[str], selection: Selection
) -> "ClusterBrokers":
    from mqstore.live.origin.cluster_origin import ClusterBrokers
    from mqstore.live.origin.proxy_state import AskedOfBrokers

    needs = AskedOfBrokers(
        with_state=selection.with_state,
        by_group=selection.by_group,
        beside=selection.beside,
        not_served=selection.not_served,
    )
    return ClusterBrokers(settings, named, selection.groups, needs)


def _open_store(root: Folder, selection: Selection) -> StoreOrigin:
    """Return the store at ``root``: by its ConsumeQueues, or by its CommitLog alone."""
    takes_unconfirmed = selection.takes_unconfirmed
    if selection.by_log:
        if root.lacks_files:
            expected = f"is for one store: {root} has what several points have. Name a point"
            raise InvalidOptionError(QUEUES, BY_LOG_WORD, expected)
        from mqstore.read.log_directory import open_by_log

        return open_by_log(
            root, selection.commit_log, selection.cache, takes_unconfirmed=takes_unconfirmed
        )
    if selection.tier is not None:
        if takes_unconfirmed:
            raise InvalidOptionError(READ_UNCOMMITTED, "true", _BY_LOG_ONLY)
        if root.is_remote:
            expected = f"is for directories, and {root.name} is read at rest: restore it first"
            raise InvalidOptionError(STORE_PATH_TIERED, selection.tier, expected)
        from mqstore.read.tiered import open_tiered

        return open_tiered(root, selection.tier, selection.commit_log)
    if root.is_remote:
        from mqstore.read.at_rest import open_at_rest

        if takes_unconfirmed:
            raise InvalidOptionError(READ_UNCOMMITTED, "true", _BY_LOG_ONLY)
        return open_at_rest(root)
    return open_origin(root, selection.commit_log, takes_unconfirmed=takes_unconfirmed)
