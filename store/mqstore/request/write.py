"""Options of a write, from paths and texts: the settings of a write to a store or to a cluster."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mqstore.deliver.settings import AT_LEAST_ONCE, EXACTLY_ONCE, SEND_OPTIONS, SendSettings
from mqstore.errors import InvalidOptionError, shown
from mqstore.options import store_paths
from mqstore.options.option import Option
from mqstore.options.texts import parse, refusals
from mqstore.request.places import LIVE, OF_READS, names_cluster, write_target
from mqstore.request.read import IN_READ, without_places
from mqstore.request.read_options import STREAM_OPTIONS
from mqstore.write.stage.settings import WRITE_OPTIONS, WriteSettings

_SHOWN_ROOTS: Final = 5
_TRANSACTION: Final = ("txn_app_id", "txn_version")
_READING_GROUP: Final = "consumerGroup"  # In whose name exactly once reads what it wrote.
_STREAM_LOCK_TIMEOUT_MS: Final = 30_000  # Queries that write to one store wait for each other.


def _names(options: Iterable[Option]) -> list[str]:
    return [option.name for option in options]


_IN_SEND: Final = {**SEND_OPTIONS, **{f: o for f, o in LIVE.items() if o.name not in OF_READS}}
_OF_READS: Final = (
    refusals(_names(STREAM_OPTIONS.values()), "is an option of streaming reads")
    | refusals(_names(IN_READ.values()), "is an option of reads")
    | refusals(["subscribe"], "is an option of reads; in a write use topic")
)
_REFUSED_IN_WRITE: Final = _OF_READS | refusals(
    _names(_IN_SEND.values()), "is for clusters: save to rocketmq://HOST:9876/TOPIC"
)
_REFUSED_IN_SEND: Final = _OF_READS | refusals(
    _names(WRITE_OPTIONS.values()), "is for the directories of stores, and this writes to a cluster"
)
_REFUSED_BY_STREAMS: Final = refusals(
    (WRITE_OPTIONS[field].name for field in _TRANSACTION),
    "is for df.write: a stream is exactly once without it, by the query's id and the number of the "
    "batch (in foreachBatch use txnAppId, and the batch's number as txnVersion)",
)


def write_settings(
    paths: tuple[str, ...], texts: Mapping[str, str], missing: str, *, in_stream: bool = False
) -> WriteSettings | SendSettings:
    """Return the settings of a write to the one store or cluster of ``paths``; touches no store.

    ``texts`` are the options by name in lower case. ``missing`` says what to write where there is
    no path, or more than one. ``in_stream``: the options are those of a stream, which is exactly
    once by itself. Raises InvalidOptionError.
    """
    of_streams = _REFUSED_BY_STREAMS if in_stream else {}
    if names_cluster(paths, texts):
        return _send_settings(paths, texts, of_streams)
    root = _root(paths, missing)
    taken = _without(WRITE_OPTIONS, of_streams)
    values, _ = parse(texts, taken, {**_REFUSED_IN_WRITE, **of_streams})
    if in_stream:
        values.setdefault("lock_timeout_ms", _STREAM_LOCK_TIMEOUT_MS)
    return WriteSettings(root=root, **values)


def _send_settings(
    paths: tuple[str, ...], texts: Mapping[str, str], of_streams: Mapping[str, tuple[str, str]]
) -> SendSettings:
    taken = _without(_IN_SEND, of_streams)
    values, given = parse(texts, taken, {**_REFUSED_IN_SEND, **of_streams})
    live = {option.name for option in LIVE.values()}
    own = {name: texts[name.lower()] for name in given if name in live}
    cluster, topic = write_target(paths, own)
    if topic and "topic" in values:
        expected = f"the path names the topic {topic}"
        raise InvalidOptionError("topic", values["topic"], expected)
    if topic:
        values["topic"] = topic
    values.setdefault("delivery", EXACTLY_ONCE if of_streams else AT_LEAST_ONCE)
    if _READING_GROUP in given and values["delivery"] != EXACTLY_ONCE:
        raise InvalidOptionError(
            _READING_GROUP, given[_READING_GROUP], "is for reads and delivery=exactlyOnce"
        )
    return SendSettings(cluster=cluster, **without_places(values))


def _without(
    options: Mapping[str, Option], refused: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    return {
        field: option for field, option in options.items() if option.name.lower() not in refused
    }


def _root(paths: tuple[str, ...], missing: str) -> str:
    """Return the one directory that a write goes to."""
    if len(paths) != 1:
        raise InvalidOptionError("path", ", ".join(paths), missing)
    roots = store_paths.expand(paths)
    if len(roots) > 1:
        named = ", ".join(map(shown, roots[:_SHOWN_ROOTS]))
        more = ", …" if len(roots) > _SHOWN_ROOTS else ""
        expected = f"a write goes to one store, and this matches {len(roots)}: {named}{more}"
        raise InvalidOptionError("path", paths[0], expected)
    return roots[0]
