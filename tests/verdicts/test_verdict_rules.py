"""Rules of verdicts: each speaks of its fault with the numbers of it, and of nothing else."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.backlog.schema import AHEAD, SQL92
from mqstore.files.config.broker_config import FilterExpression
from mqstore.read.broker_state import GroupMember
from mqstore.verdicts.bounds import ROUND_MS, TURN_MS, WAITING_MS
from mqstore.verdicts.facts import GroupFacts, Look, QueueFacts, Retried, TopicFacts, Verdict
from mqstore.verdicts.loss import Loss
from mqstore.verdicts.rules import RULES, verdicts

NOW = 1_800_000_000_000
MINUTE = 60_000


def queue(number: int = 0, **more: Any) -> QueueFacts:
    """A queue whose group has consumed everything."""
    values: dict[str, Any] = {
        "broker_name": "b",
        "queue_id": number,
        "broker_offset": 1_000,
        "consumer_offset": 1_000,
        "min_offset": 0,
        "lag": 0,
        "matching": 0,
        "expired": 0,
        "status": "OK",
        "last_consumed_ms": NOW - 100,
    }
    return QueueFacts(**(values | more))


def behind(number: int = 0, lag: int = 400, wait: int = 10 * MINUTE, **more: Any) -> QueueFacts:
    """A queue with messages that wait."""
    values: dict[str, Any] = {
        "lag": lag,
        "matching": lag,
        "consumer_offset": 1_000 - lag,
        "waiting_since_ms": NOW - wait,
        "last_consumed_ms": NOW - wait - 50,
    }
    return queue(number, **(values | more))


def group(*queues: QueueFacts, **more: Any) -> GroupFacts:
    return GroupFacts("g", (TopicFacts("g", "T", NOW, queues),), **more)


def look(
    consumed: int, stored: int, of: QueueFacts, ago: int = TURN_MS, rest: int = 0
) -> QueueFacts:
    """The queue with an earlier look."""
    assert of.consumer_offset is not None
    before = Look(of.consumer_offset - consumed, of.broker_offset - stored, ago, rest)
    return replace(of, before=before)


def member(
    client: str, tags: str, *, ordered: bool = False, locked: dict[Any, bool] | None = None
) -> GroupMember:
    expressions = {
        "T": FilterExpression("TAG", tags),
        "%RETRY%g": FilterExpression("TAG", "*"),
    }
    return GroupMember(client, expressions, ordered, locked or {})


FAULTS: dict[str, tuple[GroupFacts, dict[str, int]]] = {
    "AHEAD": (
        group(queue(consumer_offset=1_500, status=AHEAD), queue(1)),
        {"consumerOffset": 1_500, "brokerOffset": 1_000, "beyond": 500},
    ),
    "NEVER_COMMITTED": (
        group(behind(consumer_offset=None, lag=7, last_consumed_ms=None), queue(1)),
        {"queues": 1, "lag": 7, "waitsMs": 600_000},
    ),
    "NO_MEMBERS": (
        group(behind(consumers=0), behind(1, lag=5, consumers=0)),
        {"consumers": 0, "lagMatching": 405},
    ),
    "FILTER_ONLY": (
        group(behind(matching=0, subscription="A || B"), queue(1, subscription="A || B")),
        {"lag": 400, "lagMatching": 0, "waitsMs": 600_000},
    ),
    "STUCK_QUEUE": (
        group(look(0, 50, behind()), look(200, 200, queue(1))),
        {"lag": 400, "consumerOffset": 600, "waitsMs": 600_000, "consumed": 0,
         "consumedOfOthers": 200},
    ),
    "STANDS_STILL": (
        group(look(0, 5, behind(consumers=2)), look(0, 5, behind(1, consumers=2))),
        {"consumed": 0, "stored": 10, "betweenMs": 15_000, "lagMatching": 800, "waitsMs": 600_000},
    ),
    "HOT_QUEUE": (
        group(behind(received=900), queue(1, received=50), queue(2, received=50)),
        {"received": 900, "receivedOfAll": 1_000, "queues": 3, "lag": 400, "lagOfAll": 400},
    ),
    "SLOW_CONSUMER": (
        group(look(100, 200, behind(consumers=2)), look(100, 200, behind(1, consumers=2))),
        {"stored": 400, "consumed": 200, "betweenMs": 15_000, "lag": 800, "waitsMs": 600_000,
         "consumers": 2},
    ),
    "EXPIRING": (
        group(behind(lag=100, expired=30, min_offset=900, consumer_offset=870)),
        {"expired": 30, "minOffset": 900, "lag": 100},
    ),
    "POISON": (
        group(queue(), retried=(Retried("ID", "order-1", "T", 5), Retried("OK", None, "T", 1))),
        {"reconsumeTimes": 5},
    ),
    "INCONSISTENT_SUBSCRIPTION": (
        group(queue(), members=(member("c1", "A"), member("c2", "A || B"), member("c3", "B||A"))),
        {"members": 3, "expressions": 2},
    ),
    "PAUSED_BY_ORDER": (
        group(
            behind(consumers=1),
            queue(1, consumers=1),
            members=(member("c1", "*", ordered=True, locked={("b", "T", 0): False}),),
        ),
        {"members": 1, "locked": 0, "lag": 400, "waitsMs": 600_000},
    ),
    "DEAD_LETTERS": (
        group(queue(), dead_letters=3, newest_dead_ms=NOW),
        {"deadLetters": 3},
    ),
}  # fmt: skip


def only(facts: GroupFacts) -> Verdict:
    (found,) = verdicts(facts)
    return found


def test_every_rule_has_a_fault_here() -> None:
    assert {str(rule.__doc__).partition(":")[0] for rule in RULES} == set(FAULTS)


@pytest.mark.parametrize("word", FAULTS)
def test_a_fault_has_its_word_and_no_other_and_the_numbers_that_show_it(word: str) -> None:
    facts, numbers = FAULTS[word]
    found = only(facts)
    assert (found.word, found.group) == (word, "g")
    assert found.numbers == numbers
    assert found.next.startswith("mqlog ")
    assert " PLACE" in found.next


def test_the_evidence_of_each_verdict() -> None:
    assert {word: only(facts).evidence for word, (facts, _) in FAULTS.items()} == {
        "AHEAD": "the group's offset 1,500 is 500 beyond the queue's end 1,000: the group "
        "will skip the next 500 messages that arrive",
        "NEVER_COMMITTED": "no offset is committed in queue b/0: 7 messages wait there, the "
        "oldest for 10 min",
        "NO_MEMBERS": "405 messages wait, and no consumer of the group is connected to broker b",
        "FILTER_ONLY": "400 messages come after the group's offset, and none of them matches the "
        "group's filter A || B: it has nothing to do, unless the filter is wrong",
        "STUCK_QUEUE": "the offset stayed at 600 for 15 s, and 400 messages wait, while the group "
        "consumed 200 messages of other queues",
        "STANDS_STILL": "no offset of the group moved in the last 15 s, while 800 messages wait, "
        "the oldest for 10 min; 2 consumers are connected and commit nothing",
        "HOT_QUEUE": "this queue, one of 3, received 900 of the 1,000 messages of the last 10 min, "
        "and 400 of the 400 messages that wait are in it",
        "SLOW_CONSUMER": "in the last 15 s 400 messages were stored and 200 consumed; 800 wait, "
        "the oldest for 10 min",
        "EXPIRING": "30 messages, from offset 870 on, were deleted before the group consumed them; "
        "100 more wait",
        "POISON": "message ID (keys order-1) was consumed 5 times without success, and will be "
        "delivered again",
        "INCONSISTENT_SUBSCRIPTION": "the 3 members subscribe differently, to A by c1; to A || B "
        "by c2 and 1 more: which messages of a queue are consumed depends on the member that has "
        "the queue",
        "PAUSED_BY_ORDER": "the group consumes in order, c1 was given the queue, and no member, "
        "of 1, holds the queue's lock; 400 messages wait, the oldest for 10 min",
        "DEAD_LETTERS": "3 messages are in the dead-letter topic, and will not be delivered again; "
        "the newest came at 2027-01-15 08:00:00Z",
    }


@given(
    waits=st.lists(st.integers(0, WAITING_MS - 1), min_size=1, max_size=4),
    lags=st.lists(st.integers(0, 1_000), min_size=4, max_size=4),
    members=st.sampled_from([None, 1, 3]),
    moved=st.lists(st.integers(0, 500), min_size=8, max_size=8),
    received=st.lists(st.integers(0, 10_000), min_size=4, max_size=4),
    tags=st.sampled_from([None, "*", "A"]),
)
def test_a_group_that_works_has_no_verdict_whatever_its_load(
    waits: list[int],
    lags: list[int],
    members: int | None,
    moved: list[int],
    received: list[int],
    tags: str | None,
) -> None:
    queues = []
    for n, wait in enumerate(waits):
        more = {"consumers": members, "received": received[n], "subscription": tags}
        of = behind(n, lags[n], wait, **more) if lags[n] else queue(n, **more)
        queues.append(look(moved[n], moved[n + 4], of))
    assert verdicts(group(*queues)) == []


def test_what_is_not_known_is_no_evidence() -> None:
    unknown = {"waiting_since_ms": None, "last_consumed_ms": None}
    assert verdicts(group(behind(**unknown), queue(1, last_consumed_ms=None))) == []
    # Of one look a queue is not known to stand, though others have consumed all.
    assert verdicts(group(behind(), behind(1))) == []
    assert verdicts(group(behind(), queue(1))) == []
    assert verdicts(group(behind(matching=0, subscription="*"))) == []


def test_a_look_back_decides_what_stands() -> None:
    stands, moves = look(0, 50, behind()), look(200, 200, queue(1))
    found = only(group(stands, moves))
    assert found.word == "STUCK_QUEUE"
    assert found.evidence == (
        "the offset stayed at 600 for 15 s, and 400 messages wait, while the group consumed 200 "
        "messages of other queues"
    )
    assert (found.topic, found.broker_name, found.queue_id) == ("T", "b", 0)
    assert found.next == "mqlog cat PLACE T/0@600 -n 1"
    # It moves, though it is far behind: slow, not stuck.
    assert only(group(look(1, 50, behind()), look(200, 200, queue(1)))).word == "SLOW_CONSUMER"
    # All stand: nothing says that it is this queue.
    (found,) = verdicts(group(look(0, 5, behind()), look(0, 5, behind(1))))
    assert found.word == "STANDS_STILL"
    assert found.evidence.endswith("; whether consumers are connected is not known here")


def test_a_consumer_that_works_queue_after_queue_is_not_stuck() -> None:
    """Its offsets stand while it works elsewhere, until the turn of each has come."""
    here = behind(1)
    for ago in (TURN_MS, ROUND_MS - 1):  # Too short for a round.
        assert "STUCK_QUEUE" not in words(look(0, 0, behind(), ago), look(500, 0, here, ago))
    assert "STUCK_QUEUE" in words(look(0, 0, behind(), ROUND_MS), look(500, 0, here, ROUND_MS))
    # Two pulls of another queue are no round, nor is one where a third one waits for its turn.
    assert "STUCK_QUEUE" not in words(look(0, 0, behind(), ROUND_MS), look(63, 0, here, ROUND_MS))
    third = look(0, 0, behind(2), ROUND_MS)
    assert words(look(0, 0, behind(), ROUND_MS), look(500, 0, here, ROUND_MS), third) == []
    # Nor has a turn passed if a queue of the group has rested for half as long.
    rested = look(500, 0, here, ROUND_MS, ROUND_MS // 2 + 1)
    assert "STUCK_QUEUE" not in words(look(0, 0, behind(), ROUND_MS), rested)
    # It has nothing else to do: its turn has come, and of several of them.
    assert words(look(0, 0, behind(), TURN_MS), look(5, 5, queue(1), TURN_MS)) == ["STUCK_QUEUE"]
    both = look(0, 0, behind()), look(0, 0, behind(1)), look(5, 5, queue(2))
    assert words(*both) == ["STUCK_QUEUE"] * 2
    assert words(look(0, 0, behind(), TURN_MS - 1), look(5, 5, queue(1), TURN_MS - 1)) == []
    # It has just worked off the messages of another queue.
    assert words(look(0, 0, behind()), look(500, 5, queue(1))) == []


def test_a_group_stands_still_only_where_nothing_moved_for_several_commits() -> None:
    assert words(look(0, 5, behind()), look(0, 5, queue(1))) == ["STANDS_STILL"]
    assert "STANDS_STILL" not in words(look(0, 0, behind(), TURN_MS - 1))
    assert words(look(0, 0, behind(wait=WAITING_MS - 1))) == []
    assert words(look(0, 0, behind(matching=0))) == []
    assert words(behind()) == []
    # Who acknowledges moves no offset, and what waits for members has its own word.
    assert words(look(0, 0, behind(pops=True))) == []
    assert words(look(0, 0, behind(consumers=0))) == ["NO_MEMBERS"]
    # Another topic of the group is worked on.
    moves = TopicFacts("g", "U", NOW, (look(5, 5, queue()),))
    stands = TopicFacts("g", "T", NOW, (look(0, 0, behind()),))
    assert verdicts(GroupFacts("g", (stands, moves))) == []


def test_groups_that_no_member_is_known_of_have_no_verdicts() -> None:
    """Brokers work off their own groups, and members of broadcasting ones keep their offsets."""
    for name in ("CID_RMQ_SYS_REVIVE_GROUP", "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", "g@broadcast"):
        topic = TopicFacts(name, "T", NOW, (look(0, 9, behind(consumers=0)),))
        assert verdicts(GroupFacts(name, (topic,))) == []
    # An offset that moves is somebody's, though the broker knows no consumer.
    assert words(look(10, 10, behind(consumers=0))) == []


def words(*queues: QueueFacts) -> list[str]:
    return [one.word for one in verdicts(group(*queues))]


def test_an_offset_that_was_set_back_is_no_evidence_of_others_that_move() -> None:
    stands, set_back = look(0, 50, behind()), look(-300, 200, behind(1))
    assert verdicts(group(stands, set_back)) == []
    moves = look(200, 200, queue(2))
    assert only(group(stands, look(-300, 200, queue(1)), moves)).numbers["consumedOfOthers"] == 200
    # A queue that was made anew stored nothing below zero.
    assert verdicts(group(look(1, 500, behind()), look(1, -20, behind(1)))) == []


def test_a_queue_without_consumers_is_neither_stuck_nor_slow() -> None:
    alone = look(0, 50, behind(consumers=0))
    assert [v.word for v in verdicts(group(alone, queue(1, consumers=0)))] == ["NO_MEMBERS"]


def test_a_filter_by_sql_counts_and_a_match_anywhere_is_no_filter() -> None:
    sql = {"subscription": "a > 5", "expression_type": SQL92}
    assert only(group(behind(matching=0, **sql))).word == "FILTER_ONLY"
    assert verdicts(group(behind(matching=0, **sql), behind(1, matching=1, **sql))) == []


def test_names_from_a_store_are_quoted_in_commands_and_printable_in_evidence() -> None:
    hostile = Retried("$(rm -rf ~)\x1b[2J", "k\n1", "T", 9)
    found = only(group(queue(), retried=(hostile,)))
    assert found.evidence.isprintable()
    assert found.next.isprintable()
    assert "--id '$(rm -rf ~)" in found.next


def test_members_that_agree_have_no_verdict_nor_has_an_ordered_group_with_its_locks() -> None:
    agreed = member("c1", "A || B"), member("c2", "B || A"), member("c3", " A||B ")
    assert verdicts(group(queue(), members=agreed)) == []
    locked = {("b", "T", 0): True, ("b", "T", 1): True}
    holds = member("c1", "*", ordered=True, locked=locked)
    idle = member("c2", "*", ordered=True)
    # Far behind, but every queue has a member that may consume it.
    facts = group(behind(consumers=2), behind(1, consumers=2), members=(holds, idle))
    assert verdicts(facts) == []
    # Members that do not consume in order need no locks.
    assert verdicts(group(behind(consumers=1), members=(member("c1", "*"),))) == []


def test_a_member_that_does_not_subscribe_to_a_topic_of_others_is_told() -> None:
    without = GroupMember("c2", {"U": FilterExpression("TAG", "*")}, False, {})
    words = [(v.word, v.topic) for v in verdicts(group(members=(member("c1", "*"), without)))]
    assert words == [("INCONSISTENT_SUBSCRIPTION", "T"), ("INCONSISTENT_SUBSCRIPTION", "U")]


def lost(at_ms: int, by: str = "TIME") -> Loss:
    return Loss(at_ms, at_ms - 5, at_ms + 5, by)


def test_a_message_that_the_broker_will_delete_within_a_day_is_told() -> None:
    soon = behind(loss=lost(NOW + 3 * 60 * MINUTE))
    found = only(group(soon))
    assert (found.word, found.queue_id) == ("EXPIRING", 0)
    assert found.evidence == (
        "the broker will delete messages from offset 600 on at about 2027-01-15 11:00:00Z, in 3 h, "
        "because their file will be too old; 400 messages wait, the oldest for 10 min"
    )
    assert found.numbers["leftMs"] == 3 * 60 * MINUTE
    full = only(group(replace(soon, loss=lost(NOW + MINUTE, "DISK"))))
    assert "because the disk will be full; 400" in full.evidence
    assert only(group(replace(soon, loss=lost(NOW - 1)))).numbers["leftMs"] == 0
    assert verdicts(group(replace(soon, loss=lost(NOW + 24 * 60 * MINUTE)))) == []
    # What nobody waits for may go, and what has just come is not late.
    assert verdicts(group(replace(soon, matching=0))) == []
    assert verdicts(group(behind(wait=100, loss=lost(NOW)))) == []


def test_a_message_that_cannot_be_read_waits_at_least_since_the_look_that_saw_it() -> None:
    seen = look(0, 0, behind(), ago=2 * MINUTE)
    assert seen.waits_at_least_ms == 2 * MINUTE
    # It came since, or nothing waits, or there is no look.
    assert look(0, 400, behind(), ago=2 * MINUTE).waits_at_least_ms is None
    assert look(0, 0, queue(), ago=2 * MINUTE).waits_at_least_ms is None
    assert behind().waits_at_least_ms is None
