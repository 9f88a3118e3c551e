"""What a broker tells of topics and groups: answers that RocketMQ's protocol does not allow."""

import pytest

from live.conftest import Connect
from live.loopback import FakeCluster, json_answer
from mqstore.live.origin.state import ClusterState
from mqstore.live.remoting.errors import BrokenAnswerError


@pytest.mark.parametrize(
    ("code", "body", "ask", "words"),
    [
        (45, b'{"offsetTable":{"x":1}}', "delay_offsets", "by no number"),
        (45, b'{"offsetTable":{"1":"2"}}', "delay_offsets", "no 64-bit integer"),
        (45, b'{"offsetTable":[]}', "delay_offsets", "no object"),
        (60, b"\0" * 31, "timers_delivered_ms", "too short"),
        (201, b'{"subscriptionGroupTable":[]}', "groups", "no object"),
        (43, b'{"pullOffsetTable":{"T":{}}}', "pull_offsets", "pullOffsetTable is not by"),
        (43, b'{"pullOffsetTable":{"T@g":{"-1":2}}}', "pull_offsets", "names a queue by no number"),
    ],
)
def test_what_is_no_answer_is_told_by_name(
    fake: FakeCluster, connect: Connect, code: int, body: bytes, ask: str, words: str
) -> None:
    fake.fill("T", 1)
    fake.fault = lambda r: json_answer(r["opaque"], 0, body) if r["code"] == code else None
    with pytest.raises(BrokenAnswerError, match=words):
        getattr(ClusterState("broker-a", connect()), ask)()


def test_a_broker_without_timers_has_delivered_none(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("T", 1)
    state = ClusterState("broker-a", connect())
    assert state.timers_delivered_ms() == 0
    fake.refusals[60] = (3, "request type 60 not supported")
    assert state.timers_delivered_ms() == 0
    del fake.refusals[60]
    fake.timers_ms = 1_700_000_000_000
    assert state.timers_delivered_ms() == 1_700_000_000_000


def test_what_was_pulled_is_asked_of_each_pair_where_it_is_not_told_of_all(
    fake: FakeCluster, connect: Connect
) -> None:
    """As of 5.5.1 and 5.3.3: consumerProgress asks by group and topic."""
    fake.fill("T", 9)
    state = ClusterState("broker-a", connect())
    pairs = [("T", "g"), ("U", "g")]
    fake.pulled_offsets = {("T", "g", 0): 4}
    assert state.pulled(pairs) == {("T", "g"): {0: 4}, ("U", "g"): {}}
    fake.tells_pulled = False
    assert (state.pull_offsets(), state.pulled(pairs)) == ({}, {})
    fake.pulled_by_group = {("T", "g", 0): 7}
    assert state.pulled(pairs) == {("T", "g"): {0: 7}}
