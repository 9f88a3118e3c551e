"""A replay from its arguments, for ``mqlog replay`` and the job replay.py."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from mqlog_jobs.places import Named
from mqlog_jobs.replays.write_options import (
    advising,
    check_cluster,
    check_secrets,
    cluster_settings,
)
from mqstore.carry.groups import GROUPS_OPTION
from mqstore.deliver.replay.choice import ReplayRequest
from mqstore.deliver.replay.destinations import TopicMap
from mqstore.deliver.replay.task import Rate
from mqstore.deliver.settings import SendSettings
from mqstore.errors import InvalidOptionError
from mqstore.options import grammar

_OWN_FLAGS: Final = {
    "topic": "--to, --map or --to-origin",
    "delivery": "--at-least-once",
    "txnAppId": "--name",
    "txnVersion": "--name",
}
_OF_QUEUES: Final = (
    "partitioner",
    "machineRooms",
    "machineRoom",
    "batchBuilder",
    "latencyFaultTolerance",
)


@dataclass(frozen=True, slots=True)
class ReplayArguments:
    """A replay as the user typed it: what is read, where it goes, options of the write."""

    source: Named
    address: str
    request: ReplayRequest
    options: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    """Groups whose committed offsets are carried."""

    @classmethod
    def of(
        cls,
        source: Named,
        address: str,
        options: Mapping[str, str],
        groups: str | None = None,
        **request: Any,
    ) -> "ReplayArguments":
        """Return the arguments with a ReplayRequest of these fields. Raises InvalidOptionError."""
        if len(source.paths) != 1:
            raise InvalidOptionError("SOURCE", ", ".join(source.paths), "must be one place")
        wanted = ReplayRequest(source=source.paths[0], **request)
        names = () if groups is None else grammar.names(GROUPS_OPTION, groups)
        if names and wanted.at_least_once:
            expected = "is for exactly once: at least once, a message may be there more often"
            raise InvalidOptionError(GROUPS_OPTION, ", ".join(names), expected)
        return cls(source, address, wanted, options, names)

    def settings(self) -> SendSettings:
        """Return how messages are sent. Raises InvalidOptionError, with the command's names."""
        check_cluster(self.address)
        check_secrets(self.options)
        for option, value in self.options.items():
            flag = next((f for n, f in _OWN_FLAGS.items() if n.lower() == option.lower()), None)
            if flag is not None:
                raise InvalidOptionError(option, value, f"is set by {flag}")
            if option.lower() in {name.lower() for name in _OF_QUEUES}:
                expected = "cannot be set: the messages of a queue stay together, in their order"
                raise InvalidOptionError(option, value, expected)
            if option.lower() == "inlinebytes":
                expected = "cannot be set: a replay is divided into parts that fit"
                raise InvalidOptionError(option, value, expected)
        options = {**self.options, **self.request.write_options}
        found = cluster_settings(self.address, options)
        if found.topic is not None:
            expected = "ends with the name servers here: name a topic with --to"
            raise InvalidOptionError("ADDRESS", self.address, expected)
        return self.request.paced(found)


def rate_of(messages: int | None, size: str | None) -> Rate:
    """Return the rate of --rate messages and --byte-rate bytes (``5m``) a second."""
    return Rate.of(messages, None if size is None else grammar.size("--byte-rate", size))


def topic_map(to: str | None, renamed: Sequence[tuple[str, str]], *, to_origin: bool) -> TopicMap:
    """Return where messages go; raises InvalidOptionError for two answers at once."""
    if to is not None and (renamed or to_origin):
        other = "--map" if renamed else "--to-origin"
        raise InvalidOptionError("--to", to, f"not together with {other}")
    twice = [topic for topic, _ in renamed if sum(topic == one for one, _ in renamed) > 1]
    if twice:
        raise InvalidOptionError("--map", twice[0], "is given twice")
    return TopicMap(to, tuple(renamed), to_origin)


def write_options(given: Sequence[tuple[str, str]], *, create_topic: bool) -> dict[str, str]:
    """Return the options of the write; raises InvalidOptionError for one that is given twice."""
    found: dict[str, str] = {}
    for name, value in [*given, *([("createTopic", "true")] if create_topic else [])]:
        if name.lower() in {one.lower() for one in found}:
            raise InvalidOptionError(name, value, "is given twice")
        found[name] = value
    return found


def own_flags() -> AbstractContextManager[None]:
    """Return what lets errors that advise options of a write advise the flags of a replay."""
    return advising(
        ("option topic: ", ""),
        ("set createTopic=true", "use --create-topic"),
        ("createTopic=true", "--create-topic"),
        ("option groups: ", "--groups: "),
    )
