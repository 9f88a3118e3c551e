"""Single records of brokers by their places in the CommitLog.

A broker gives a record whatever its topic is if none is in the request. One of 5.5.1 compares a
topic that is: another one is NO_PERMISSION, and of a delayed or half message it is REAL_TOPIC that
must be named. So none is, but where a user's rights are by topic.

Reference: QueryMessageProcessor#viewMessageById, #matchesRequestTopic; MQAdminImpl#viewMessage.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from mqstore.codec.gather import RecordHeaders
from mqstore.codec.walk import follow
from mqstore.live.remoting.answers import denies, first_line, refusal
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import RequestRefusedError
from mqstore.live.remoting.frame import Frame
from mqstore.live.remoting.requests import SUCCESS, VIEW_MESSAGE_BY_ID, Request

IN_A_ROUND: Final = 32
"""Single messages asked for at once: each may have megabytes."""
_OTHER_TOPIC: Final = "topic does not match"
_BrokerPlace = tuple[str, int]
"""A broker, and a physical offset."""


def records_at(
    cluster: Cluster,
    places: Mapping[_BrokerPlace, Collection[str]],
    denied: Callable[[RequestRefusedError], None],
) -> Iterator[tuple[_BrokerPlace, RecordHeaders]]:
    """Yield the records that start at those places, one each, and say so.

    ``places`` has the topics that a record may be of: they are asked for where a user may not ask
    without. What the user may not see with them either is ``denied``. Raises as Cluster#ask_all.
    """
    for place, request, answer, address in _asked(cluster, [(place, "") for place in places]):
        if not denies(answer):
            yield from _record(place, answer)
            continue
        refusals = [refusal(address, request, answer)]
        for _, named, again, _ in _asked(cluster, [(place, topic) for topic in places[place]]):
            if not denies(again):
                refusals.clear()
                yield from _record(place, again)
            elif _OTHER_TOPIC in first_line(again):
                refusals.clear()
            else:
                refusals.append(refusal(address, named, again))
        if refusals:
            denied(refusals[-1])


def _asked(
    cluster: Cluster, wanted: Sequence[tuple[_BrokerPlace, str]]
) -> Iterator[tuple[_BrokerPlace, Request, Frame, str]]:
    """Yield the answers to requests for places, each with a topic or with none."""
    for first in range(0, len(wanted), IN_A_ROUND):
        some = wanted[first : first + IN_A_ROUND]
        asked = [
            (broker, VIEW_MESSAGE_BY_ID(topic=topic, offset=place))
            for (broker, place), topic in some
        ]
        answers = cluster.ask_all(asked)
        for (place, _), (_, request), (answer, address) in zip(some, asked, answers, strict=True):
            yield place, request, answer, address


def _record(place: _BrokerPlace, answer: Frame) -> Iterator[tuple[_BrokerPlace, RecordHeaders]]:
    # A broker takes any four bytes for the size of a record, and gives as many.
    headers = single(answer)
    if headers is not None and int(headers.field("physical_offset")[0]) == place[1]:
        yield place, headers


def single(answer: Frame) -> RecordHeaders | None:
    """Return the headers of the one record of an answer; None where there is none, or no whole."""
    if answer.code != SUCCESS:
        return None
    walked = follow(bytes(answer.body))
    headers = RecordHeaders(walked.buffer, walked.starts, walked.sizes)
    if len(headers) != 1 or walked.end != len(answer.body) or headers.problems():
        return None
    return headers
