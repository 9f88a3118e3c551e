"""Retries and dead letters against the messages that they once were."""

from pathlib import Path
from typing import Any

import pytest

from mqstore.pop.state import READY
from mqstore.read.directory import take
from mqstore.tables import retries
from mqstore.tables.choice import RowChoice, Window
from mqstore.tables.retry_owners import chosen_owners, owner_of
from support import goldens, parts
from support.opened import opened, source_of
from support.oracle import Message, join_properties
from support.stores import Layout, MakeStore, place


def read(root: Path, choice: RowChoice | None = None, group: str | None = None) -> list[Any]:
    snapshot = take(root, broker_name="b")

    def wanted(name: str) -> bool:
        return group in (None, name)

    source = source_of(snapshot)
    owners = chosen_owners(source, snapshot, wanted)
    return parts.rows("retries", retries.plan(source, snapshot, Window(), choice, owners, "fail"))


def first(key: str, **more: Any) -> Message:
    return Message(topic="T", properties=join_properties({"UNIQ_KEY": key}), **more)


def again(
    key: str, *, topic: str = "%RETRY%g", origin: str | None = None, times: int = 1
) -> Message:
    properties = {"UNIQ_KEY": key, "RETRY_TOPIC": "T"}
    if origin is not None:
        properties["ORIGIN_MESSAGE_ID"] = origin
    return Message(topic=topic, properties=join_properties(properties), reconsume_times=times)


def origins(rows: list[dict[str, Any]]) -> dict[str, tuple[int | None, int | None]]:
    return {row["msgId"]: (row["originQueueId"], row["originQueueOffset"]) for row in rows}


@pytest.mark.parametrize(("version", "letter"), [("4.9.7", "H"), ("5.5.0", "G")])
def test_golden_retries_lead_to_the_message_that_failed(
    version: str, letter: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    messages = goldens.expected(version)
    original = {m["msgId"]: m for m in messages if m["topic"] == f"{letter}Topic"}
    retried = {m["queueOffset"]: m for m in messages if m["topic"] == f"%RETRY%CG_{letter}"}
    found = read(root)
    assert found
    assert {row["queueOffset"] for row in found} == retried.keys()
    for row in found:
        message = original[row["msgId"]]
        assert (row["group"], row["kind"]) == (f"CG_{letter}", "RETRY")
        assert row["reconsumeTimes"] == retried[row["queueOffset"]]["reconsumeTimes"]
        assert row["originTopic"] == message["topic"]
        place_ = (message["queueId"], message["queueOffset"], message["physicalOffset"])
        told = (row["originQueueId"], row["originQueueOffset"], row["originPhysicalOffset"])
        assert told == place_
        assert row["originStoreTimestamp"] == message["store"] * 1000
    assert read(root, RowChoice(frozenset({"Other"}))) == []
    assert read(root, group="LP_G") == []


def test_an_origin_is_found_by_id_else_by_key_else_not(store: MakeStore) -> None:
    known = [first("a", queue_id=1), first("b", queue_id=2), first("c")]
    where = {m.properties_map["UNIQ_KEY"]: m.offset_msg_id for m in place(known)}
    messages = [
        *known,
        again("a", origin=where["a"]),
        again("b"),  # a client that sent it again by itself
        again("c", origin=where["a"]),  # the id is of another broker: that place is another's
        again("gone", origin=f"{'0' * 16}{10**6:016X}"),
        again("odd", origin="no id"),
        again("far", origin="0" * 16 + "F" * 16),
    ]
    expected: dict[str, tuple[int | None, int | None]] = {"a": (1, 0), "b": (2, 0), "c": (0, 0)}
    lost: dict[str, tuple[int | None, int | None]] = dict.fromkeys(
        ("gone", "odd", "far"), (None, None)
    )
    assert origins(read(store(messages).root)) == expected | lost
    # Without an index only the id leads there.
    bare = store(messages, Layout(index=False))
    unknown = dict.fromkeys(("b", "c"), (None, None))
    assert origins(read(bare.root)) == {**expected, **lost, **unknown}


def test_a_record_of_another_topic_where_the_origin_lay_is_not_the_origin(
    store: MakeStore,
) -> None:
    """A replica cut its log there: what the new master sent may have no UNIQ_KEY."""
    other, same = Message(topic="U", queue_id=1), Message(topic="T", queue_id=2)
    where = [m.offset_msg_id for m in place([other, same])]
    laid = store([other, same, again("a", origin=where[0]), again("b", origin=where[1])])
    assert origins(read(laid.root)) == {"a": (None, None), "b": (2, 0)}


def test_an_expired_origin_is_null(store: MakeStore) -> None:
    old = first("a", body=bytes(1900))
    where = place([old])[0].offset_msg_id
    layout = Layout(commit_log_bytes=2048, expired_files=1)
    laid = store([old, again("a", origin=where)], layout)
    assert origins(read(laid.root)) == {"a": (None, None)}


def test_dead_letters_and_pop_retries_tell_their_group(store: MakeStore) -> None:
    topics = ("%DLQ%g", "%RETRY%g", "%RETRY%g+T", "%RETRY%g_x_T", "%RETRY%no_such")
    layout = Layout(
        group_offsets={("T", "g"): {0: 0}, ("T", "g_x"): {0: 0}, ("%DLQ%g", "g"): {0: 1}}
    )
    laid = store([again(str(n), topic=t) for n, t in enumerate(topics)], layout)
    found = {row["topic"]: (row["group"], row["kind"], row["consumed"]) for row in read(laid.root)}
    assert found == {
        "%DLQ%g": ("g", "DLQ", True),
        "%RETRY%g": ("g", "RETRY", None),
        "%RETRY%g+T": ("g", "RETRY", None),
        "%RETRY%g_x_T": ("g_x", "RETRY", None),
        "%RETRY%no_such": ("no_such", "RETRY", None),
    }


def test_a_retry_topic_belongs_to_the_group_that_committed_there_not_to_a_split(
    store: MakeStore,
) -> None:
    """Groups a and a_b are there, topics c and b_c: %RETRY%a_b_c may be of either."""
    retry = "%RETRY%a_b_c"
    for group, topic in (("a", "b_c"), ("a_b", "c")):
        both: dict[tuple[str, str], dict[int, int]] = {("c", "a_b"): {0: 0}, ("b_c", "a"): {0: 0}}
        layout = Layout(group_offsets=both | {(retry, group): {0: 1}})
        laid = store([pop_copy("x", retry), pop_copy("y", retry)], layout)
        found = read(laid.root)
        assert [(row["group"], row["originTopic"]) for row in found] == [(group, topic)] * 2
        # Without checkpoints what is before the offset may be acknowledged, or not.
        assert [(row["consumed"], row["state"]) for row in found] == [(None, None), (False, READY)]


def pop_copy(key: str, topic: str, **more: str) -> Message:
    """A copy as PopReviveService makes it."""
    properties = {"UNIQ_KEY": key, "1ST_POP_TIME": "1"} | more
    return Message(topic=topic, properties=join_properties(properties), reconsume_times=1)


@pytest.mark.parametrize(
    ("topic", "owner"),
    [
        ("%RETRY%a_b_c", ("a_b", "c")),
        ("%RETRY%a+b_c", ("a", "b_c")),
        ("%RETRY%a_b+c", ("a_b", "c")),
        ("%RETRY%a_x", ("a", "x")),
        ("%RETRY%a_b", ("a_b", None)),
        ("%RETRY%x_y", ("x_y", None)),
        ("%RETRY%x+y", ("x", "y")),
        ("%DLQ%a_b_c", ("a_b_c", None)),
        ("%RETRY%", ("", None)),
        ("%RETRY%_+_", ("_", "_")),
    ],
)
def test_groups_and_topics_that_exist_tell_whose_a_topic_is(
    topic: str, owner: tuple[str, str | None]
) -> None:
    assert owner_of(topic, {"a", "a_b"}, {"c"}) == owner
    if topic == "%RETRY%a_b_c":
        assert owner_of(topic, {"a", "a_b"}, {"b_c"}) == ("a", "b_c")


def test_origins_are_not_looked_for_unless_asked_for(store: MakeStore) -> None:
    laid = store([first("a"), again("a")])
    source, snapshot = opened(laid.root)
    owners = chosen_owners(source, snapshot, bool)
    (part,) = retries.plan(source, snapshot, Window(), None, owners, "fail")
    (batch,) = part.batches(["msgId"])
    assert batch["originQueueId"].null_count == 1
