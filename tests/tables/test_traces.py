"""Traces against RocketMQ's own decoder, mqadmin, and clients that measured themselves."""

import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqlog
from mqstore.errors import UnknownTopicError
from mqstore.format import trace_entries
from mqstore.format.names import TRACE_TOPIC
from mqstore.tables import traces
from support import goldens, parts, traced
from support.growing import grow
from support.oracle import Message, join_properties
from support.stores import Layout, MakeStore

Row = dict[str, Any]


@pytest.fixture(params=goldens.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_batch_of_rows_is_bounded_whatever_field_of_an_entry_is_long(store: MakeStore) -> None:
    long = b"h" * 60_000
    one = b"Pub\x011\x01%b\x01g\x01t\x01%b\x01\x01\x01%b\x011\x011\x010\x01\x01true\x01%b\x02"
    sent = one % (long, b"ID", long, long)
    joined = one % (long, b",".join([b"ID"] * 5_000), long, long)
    root = store([*[trace(sent * 20)] * 8, trace(joined)], Layout(commit_log_bytes=64 << 20)).root

    found = [batch for work in parts.planned(root, "traces") for batch in work.part.batches(())]

    assert sum(batch.num_rows for batch in found) == 161
    assert max(batch.nbytes for batch in found) < 2 * traces._BATCH_BYTES
    assert "5,000 messages" in found[-1]["problem"][-1].as_py()


@pytest.fixture
def root(version: str, tmp_path: Path) -> Path:
    return goldens.unpack(f"{version}-traces", tmp_path)


def read(root: Path, **options: str) -> list[Row]:
    return parts.rows("traces", [work.part for work in parts.planned(root, "traces", **options)])


def joined(rows: list[Row]) -> Row:
    """The rows of one entry as the decoder has them: a batch is one."""
    for name in ("msgId", "offsetMsgId"):
        ids = [row[name] for row in rows]
        rows[0][name] = None if ids[0] is None else ",".join(ids)
    return rows[0]


def test_every_event_of_real_clients_is_what_the_official_decoder_says(
    version: str, root: Path
) -> None:
    found = read(root)
    decoded = traced.lines(version, "decoded")
    assert {(row["queueId"], row["queueOffset"]) for row in found} == {
        (line["queueId"], line["queueOffset"]) for line in decoded
    }
    for line in decoded:
        ours = entries_of(found, (line["queueId"], line["queueOffset"]))
        assert list(map(traced.as_decoded, map(joined, ours))) == [
            traced.told(context) for context in line["contexts"]
        ]


def entries_of(found: list[Row], place: tuple[int, int]) -> list[list[Row]]:
    """The rows of one trace message, those of a batch together."""
    groups: list[list[Row]] = []
    for row in found:
        if (row["queueId"], row["queueOffset"]) != place:
            continue
        last = groups[-1][0] if groups else None
        same = ("event", "timestamp", "group", "costMs", "bodyLength")
        is_batch = row["event"] == "Pub" and row["tags"] is None
        if last and is_batch and all(last[name] == row[name] for name in same):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def batch_ids(version: str) -> set[str]:
    """The ids of messages that were sent in a batch."""
    sent = (row for row in traced.lines(version, "measured") if row.get("kind") == "BATCH")
    return {msg_id for row in sent for msg_id in row["msgId"].split(",")}


def test_the_events_of_a_message_are_what_mqadmin_prints_of_it(version: str, root: Path) -> None:
    found, batch = read(root), batch_ids(version)
    printed = {msg_id: traced.of_queries(text) for msg_id, text in traced.queried(version).items()}
    assert sum(map(bool, printed.values())) >= 12
    for msg_id, lines in printed.items():
        ours = traced.as_queried(found, msg_id)
        # mqadmin finds no send of a batch by an id: KEYS has all ids of the batch as one word.
        assert ([one for one in ours if one[0] != "Pub"] if msg_id in batch else ours) == lines


def test_every_delivery_and_send_that_clients_made_has_its_events(version: str, root: Path) -> None:
    found, measured, batch = read(root), traced.lines(version, "measured"), batch_ids(version)
    assert all(row["problem"] is None for row in found)
    starts = {
        (r["msgId"], r["group"], r["reconsumeTimes"]) for r in found if r["event"] == "SubBefore"
    }
    ends = {(r["msgId"], r["group"], r["result"]) for r in found if r["event"] == "SubAfter"}
    sends = {r["msgId"] for r in found if r["event"] == "Pub"}
    # Clients of 5.5.0 trace no call of a listener that has a message of a batch.
    deliveries = [row for row in measured if row["event"] == "consumed"]
    lost = {call(row) for row in deliveries if row["msgId"] in batch and version == "5.5.0"}
    for row in measured:
        if row["event"] == "sent":
            assert set(row["msgId"].split(",")) <= sends
        elif call(row) not in lost:
            assert (row["msgId"], row["group"], row["reconsumeTimes"]) in starts
            assert (row["msgId"], row["group"], row["result"]) in ends
    assert len(starts) == len(ends) > 30


def call(row: Row) -> tuple[object, ...]:
    """Which call of a listener a delivery was in."""
    return row["group"], row["start"], row["end"], row["messages"] > 1 or row["msgId"]


def test_keys_choose_the_events_of_a_message_by_the_index(root: Path) -> None:
    found = read(root)
    ids = {row["keys"]: row["msgId"] for row in found if row["event"] == "Pub" and row["keys"]}
    of_five = [row for row in found if row["msgId"] == ids["t5"]]
    assert {row["event"] for row in of_five} == {"Pub", "SubBefore", "SubAfter"}
    assert read(root, keys="t5") == read(root, keys=ids["t5"]) == of_five
    assert read(root, keys="second") == [r for r in found if r["msgId"] == ids["t3 second"]]
    assert read(root, keys="t99") == []


def test_a_trace_topic_of_another_name_is_an_option(root: Path) -> None:
    assert read(root, traceTopic=TRACE_TOPIC) == read(root)
    with pytest.raises(
        UnknownTopicError, match="traceTopic: no topic RMQ_SYS_TRACES; did you mean"
    ):
        read(root, traceTopic="RMQ_SYS_TRACES")


def test_events_are_followed_in_pieces_from_a_position_to_the_next(root: Path) -> None:
    place = mqlog.open(root)
    options: dict[str, Any] = {"table": "traces", "starting_offsets": "earliest", "timeout": 0}
    first = list(islice(place.follow(**options, max_offsets_per_trigger=3), 2))
    rest = place.follow(**options, position=first[-1][1])
    pieces = [batch for batch, _ in (*first, *rest)]
    kept = pa.Table.from_batches(pieces)
    assert len(pieces) == 3
    assert kept.equals(place.table("traces").to_table().select(kept.schema.names))
    assert kept.schema.names == list(traces.SCHEMA.names)


def test_events_are_followed_from_the_moment_there_is_a_trace_topic(store: MakeStore) -> None:
    laid = store([Message(topic="T")])
    follow = partial(mqlog.open(laid.root).follow, table="traces", columns="event", timeout=0)
    assert list(follow()) == []
    grow(laid, [Message(topic="T"), trace(b"SubBefore\x011\x01r\x01g\x01q\x01ID\x010\x01k\x02")])
    ((batch, position),) = follow(starting_offsets="earliest")
    assert batch["event"].to_pylist() == ["SubBefore"]
    assert position == {TRACE_TOPIC: {"0": 1}}
    with pytest.raises(UnknownTopicError, match=r"traceTopic|trace_topic"):
        list(follow(trace_topic="Absent"))


def test_a_store_without_a_trace_topic_has_no_rows(store: MakeStore) -> None:
    assert read(store([Message()]).root) == []


def test_the_window_is_on_the_time_of_the_trace_message(root: Path) -> None:
    found = read(root)
    middle = sorted(row["storeTimestamp"] for row in found)[len(found) // 2] // 1000
    since = read(root, startingTimestamp=str(middle))
    until = read(root, endingTimestamp=str(middle))
    assert 0 < len(since) < len(found)
    assert len(since) + len(until) == len(found)


def trace(body: bytes, **more: Any) -> Message:
    return Message(topic=TRACE_TOPIC, properties=join_properties({"KEYS": "k"}), body=body, **more)


def test_hostile_texts_are_rows_with_a_reason_beside_the_good_ones(store: MakeStore) -> None:
    good = b"SubBefore\x011\x01r\x01g\x01q\x01ID\x010\x01k\x02"
    root = store([
        trace(good + b"\xff\xfe\x02" + good),
        trace(b"SubBefore\x01%d\x01r\x01g\x01q\x01ID\x010\x01k\x02" % (300_000 * 31_557_600_000)),
        trace(b""),
        trace(b"Pub\x01" * 500),
    ]).root  # fmt: skip
    found = read(root)
    assert [(row["event"], row["problem"] is None) for row in found] == [
        ("SubBefore", True),
        ("UNKNOWN", False),
        ("SubBefore", True),
        ("UNKNOWN", False),
        ("UNKNOWN", False),
    ]
    assert found[1]["raw"] == b"\xff\xfe"
    assert "field 1 is 9467280000000000: not from 0 to 253402300799999" in found[3]["problem"]
    assert found[4]["fields"] == 501


@pytest.mark.parametrize(
    ("body", "rows", "problem"),
    [
        (b"Pub\x01" + b"x" * (10 << 20) + b"\x02", 1, "field 1 has 10,485,760 bytes"),
        (b"SubBefore\x011\x01" + b"x" * (10 << 20) + b"\x01g\x01q\x01I\x010\x01k\x02", 1, "bytes"),
        (b"Recall" + b"\x01" * 1_000_000 + b"\x02", 1, None),
        (b"\x02" * 1_000_000, 0, None),
        (b"x\x02" * 1_000_000, 100_001, "more than 100,000 entries"),
        (b"SubBefore\x01\xff\x01r\x01g\x01q\x01I\x010\x01k\x02", 1, "field 1 is not UTF-8"),
    ],
    ids=["field", "known field", "separators", "ends", "entries", "no text"],
)
def test_texts_made_to_harm_are_read_in_little_time_an_entry_of_a_few_kib_at_a_time(
    body: bytes, rows: int, problem: str | None
) -> None:
    begin = time.process_time()
    found, held = 0, 0
    last: str | None = None
    for entry in trace_entries.parse(body):
        found, held, last = found + 1, max(held, entry.size), entry.problem
    assert found == rows
    assert problem is None or (last is not None and problem in last)
    assert held <= trace_entries.RAW_BYTES + 200
    assert time.process_time() - begin < 20
