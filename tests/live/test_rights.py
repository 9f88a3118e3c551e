"""Users who may see some topics and groups: the others are left out, unless they were named."""

import logging
from contextlib import closing
from typing import Any

import pytest

from jobs.command import Run
from jobs.conftest import run
from live.conftest import PATIENT
from live.loopback import FakeCluster, json_answer
from mqstore.live.remoting.cluster import ClusterSettings
from mqstore.live.remoting.credentials import Credentials
from mqstore.live.remoting.errors import AccessDeniedError
from mqstore.options.secret import Secret
from mqstore.read.admission import Admission
from mqstore.read.follow import Follower
from mqstore.read.scan import scan
from mqstore.read.selection import OpenStores, Selection
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from mqstore.request.places import open_all

__all__ = ["run"]

STATS, PULL, CONNECTIONS = 202, 11, 203
KEYS = Credentials(Secret("reader"), Secret("reader-secret"))
ACL_1 = (1, "org.apache.rocketmq.acl.common.AclException: No default permission for Other")
ACL_2 = (16, "User:reader has no permission to access Topic:Other")


class Denying:
    """What brokers deny: by request's code, the topic or group, and the answer."""

    def __init__(self) -> None:
        self.denied: dict[tuple[int, str], tuple[int, str]] = {}

    def __call__(self, request: dict[str, Any]) -> bytes | None:
        fields = request.get("extFields", {})
        names = (fields.get("topic"), fields.get("consumerGroup"))
        for name in names:
            code, remark = self.denied.get((request["code"], name), (0, ""))
            if code:
                return json_answer(request["opaque"], code, remark=remark)
        return None


@pytest.fixture
def denying(fake: FakeCluster) -> Denying:
    """Two topics, each with a group; nothing is denied yet."""
    fake.fill("Mine", 3)
    fake.fill("Other", 5)
    for topic, group in (("Mine", "g"), ("Other", "h"), ("Mine", "h")):
        fake.committed[topic, group, 0] = 1
        fake.groups[group] = 1
    fault = Denying()
    fake.fault = fault
    return fault


def opened(fake: FakeCluster, *subscribe: str, **more: Any) -> OpenStores:
    wanted = {"name_servers": (fake.address,), "limits": PATIENT, "retry_timeout_ms": 1_000}
    settings = ClusterSettings(**(wanted | {"credentials": KEYS} | more))
    return open_all(Selection(roots=(), subscribe=subscribe), [settings])


def topics_of(stores: OpenStores) -> list[str]:
    slices = [piece for snapshot in stores.snapshots for piece in slices_of(snapshot)]
    found = scan(slices, ScanSettings(("topic",)))
    return [topic for batch in found for topic in batch["topic"].to_pylist()]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("request_code", "denial"),
    [(STATS, ACL_2), (PULL, ACL_2), (PULL, ACL_1)],
    ids=["bounds by ACL 2.0", "messages by ACL 2.0", "messages by ACL 1.0"],
)
def test_a_topic_that_may_not_be_read_is_left_out_with_a_warning_unless_it_is_named(
    fake: FakeCluster,
    denying: Denying,
    caplog: pytest.LogCaptureFixture,
    request_code: int,
    denial: tuple[int, str],
) -> None:
    denying.denied[request_code, "Other"] = denial
    with closing(opened(fake)) as stores:
        assert topics_of(stores) == ["Mine"] * 3
        stores.snapshots_of(lambda _: True)
    (told,) = warnings(caplog)
    assert told.startswith("left out for want of rights: Other. [MQLOG_ACCESS_DENIED]")
    assert denial[1] in told
    with (
        closing(opened(fake, "Other", "Mine")) as stores,
        pytest.raises(AccessDeniedError, match="Other"),
    ):
        topics_of(stores)


def test_who_may_read_nothing_gets_the_error(fake: FakeCluster, denying: Denying) -> None:
    for topic in ("Mine", "Other"):
        denying.denied[PULL, topic] = ACL_2
    with closing(opened(fake)) as stores, pytest.raises(AccessDeniedError):
        topics_of(stores)


def test_rights_are_asked_for_once_a_topic_and_only_of_who_gives_credentials(
    fake: FakeCluster, denying: Denying
) -> None:
    with closing(opened(fake)) as stores:
        for _ in range(3):
            stores.snapshots_of(lambda _: True)
    assert sorted(fake.pulls()) == [(3, 1), (5, 1)]
    fake.requests.clear()
    with closing(opened(fake, credentials=None)) as stores:
        assert [len(one.queues) for one in stores.snapshots] == [2]
    assert fake.pulls() == []


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tails look for topics and bounds at every look."""
    monkeypatch.setattr("mqstore.live.origin.tail.ROUTES_S", 0.0)
    monkeypatch.setattr("mqstore.live.origin.tail.ROUTES_SHARE", 0)
    monkeypatch.setattr("mqstore.live.origin.tail.LOOK_S", 0.0)
    monkeypatch.setattr("mqstore.live.origin.tail._PAUSE_SHARE", 0)


@pytest.mark.usefixtures("fast")
def test_a_stream_takes_a_topic_when_it_may_and_fails_when_it_may_no_more(
    fake: FakeCluster, denying: Denying, caplog: pytest.LogCaptureFixture
) -> None:
    denying.denied[PULL, "Other"] = ACL_2
    with closing(opened(fake)) as stores:
        tails = stores.tails()
        with closing(Follower(tails, Admission())) as stream:
            assert {topic for topic, _, _ in stream.next({})} == {"Mine"}
            assert {topic for topic, _, _ in stream.next({})} == {"Mine"}
            assert len(warnings(caplog)) == 1
            denying.denied.clear()
            assert {topic for topic, _, _ in stream.next({})} == {"Mine", "Other"}
            denying.denied[STATS, "Mine"] = ACL_2
            with pytest.raises(AccessDeniedError):
                stream.next({})


@pytest.fixture
def look(run: Run, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a view of the fake cluster with credentials; return its rows, or the error."""
    monkeypatch.setenv("MQLOG_ACCESS_KEY", "reader")
    monkeypatch.setenv("MQLOG_SECRET_KEY", "reader-secret")

    def looked(view: str, *arguments: str) -> Any:
        place, more = f"rocketmq://{fake.address}", ("--option", "retryTimeout=1s", "--json")
        done = run(view, place, *arguments, *more)
        return done.rows if done.code == 0 else done.err

    return looked


@pytest.mark.parametrize("request_code", [STATS, PULL])
def test_the_backlog_is_of_topics_that_may_be_read(
    denying: Denying, look: Any, request_code: int
) -> None:
    denying.denied[request_code, "Other"] = ACL_2
    rows = [(row["group"], row["topic"], row["lag"]) for row in look("backlog")]
    assert rows == [("g", "Mine", 2), ("h", "Mine", 2)]
    assert "MQLOG_ACCESS_DENIED" in look("backlog", "--topic", "Other")
    denying.denied[request_code, "Mine"] = ACL_2
    assert "MQLOG_ACCESS_DENIED" in look("backlog")


def test_the_backlog_is_of_groups_that_may_be_seen(
    denying: Denying, look: Any, caplog: pytest.LogCaptureFixture
) -> None:
    denying.denied[CONNECTIONS, "h"] = (16, "no permission to access Group:h")
    assert [(row["group"], row["topic"]) for row in look("backlog")] == [("g", "Mine")]
    (told,) = warnings(caplog)
    assert told.startswith("left out for want of rights: h. [MQLOG_ACCESS_DENIED]")
    assert "MQLOG_ACCESS_DENIED" in look("backlog", "--group", "h")
    given = look("backlog", "--group", "h", "--subscription", "*")
    assert [(row["group"], row["topic"]) for row in given] == [("h", "Mine"), ("h", "Other")]
    denying.denied[CONNECTIONS, "g"] = (16, "no permission to access Group:g")
    assert "MQLOG_ACCESS_DENIED" in look("backlog")


def test_tables_are_of_what_may_be_seen(denying: Denying, look: Any) -> None:
    denying.denied[STATS, "Other"] = ACL_2
    denying.denied[CONNECTIONS, "h"] = (16, "no permission to access Group:h")
    assert {row["topic"] for row in look("topics")} == {"Mine"}
    assert {row["topic"] for row in look("queues")} == {"Mine"}
    assert {row["group"] for row in look("groups")} == {"g"}
