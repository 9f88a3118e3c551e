"""Unresolved transactions against a broker in miniature, and against real ones."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import CorruptStoreError
from mqstore.tables import half_messages
from mqstore.tables.choice import RowChoice
from support import goldens, parts
from support.opened import opened
from support.oracle import Message, join_properties
from support.stores import Laid, Layout, MakeStore, lay_out

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"


def read(root: Path, choice: RowChoice | None = None) -> list[dict[str, Any]]:
    planned = half_messages.plan(*opened(root, "b"), choice, "fail")
    return parts.rows("halfmessages", planned)


def half(key: str, checks: int = 0, first: int | None = None) -> Message:
    properties = {"UNIQ_KEY": key, "REAL_TOPIC": "T", "REAL_QID": "2", "PGROUP": "P"}
    if checks:
        properties["TRANSACTION_CHECK_TIMES"] = str(checks)
    if first is not None:
        properties["TRAN_PREPARED_QUEUE_OFFSET"] = str(first)
    return Message(topic=HALF, properties=join_properties(properties))


def op(body: str, tag: str = "d") -> Message:
    return Message(topic=OP, body=body.encode(), properties=join_properties({"TAGS": tag}))


class Broker:
    """TransactionalMessageServiceImpl in a few lines: halves, ops, and how far each is checked."""

    def __init__(self, *, batched: bool) -> None:
        self.batched = batched
        self.messages: list[Message] = []
        self.halves: list[tuple[str, int]] = []
        self.newest: dict[str, int] = {}
        self.ops: list[list[int]] = []
        self.half_done = self.op_done = 0
        self.written = (0, 0)

    def send(self, key: str, checks: int = 0) -> None:
        self.newest[key] = len(self.halves)
        self.halves.append((key, checks))
        self.messages.append(half(key, checks))

    def resolve(self, keys: list[str]) -> None:
        places = [self.newest.pop(key) for key in keys if key in self.newest]
        for together in [places] if self.batched and places else [[p] for p in places]:
            self.ops.append(together)
            body = "".join(f"{p}," for p in together) if self.batched else str(together[0])
            self.messages.append(op(body))

    def check(self) -> None:
        end = len(self.halves)
        for place in range(self.half_done, end):
            key, checks = self.halves[place]
            if self.newest.get(key) == place:
                self.send(key, checks + 1)
        self.half_done = end
        while self.op_done < len(self.ops) and max(self.ops[self.op_done]) < end:
            self.op_done += 1

    def persist(self) -> None:
        self.written = self.half_done, self.op_done

    def layout(self) -> Layout:
        half_done, op_done = self.written
        return Layout(group_offsets={(HALF, GROUP): {0: half_done}, (OP, GROUP): {0: op_done}})


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 30)),
        st.tuples(st.just("resolve"), st.lists(st.integers(0, 30), max_size=5)),
        st.tuples(st.just("check"), st.none()),
        st.tuples(st.just("persist"), st.none()),
    ),
    max_size=40,
)


@given(steps=_steps, batched=st.booleans())
def test_unresolved_is_what_nobody_resolved_however_old_the_offsets_on_disk_are(
    steps: list[tuple[str, Any]], batched: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    broker, sent = Broker(batched=batched), set()
    for step, what in steps:
        if step == "send" and what not in sent:
            sent.add(what)
            broker.send(f"k{what}")
        elif step == "resolve":
            broker.resolve([f"k{number}" for number in dict.fromkeys(what)])
        elif step == "check":
            broker.check()
        elif step == "persist":
            broker.persist()
    laid = lay_out(tmp_path_factory.mktemp("store"), broker.messages, broker.layout())
    found = {row["msgId"]: (row["queueOffset"], row["checkTimes"]) for row in read(laid.root)}
    assert found == {key: (at, broker.halves[at][1]) for key, at in broker.newest.items()}


@pytest.mark.parametrize(("version", "letter"), [("4.9.7", "H"), ("5.5.0", "G")])
def test_golden_transactions_that_no_outcome_was_told_of(
    version: str, letter: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(f"golden_{version.replace('.', '')}")
    found = read(root)
    # The demo committed every first of three, rolled back every second, and left every third.
    assert [row["keys"] for row in found] == [f"tk{n}" for n in range(2, 40, 3)]
    committed = {m["msgId"] for m in goldens.expected(version) if m["topic"] == f"{letter}Tx"}
    assert committed
    assert committed.isdisjoint(row["msgId"] for row in found)
    for row in found:
        assert (row["state"], row["realTopic"]) == ("PENDING", f"{letter}Tx")
        assert (row["producerGroup"], row["transactionId"]) == (f"TPG_{letter}", row["msgId"])
        assert row["checkTimes"] > 0
    assert read(root, RowChoice(frozenset({"Other"}))) == []


def test_an_outcome_may_name_the_first_copy_of_a_renewed_message(store: MakeStore) -> None:
    messages = [half("a"), half("b"), half("a", first=0), half("b", first=1), op("0,")]
    for offsets in ({}, {(HALF, GROUP): {0: 2}}):
        laid = store(messages, Layout(group_offsets=offsets))
        assert [(row["msgId"], row["queueOffset"]) for row in read(laid.root)] == [("b", 3)]


def test_only_ops_with_the_tag_of_removal_and_a_number_count(store: MakeStore) -> None:
    laid = store([half(k) for k in "abc"] + [op("0", tag="x"), op("1,,nonsense,-1,9999"), op("7")])
    assert [row["msgId"] for row in read(laid.root)] == ["a", "c"]


def test_what_was_given_up_is_told_too(store: MakeStore) -> None:
    given_up = half("a", checks=15)
    laid = store(
        [half("a"), Message(topic="TRANS_CHECK_MAX_TIME_TOPIC", properties=given_up.properties)],
        Layout(group_offsets={(HALF, GROUP): {0: 1}}),
    )
    assert [(row["state"], row["checkTimes"]) for row in read(laid.root)] == [("GIVEN_UP", 15)]


def test_a_broken_half_message_is_an_error_or_passed_by(tmp_path: Path) -> None:
    laid: Laid = lay_out(tmp_path / "broken", [half("a"), half("b")])
    path, position = laid.file_of(laid.messages[0])
    data = bytearray(path.read_bytes())
    data[position + 4] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptStoreError):
        read(laid.root)
    planned = half_messages.plan(*opened(laid.root), None, "skip")
    assert [row["msgId"] for row in parts.rows("halfmessages", planned)] == ["b"]


ROCKSDB_HALF = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"


def stored(key: str) -> Message:
    """A half message of a broker that keeps transactions in RocksDB."""
    properties = {"UNIQ_KEY": key, "REAL_TOPIC": "T", "REAL_QID": "2", "PGROUP": "P"}
    return Message(topic=ROCKSDB_HALF, properties=join_properties(properties))


def ended(place: str | None, tag: str = "d") -> Message:
    properties = {"TAGS": tag} | ({} if place is None else {"TRANS_OFFSET": place})
    return Message(topic=ROCKSDB_OP, body=b"\0", properties=join_properties(properties))


def places_of(folder: Path, halves: list[Message]) -> list[int]:
    rows = read(lay_out(folder, halves).root)
    return [row["physicalOffset"] for row in rows]


def test_transactions_in_rocksdb_are_ended_by_place(tmp_path: Path) -> None:
    halves = [stored(f"id{number}") for number in range(6)]
    places = places_of(tmp_path / "first", halves)
    ops = [ended(str(places[number])) for number in (4, 1, 1, 5)]
    rows = read(lay_out(tmp_path / "store", [*halves, *ops, half("old"), stored("late")]).root)
    assert {row["msgId"] for row in rows} == {"id0", "id2", "id3", "late", "old"}
    checks = {row["msgId"]: row["checkTimes"] for row in rows}
    assert checks == {"id0": None, "id2": None, "id3": None, "late": None, "old": 0}


@pytest.mark.parametrize(
    "place", [None, "", "x", "-1", "1e3", "9" * 30, "9223372036854775807", "0x10", "1 "]
)
def test_what_names_no_half_message_ends_none(tmp_path: Path, place: str | None) -> None:
    rows = read(lay_out(tmp_path / "store", [stored("a"), stored("b"), ended(place)]).root)
    assert {row["msgId"] for row in rows} == {"a", "b"}


def test_an_op_message_of_another_tag_ends_none(tmp_path: Path) -> None:
    first = places_of(tmp_path / "first", [stored("a")])[0]
    rows = read(lay_out(tmp_path / "store", [stored("a"), ended(str(first), tag="x")]).root)
    assert [row["msgId"] for row in rows] == ["a"]
