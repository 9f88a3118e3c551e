"""What the members of a group say of themselves, and what is made of answers that are none."""

import json
from typing import Any

import pytest

from live.conftest import Connect
from live.loopback import FakeCluster, json_answer
from mqstore.files.config.broker_config import FilterExpression
from mqstore.live.origin.members import members

# As a client of 5.5.0 says it, shortened: a queue is the key of its own state.
SAID = (
    '{"mqTable":{{"brokerName":"broker-a","queueId":3,"topic":"T"}:{"cachedMsgCount":0,'
    '"locked":true},{"brokerName":"broker-a","queueId":4,"topic":"T"}:{"locked":false}},'
    '"properties":{"PROP_CONSUMEORDERLY":"true"},"subscriptionSet":[{"classFilterMode":false,'
    '"expressionType":"TAG","subString":"A || B","topic":"T"}]}'
)
ONE = json.dumps({"connectionSet": [{"clientId": "c1"}]})
EMPTY = '{"mqTable":{},"properties":{},"subscriptionSet":[]}'


def answering(fake: FakeCluster, connected: str, said: str, code: int = 0) -> None:
    def answer(request: dict[str, Any]) -> bytes | None:
        if request["code"] == 203:
            return json_answer(request["opaque"], 0, connected.encode())
        if request["code"] == 307:
            assert request["extFields"]["jstackEnable"] == "false"
            return json_answer(request["opaque"], code, said.encode(), remark="no")
        return None

    fake.fill("T", 1)
    fake.fault = answer


def test_a_member_has_its_expressions_and_the_locks_of_its_queues(
    fake: FakeCluster, connect: Connect
) -> None:
    answering(fake, ONE, SAID)
    found = members(connect(), "broker-a", "g")
    assert found is not None
    (member,) = found
    assert (member.client_id, member.is_ordered) == ("c1", True)
    assert member.expressions == {"T": FilterExpression("TAG", "A || B")}
    assert member.locked == {("broker-a", "T", 3): True, ("broker-a", "T", 4): False}


def test_a_group_that_is_not_online_has_no_members(fake: FakeCluster, connect: Connect) -> None:
    fake.fill("T", 1)
    assert members(connect(), "broker-a", "g") == []


@pytest.mark.parametrize(
    ("connected", "said", "code"),
    [
        (ONE, SAID, 1),
        (ONE, SAID, 3),
        (ONE, "{", 0),
        (ONE, EMPTY.replace("[]", "{}"), 0),
        (ONE, EMPTY.replace("[]", '["T"]'), 0),
        (ONE, EMPTY.replace('"properties":{}', '"properties":7'), 0),
        (json.dumps({"connectionSet": [{}]}), EMPTY, 0),
        (json.dumps({"connectionSet": [{"clientId": f"c{n}"} for n in range(65)]}), EMPTY, 0),
    ],
)
def test_members_are_not_known_if_one_of_them_is_not(
    fake: FakeCluster, connect: Connect, connected: str, said: str, code: int
) -> None:
    answering(fake, connected, said, code)
    assert members(connect(), "broker-a", "g") is None


def test_queues_that_are_none_are_left_out(fake: FakeCluster, connect: Connect) -> None:
    answering(fake, ONE, EMPTY.replace('"mqTable":{}', '"mqTable":{"x":{"locked":true},"y":7}'))
    found = members(connect(), "broker-a", "g")
    assert found is not None
    assert found[0].locked == {}
