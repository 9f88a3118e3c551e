"""POP groups of stores without a broker: which checkpoints are read, and whose they are."""

import json
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqstore.pop import look, revived
from mqstore.pop.look import SLACK_MS, offsets_and_bounds, pop_state
from mqstore.pop.state import POP, PopQueue, PopState
from mqstore.read.directory import open_origin
from mqstore.request.plan import plan_read
from pyspark_mqlog.options import parse_read
from support import planned
from support.oracle import Message, join_properties
from support.stores import Laid, Layout, MakeStore, lay_out, write_json

NOW = 1_795_400_000_000
DAY = 24 * 3600 * 1000
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
TIMER = "rmq_sys_wheel_timer"
BROKER = "broker-a"


def checkpoint(
    so: int, count: int, *, at: int = NOW, invisible: int = 60_000, group: str = "G",
    topic: str = "T", queue_id: int = 0, **fields: Any,
) -> Message:  # fmt: skip
    body = {
        "t": topic, "c": group, "q": queue_id, "so": so, "pt": at, "it": invisible, "n": count,
        "d": list(range(count)), "bn": BROKER, "bm": 0,
    } | fields  # fmt: skip
    name = f"{topic}@{queue_id}@{so}@{group}@{at}@{BROKER}@ck"
    return _system("ck", body, name, out=at + invisible - 1000, at=at)


def ack(place: int, so: int, *, pop: int = NOW, at: int = NOW, invisible: int = 60_000,
        group: str = "G", **fields: Any) -> Message:  # fmt: skip
    body = {"t": "T", "c": group, "q": 0, "so": so, "pt": pop, "ao": place, "bn": BROKER} | fields
    name = f"T@0@{place}@{group}@{pop}@{BROKER}@ack"
    return _system("ack", body, name, out=pop + invisible, at=at)


def _system(tag: str, body: dict[str, Any], name: str, *, out: int, at: int) -> Message:
    properties = {"TAGS": tag, "UNIQ_KEY": name, "REAL_TOPIC": REVIVE, "REAL_QID": "0"}
    properties["TIMER_OUT_MS"] = str(out)
    return Message(
        topic=TIMER,
        body=json.dumps(body).encode(),
        properties=join_properties(properties),
        store_timestamp_ms=at,
    )


def delivered(m: Message, at: int) -> Message:
    return replace(m, topic=REVIVE, store_timestamp_ms=at)


def message(
    topic: str = "T", at: int = NOW - 50 * DAY, key: str = "", queue_id: int = 0, **more: str
) -> Message:
    properties = ({"UNIQ_KEY": key} if key else {}) | more
    return Message(
        topic=topic,
        queue_id=queue_id,
        properties=join_properties(properties),
        store_timestamp_ms=at,
    )


Look = Callable[..., PopState]


@pytest.fixture
def look_at(store: MakeStore) -> Look:
    """The state of a store of these messages after ten of T; offsets as consumerOffset.json."""

    def looked(
        messages: Iterable[Message],
        offsets: dict[tuple[str, str], dict[int, int]] | None = None,
        groups: Callable[[str], object] = lambda _: True,
        config: dict[str, Any] | None = None,
    ) -> PopState:
        layout = Layout(commit_log_bytes=1 << 20, group_offsets=offsets or {})
        of_topic = [message(key=f"id{number}") for number in range(10)]
        laid: Laid = store([*of_topic, *messages], layout)
        for name, document in (config or {}).items():
            write_json(laid.root / "config" / name, document)
        return state_of(laid.root, groups)

    return looked


def state_of(root: Path, groups: Callable[[str], object] = lambda _: True) -> PopState:
    with closing(open_origin(root).bounds(BROKER)) as source:
        snapshot = source.snapshot()
        snapshot = replace(snapshot, taken_ms=NOW)
        facts, committed = source.config.pop_facts(), source.config.consumer_offsets()
        return pop_state(source, snapshot, groups, facts, committed)


def queue(state: PopState, group: str = "G", topic: str = "T") -> PopQueue:
    found = state.queue(topic, group, 0)
    assert found is not None
    return found


def test_what_waits_in_the_timer_topic_is_open(look_at: Look) -> None:
    state = look_at([checkpoint(0, 5), ack(1, 0), ack(3, 0)], {("T", "G"): {0: 2}})
    assert queue(state).queue_offsets.tolist() == [0, 2, 4]
    assert queue(state).next == 5
    assert queue(state).standing(0, 10, NOW).redelivered == 3


def test_a_checkpoint_up_to_the_offset_of_the_revival_is_done(look_at: Look) -> None:
    done, open_ = (checkpoint(so, 2, at=NOW - 90_000 + so) for so in (0, 2))
    revived = [delivered(m, NOW - 30_000) for m in (done, open_)]
    offsets = {("T", "G"): {0: 4}, (REVIVE, "CID_RMQ_SYS_REVIVE_GROUP"): {0: 0}}
    state = look_at([done, open_, *revived], offsets)
    assert queue(state).queue_offsets.tolist() == [2, 3]


def test_a_checkpoint_behind_the_offset_of_the_revival_is_open_however_old(look_at: Look) -> None:
    old = checkpoint(0, 2, at=NOW - 40 * DAY)
    state = look_at([delivered(old, NOW - 30 * DAY), checkpoint(5, 1)])
    assert queue(state).queue_offsets.tolist() == [0, 1, 5]


def test_only_the_timers_of_three_days_before_the_delivered_ones_are_read(
    look_at: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    slices_of = look.slices_of

    def counted(snapshot: Any, ranges: Any) -> Any:
        found = slices_of(snapshot, ranges)
        read.extend(piece.end - piece.start for piece in found if piece.topic == TIMER)
        return found

    monkeypatch.setattr(look, "slices_of", counted)
    old = [checkpoint(0, 1, at=NOW - 10 * DAY + number) for number in range(20)]
    late = checkpoint(3, 1, at=NOW - 3 * DAY - SLACK_MS + 1_000, invisible=3 * DAY)
    state = look_at([*old, late, checkpoint(5, 1)])
    assert sum(read) == 2
    assert queue(state).queue_offsets.tolist() == [3, 5]


def test_pops_that_are_older_than_what_their_queue_holds_are_of_a_topic_that_is_gone(
    look_at: Look,
) -> None:
    """U was popped, in part acknowledged, deleted and made again; V has not been made again."""
    old = [checkpoint(0, 20, at=NOW - 9_000, topic=topic) for topic in "UV"]
    over = checkpoint(2, 9, at=NOW - 900_000, topic="U")
    acks = [ack(place, 0, pop=NOW - 9_000, at=NOW - 8_000, t="U") for place in range(10)]
    news = [message("U", NOW - 7_000, f"new{number}") for number in range(12)]
    before = [*old, *acks, *news, delivered(over, NOW - 500)]
    state = look_at(before)
    assert queue(state, topic="U").standing(0, 12, NOW).ready == 12
    assert queue(state, topic="V").standing(0, 0, NOW).unacknowledged == 0
    fresh = [checkpoint(0, 3, at=NOW - 5_000, topic="U"), ack(1, 0, pop=NOW - 5_000, t="U")]
    standing = queue(look_at([*before, *fresh]), topic="U").standing(0, 12, NOW)
    assert (standing.ready, standing.inflight, standing.open.tolist()) == (9, 2, [0, 2])


def test_a_clock_that_went_back_after_the_send_makes_no_pop_older(look_at: Look) -> None:
    """The log tells what was written first."""
    sent = [message("U", NOW, f"id{number}") for number in range(4)]
    back = checkpoint(0, 3, at=NOW - 50_000, topic="U")
    assert queue(look_at([*sent, back]), topic="U").queue_offsets.tolist() == [0, 1, 2]


def test_a_batch_in_order_of_a_topic_that_is_gone_is_not_open(look_at: Look) -> None:
    batch = {"o": [0, 1], "cm": 0, "i": 60_000, "popTime": NOW - 9_000}
    orders = {"table": {"U@G": {"0": batch}, "T@G": {"0": batch}}}
    news = [message("U", NOW - 7_000, f"new{number}") for number in range(5)]
    state = look_at(news, config={"consumerOrderInfo.json": orders})
    assert queue(state, topic="U").standing(0, 5, NOW).ready == 5
    assert queue(state).standing(0, 10, NOW).inflight == 2


def test_a_message_with_a_copy_in_the_retry_topic_was_revived(look_at: Look) -> None:
    """The offsets are older than the log: as kill -9 leaves them."""
    over = checkpoint(0, 4, at=NOW - 100_000, invisible=50_000)
    early, copy = (message("%RETRY%G_T", NOW - ms, "id1") for ms in (90_000, 40_000))
    other = message("%RETRY%H_T", NOW - 40_000, "id2")
    state = look_at([over, early, other, delivered(over, NOW - 50_000), copy])
    assert queue(state).queue_offsets.tolist() == [0, 2, 3]
    assert queue(state, topic="%RETRY%G_T").standing(0, 2, NOW).ready == 2


def test_a_message_of_a_retry_topic_is_revived_by_a_copy_behind_it(look_at: Look) -> None:
    topic = "%RETRY%G_T"
    held = [message(topic, NOW - 99_000, key) for key in ("a", "b")]
    over = checkpoint(0, 2, at=NOW - 90_000, invisible=50_000, topic=topic)
    copy = message(topic, NOW - 30_000, "b")
    state = look_at([*held, over, copy])
    assert queue(state, topic=topic).queue_offsets.tolist() == [0]


def test_a_retry_topic_is_read_once_and_only_from_the_first_late_message_on(
    look_at: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three queues have late messages, two of them with one UNIQ_KEY; so do many copies."""
    read: list[tuple[str, int, int]] = []
    slices_of = revived.slices_of

    def counted(snapshot: Any, ranges: Any) -> Any:
        found = slices_of(snapshot, ranges)
        read.extend((piece.topic, piece.start, piece.end) for piece in found)
        return found

    monkeypatch.setattr(revived, "slices_of", counted)
    retry, ms = "%RETRY%G_T", NOW - 100_000
    others = [message(key="same", queue_id=1), message(key="other", queue_id=2)]
    over = [checkpoint(0, 1, at=ms + n, invisible=50_000, queue_id=n) for n in (0, 1, 2)]
    early = [message(retry, ms, "same") for _ in range(30)]
    copies = [message(retry, NOW - 40_000, key) for key in ["same", "id0"] * 20]
    state = look_at([*others, *over, *early, *copies])
    assert [piece for piece in read if piece[0] == retry] == [(retry, 30, 70)]
    open_ = [state.queue("T", "G", queue_id) for queue_id in (0, 1, 2)]
    assert [len(queue.queue_offsets) for queue in open_ if queue] == [0, 0, 1]


def test_checkpoints_of_groups_that_are_not_chosen_are_not_kept(look_at: Look) -> None:
    messages = [checkpoint(0, 2), checkpoint(2, 2, group="H"), ack(0, 0)]
    state = look_at(messages, groups=lambda name: name == "H")
    assert state.modes == {("T", "H"): POP}
    assert queue(state, "H").queue_offsets.tolist() == [2, 3]


def test_ordinary_timers_and_bodies_that_no_broker_writes_are_passed_over(look_at: Look) -> None:
    good = checkpoint(0, 2)
    timer = replace(good, properties=good.properties.replace(REVIVE.encode(), b"Elsewhere"))
    bad = [
        replace(good, body=b"{" * 500),
        replace(good, body=b""),
        checkpoint(2, 2, d=list(range(60_000))),
        checkpoint(2, 2, pt=2**70),
        checkpoint(2**63 - 1, 2),
        ack(0, 0, ao=-5),
        ack(0, 0, pt="now"),
    ]
    state = look_at([timer, *bad, checkpoint(6, 1)])
    assert queue(state).queue_offsets.tolist() == [6]


def test_an_ambiguous_retry_topic_belongs_to_the_pair_that_checkpoints_name(look_at: Look) -> None:
    retry = message("%RETRY%a_b_c")
    others = [message("c"), message("b_c")]
    state = look_at([*others, retry, checkpoint(0, 1, group="a_b", topic="c")])
    assert state.bases == {("%RETRY%a_b_c", "a_b"): "c"}


def test_a_drained_group_has_nothing_open(look_at: Look) -> None:
    acks = [ack(place, 0) for place in range(10)]
    state = look_at([checkpoint(0, 10), *acks], {("T", "G"): {0: 10}})
    assert queue(state).standing(0, 10, NOW).unacknowledged == 0


def test_a_pair_that_an_administrator_switched_pops_without_a_checkpoint(look_at: Look) -> None:
    modes = {"messageRequestModeMap": {"T": {"G": {"mode": "POP", "popShareQueueNum": 0}}}}
    state = look_at([], {("T", "G"): {0: 4}}, config={"messageRequestMode.json": modes})
    assert state.modes == {("T", "G"): POP}
    assert queue(state).standing(0, 10, NOW).unacknowledged == 6


def test_bounds_are_not_older_than_the_offsets_where_groups_pop(
    store: MakeStore,
) -> None:
    """Else what is popped after the bounds and before the offsets would be nowhere."""
    layout = Layout(commit_log_bytes=1 << 20, group_offsets={("T", "G"): {0: 2}})
    before = store([message(), message(), checkpoint(0, 1)], layout)
    with closing(open_origin(before.root).bounds(BROKER)) as source:
        snapshot = source.snapshot()
        shutil.rmtree(before.root)
        lay_out(before.root, [message(), message(), checkpoint(0, 1), checkpoint(1, 1)], layout)
        committed, fresh = offsets_and_bounds(source, snapshot)
        state = pop_state(source, fresh, lambda _: True, source.config.pop_facts(), committed)
    assert queue(state).queue_offsets.tolist() == [0, 1]


def test_a_read_of_the_group_starts_at_the_first_message_not_acknowledged(
    store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    messages = [message(key=f"id{number}") for number in range(10)]
    pops = [checkpoint(0, 8), *(ack(place, 0) for place in (0, 1, 2, 5))]
    groups = {("T", "G"): {0: 8}, ("T", "Pulls"): {0: 6}}
    laid = store([*messages, *pops], Layout(commit_log_bytes=1 << 20, group_offsets=groups))
    write_json(laid.root / "config" / "topics.json", topics("T", TIMER, REVIVE))

    def read(group: str) -> list[int]:
        options = parse_read({"path": str(laid.root), "startingGroup": group})
        work = plan_read(options, ["queueOffset"]).work()
        return [n for part in work for b in part.batches() for n in b["queueOffset"].to_pylist()]

    assert read("Pulls") == [6, 7, 8, 9]
    assert not caplog.records
    assert read("G") == [3, 4, 5, 6, 7, 8, 9]
    assert "group G pops T: the read starts at the first message" in caplog.text


def test_retries_of_a_pop_group_say_what_is_popped_and_what_is_done(store: MakeStore) -> None:
    """Two groups share a topic; an offset behind all that was popped says nothing of either."""
    now, retry = int(time.time() * 1000), "%RETRY%a_b_c"
    copies = [message(retry, key=f"id{n}", ORIGIN_GROUP="a_b") for n in range(7)]
    copies += [message(retry, key=f"of{n}", ORIGIN_GROUP="a") for n in range(2)]
    pops = [
        checkpoint(0, 3, at=now, group="a_b", topic=retry),
        ack(1, 0, pop=now, at=now, group="a_b", t=retry),
        checkpoint(3, 1, at=now - 90_000, invisible=50_000, group="a_b", topic=retry),
        checkpoint(0, 8, at=now, group="a", topic=retry),
        ack(7, 0, pop=now, at=now, group="a", t=retry),
        checkpoint(0, 1, at=now - 300_000, group="a_b", topic="c"),
        checkpoint(0, 1, at=now - 300_000, group="a", topic="b_c"),
    ]
    groups = {(retry, "a_b"): {0: 5}, (retry, "a"): {0: 8}}
    origin = message("c", key="id0")
    layout = Layout(commit_log_bytes=1 << 20, group_offsets=groups)
    laid = store([origin, message("b_c"), *copies, *pops], layout)
    rows = planned.rows(str(laid.root), table="retries")
    found = {(r["group"], r["queueOffset"]): (r["state"], r["consumed"]) for r in rows}
    assert found == {
        ("a_b", 0): ("INFLIGHT", False),
        ("a_b", 1): ("DONE", True),
        ("a_b", 2): ("INFLIGHT", False),
        ("a_b", 3): ("DUE", False),
        ("a_b", 4): ("DONE", True),
        ("a_b", 5): ("READY", False),
        ("a_b", 6): ("READY", False),
        ("a", 7): ("DONE", True),
        ("a", 8): ("READY", False),
    }
    assert {(row["group"], row["originTopic"]) for row in rows} == {("a_b", "c"), ("a", "b_c")}
    assert [r["originQueueOffset"] for r in rows if r["msgId"] == "id0"] == [0]
    of_one = planned.rows(str(laid.root), table="retries", groups="a")
    assert [row["queueOffset"] for row in of_one] == [7, 8]
    of_topic = planned.rows(str(laid.root), table="retries", subscribe="c")
    assert {row["group"] for row in of_topic} == {"a_b"}


def topics(*names: str) -> dict[str, Any]:
    return {"topicConfigTable": {name: {"topicName": name, "readQueueNums": 1} for name in names}}
