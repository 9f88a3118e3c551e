"""The places that a command reads: directories of stores, object stores, running clusters.

Both open as OpenStores: the queues of each broker, and what the broker knows beside messages.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mqlog_jobs.option_flags import FLAGS
from mqstore.errors import InvalidOptionError
from mqstore.options import grammar
from mqstore.read.by_log import BY_LOG_WORD, QUEUES, READ_UNCOMMITTED
from mqstore.read.selection import OpenStores, Selection, broker_names
from mqstore.request.places import (
    LIVE,
    OBJECTS,
    PLAIN_OBJECT_OPTIONS,
    SECRETS,
    Places,
    is_cluster,
    open_all,
    places,
)
from mqstore.request.read import read_options
from mqstore.request.read_options import READ_OPTIONS, ReadOptions
from mqstore.request.tier_option import tier_path
from mqstore.tables.catalog import CATALOG
from mqstore.tables.choice import open_root

_FLAG: Final = "--option"
_COMMIT_LOG: Final = "--commit-log"
_FROM_LOG: Final = "--from-log"
_TIER: Final = READ_OPTIONS["tier"].name
_FILE_SYSTEM: Final = "fs."
_OF_ALL_READS: Final = ("startingTimestamp", "endingTimestamp", "storePathCommitLog", "queues")
"""The options of a read for which all commands that take such options have flags."""
_NOT_BY_OPTION: Final = {
    "table": "is for Spark: a command names its table",
    "columns": "cannot be chosen here: --json and --csv write all columns",
}
_BY_ENVIRONMENT: Final = (
    "may be a key, and would show in the list of processes: set what the object store's SDK reads, "
    "such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; by this flag go "
    f"{', '.join(sorted(PLAIN_OBJECT_OPTIONS))}"
)


@dataclass(frozen=True, slots=True)
class Named:
    """Places as typed: directories of stores, globs of them, addresses of clusters.

    ``commit_log`` are the CommitLog folders of a directory; ``options`` those of the live reader,
    each ``NAME=VALUE``.
    """

    paths: tuple[str, ...]
    commit_log: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    from_log: bool = False
    """Directories are read by their CommitLogs alone."""
    flag: str = _FLAG
    """The flag that gives ``options``, for errors."""

    @classmethod
    def of(
        cls,
        paths: Iterable[str],
        commit_log: Iterable[Path] | None = None,
        options: Iterable[str] | None = None,
        *,
        from_log: bool = False,
        flag: str = _FLAG,
    ) -> "Named":
        """Return the places of a command's arguments."""
        folders = tuple(map(str, commit_log or ()))
        return cls(tuple(paths), folders, tuple(options or ()), from_log, flag)

    @property
    def is_live(self) -> bool:
        """Tell whether some of the places are running clusters."""
        return any(map(is_cluster, self.paths))

    @contextmanager
    def opened(
        self,
        topic: str | Sequence[str] | None = None,
        *,
        groups: Collection[str] | None = None,
        damaged: bool = False,
        not_served: str = "",
    ) -> Iterator[OpenStores]:
        """Open them all, and close them afterwards; ``topic`` names what must be readable.

        ``groups`` are those that are named, of what is about groups.
        ``damaged``: open stores with what can be read of them, whatever is wrong with the rest.
        ``not_served`` is a request that is needed and no proxy serves.
        Raises InvalidOptionError, StoreNotFoundError, and what ``tables.places.open_all`` raises.
        """
        with own_advice():
            found = self.places()
            selection = Selection(
                roots=found.roots(),
                commit_log=self.commit_log,
                subscribe=(topic,) if isinstance(topic, str) else tuple(topic or ()),
                groups=None if groups is None else tuple(sorted(groups)),
                with_state=groups is not None,
                by_group=groups is not None,
                by_log=self.from_log,
                tier=self._tier(),
                takes_unconfirmed=self._takes_unconfirmed(),
                not_served=not_served,
            )
            if damaged:  # A name in a topics.json that cannot be read is that of the folder.
                selection = replace(selection, broker_names=_names(selection))
            with closing(open_all(selection, found.clusters, strict=not damaged)) as stores:
                yield stores

    def _tier(self) -> str | None:
        """Return the folder of tiered storage, if an option names one."""
        text = option_texts(self.options, self.flag).get(_TIER)
        if text is None:
            return None
        if self.from_log:
            expected = f"excludes {_FROM_LOG}: the local log alone tells nothing of the tier"
            raise InvalidOptionError(_TIER, text, expected)
        return tier_path(_TIER, text)

    def _takes_unconfirmed(self) -> bool:
        """Tell whether the options say to read on behind what a controller's group confirmed."""
        texts = option_texts(self.options, self.flag)
        return grammar.boolean(READ_UNCOMMITTED, texts.get(READ_UNCOMMITTED, "false"))

    def read_options(self, table: str, texts: Mapping[str, str]) -> ReadOptions:
        """Return the options of a read of a table of these places; connects to nothing.

        ``texts`` are options of the read beside those that the places have. Raises
        InvalidOptionError.
        """
        self.places()
        reason = CATALOG[table].of_files if table in CATALOG else ""
        for path in filter(is_cluster, self.paths if reason else ()):
            expected = f"a cluster has no table {table}: {reason}; give the store's directory"
            raise InvalidOptionError("PLACE", path, expected)
        own = {**option_texts(self.options, self.flag), **texts, "table": table}
        if self.commit_log:
            own["storePathCommitLog"] = json.dumps(self.commit_log)
        if self.from_log:
            own[QUEUES] = BY_LOG_WORD
        return read_options(self.paths, {name.lower(): text for name, text in own.items()})

    def directories(self, why: str) -> Places:
        """Return the directories; raises InvalidOptionError with ``why`` for a cluster."""
        for path in filter(is_cluster, self.paths):
            raise InvalidOptionError("STORE", path, why)
        if self.commit_log and len(self.paths) > 1:
            expected = "is for one directory: name stores one by one"
            raise InvalidOptionError(_COMMIT_LOG, ", ".join(self.commit_log), expected)
        return self.places()

    def places(self) -> Places:
        """Return the directories and the clusters that are named; connects to nothing.

        Secrets are taken from a file or from the environment: see
        ``mqstore.live.remoting.credentials``.
        """
        clusters = [path for path in self.paths if is_cluster(path)]
        if self.commit_log and len(clusters) == len(self.paths):
            folders = ", ".join(self.commit_log)
            raise InvalidOptionError(_COMMIT_LOG, folders, "is for the directory of a store")
        if self.from_log and len(clusters) == len(self.paths):
            expected = "is for the directory of a store: a cluster's brokers read their own queues"
            raise InvalidOptionError(_FROM_LOG, ", ".join(clusters), expected)
        found = places(self.paths, option_texts(self.options, self.flag))
        if found.topics:
            expected = "must be the cluster alone: give its topic as an argument, or by --topic"
            raise InvalidOptionError("PLACE", clusters[0], expected)
        return found


def with_read_options(
    named: Named, own: Mapping[str, str] | None = None
) -> tuple[Named, dict[str, str | None]]:
    """Return the places without the options of a read among theirs, and these options as texts.

    ``own`` has the advice for each option of a read that the command has by another word. Raises
    InvalidOptionError for such an option, and for an option that is given twice.
    """
    flags = {name: f"use {FLAGS[name]}" for name in _OF_ALL_READS}
    in_other_words = {**_NOT_BY_OPTION, **flags, **(own or {})}
    names = {option.name.lower(): option.name for option in READ_OPTIONS.values()}
    texts: dict[str, str | None] = {}
    others = []
    for option in named.options:
        name, equals, text = option.partition("=")
        known = names.get(name.strip().lower())
        if not equals or known is None:
            others.append(option)
        elif known in in_other_words:
            raise InvalidOptionError(f"{named.flag} {known}", text, in_other_words[known])
        elif known in texts:
            raise InvalidOptionError(named.flag, known, "is given twice")
        else:
            texts[known] = text
    return replace(named, options=tuple(others)), texts


def _names(selection: Selection) -> tuple[str, ...]:
    broker_names(selection)  # Refuses a directory that is named twice.
    return tuple(open_root(root, selection.commit_log).broker_name for root in selection.roots)


def option_texts(options: Iterable[str], flag: str) -> Mapping[str, str]:
    """Return the options by name; raises InvalidOptionError for one that is none, and secrets."""
    declared = (*LIVE.values(), *OBJECTS.values(), READ_OPTIONS["tier"])
    names = {option.name.lower(): option.name for option in declared}
    names |= {name.lower(): name for name in (*PLAIN_OBJECT_OPTIONS, READ_UNCOMMITTED)}
    texts: dict[str, str] = {}
    for option in options:
        name, equals, text = option.partition("=")
        known = names.get(name.strip().lower())
        if equals and name.startswith(_FILE_SYSTEM) and known is None:
            raise InvalidOptionError(f"{flag} {name}", "***", _BY_ENVIRONMENT)
        if not equals or known is None:
            raise InvalidOptionError(flag, option if equals else name, _advice(name, equals, names))
        if known in SECRETS:
            expected = (
                "would show in the list of processes: set MQLOG_ACCESS_KEY and MQLOG_SECRET_KEY, "
                f"or name a file: {flag} credentialsFile=FILE"
            )
            raise InvalidOptionError(f"{flag} {known}", "***", expected)
        if known in texts:
            raise InvalidOptionError(flag, known, "is given twice")
        texts[known] = text
    return texts


def _advice(name: str, equals: str, names: Mapping[str, str]) -> str:
    """Return what to write instead of an option that does not exist or has no value."""
    if not equals:
        return f"write NAME=VALUE, of {', '.join(sorted(set(names.values()) - SECRETS))}"
    near = grammar.nearest(name, names.values())
    known = ", ".join(sorted(set(names.values()) - SECRETS))
    return f"no such option; did you mean {near}?" if near else f"no such option; there are {known}"


@contextmanager
def own_advice() -> Iterator[None]:
    """Let errors that advise options of a read advise what the command has instead."""
    try:
        yield
    except InvalidOptionError as error:
        if error.option == "brokerName":
            stores = error.expected.partition("; set brokerName")[0]
            error.option, error.expected = "STORE", f"{stores}; show them one by one"
        elif error.option == "storePathCommitLog":
            error.expected = "is for one directory: show stores one by one"
        raise
