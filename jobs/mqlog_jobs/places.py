"""Where a view looks: a broker's store directory, or a running cluster by its address.

Both open as OpenStores: the queues of each broker, and what the broker knows beside messages.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from mqstore.errors import InvalidOptionError, UnknownTopicError
from mqstore.options import grammar
from mqstore.origins import LIVE, SECRETS, Places, is_cluster, open_all, places
from mqstore.printable import shown
from mqstore.read.selection import OpenStores, Selection
from mqstore.read.source import Snapshot

_FLAG: Final = "--option"
_COMMIT_LOG: Final = "--commit-log"
_LISTED: Final = 3


@contextmanager
def opened(
    place: str,
    commit_log: Iterable[Path] | None = None,
    options: Iterable[str] | None = None,
    topic: str | None = None,
) -> Iterator[OpenStores]:
    """Open what a view is about, and close it afterwards.

    ``options`` are those of the live reader, each ``NAME=VALUE``; ``topic`` is a topic that must
    be readable. Raises InvalidOptionError, and what ``origins.open_all`` raises.
    """
    found = place_of(place, commit_log, options)
    selection = Selection(
        roots=found.paths,
        commit_log=tuple(map(str, commit_log or ())),
        subscribe=() if topic is None else (topic,),
    )
    with closing(open_all(selection, found.clusters)) as stores:
        yield stores


def place_of(
    place: str, commit_log: Iterable[Path] | None = None, options: Iterable[str] | None = None
) -> Places:
    """Return the directory or the cluster that is named; connects to nothing.

    Secrets are taken from a file or from the environment: see ``mqstore.live.credentials``.
    """
    texts = _texts(options or ())
    if not is_cluster(place):
        return places([str(Path(place))], texts)
    if commit_log:
        folders = ", ".join(map(str, commit_log))
        raise InvalidOptionError(_COMMIT_LOG, folders, "is for the directory of a store")
    found = places([place], texts)
    if found.topics:
        expected = "ends with the name servers here: give a topic as an argument, or by --topic"
        raise InvalidOptionError("the address", place, expected)
    return found


def snapshots(stores: OpenStores, topic: str | None = None) -> tuple[Snapshot, ...]:
    """Return what the queues of each broker hold: of all topics, or of one that must be known.

    Raises UnknownTopicError with the nearest names.
    """
    if topic is None:
        return stores.snapshots_of(lambda _: True)
    found = stores.snapshots_of(lambda name: name == topic)
    # A topic that the broker knows, and to which nothing was ever sent, has no queue.
    if not any(snapshot.queues for snapshot in found) and topic not in stores.topics:
        raise _unknown(topic, stores.topics)
    return found


def _unknown(topic: str, known: Iterable[str]) -> UnknownTopicError:
    names = sorted(known)
    near = grammar.near(topic, names) or names[:_LISTED]
    among = f", among them {', '.join(map(shown, near))}" if near else ""
    return UnknownTopicError(f"{shown(topic)}: no such topic; there are {len(names)}{among}")


def _texts(options: Iterable[str]) -> Mapping[str, str]:
    """Return the options by name; raises InvalidOptionError for one that is none, and secrets."""
    names = {option.name.lower(): option.name for option in LIVE.values()}
    texts: dict[str, str] = {}
    for option in options:
        name, equals, text = option.partition("=")
        known = names.get(name.strip().lower())
        if not equals or known is None:
            advice = grammar.did_you_mean(name, names.values()) if equals else ""
            expected = f"{advice}write NAME=VALUE, of {', '.join(sorted(names.values()))}"
            raise InvalidOptionError(_FLAG, name, expected)
        if known in SECRETS:
            expected = (
                "would show in the list of processes: set MQLOG_ACCESS_KEY and MQLOG_SECRET_KEY, "
                f"or name a file: {_FLAG} credentialsFile=FILE"
            )
            raise InvalidOptionError(f"{_FLAG} {known}", "***", expected)
        if known in texts:
            raise InvalidOptionError(_FLAG, known, "is given twice")
        texts[known] = text
    return texts
