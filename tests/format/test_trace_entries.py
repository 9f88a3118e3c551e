"""The text of trace messages: every number of fields that clients wrote, and texts made to harm."""

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.format import trace_entries
from mqstore.format.trace_entries import MAX_ENTRIES, TraceEntry, parse

PUB = "Pub,1700000000000,Region,PG,Topic,ID,Tag,Key,h:1,10,3,0,OFFSET,true,client"
AFTER = "SubAfter,req,ID,7,false,Key,4,1700000000009,CG"


def text(*entries: str) -> bytes:
    return b"".join(entry.replace(",", "\x01").encode() + b"\x02" for entry in entries)


def one(entry: str) -> TraceEntry:
    (found,) = parse(text(entry))
    return found


@pytest.mark.parametrize(
    ("fields", "offset_msg_id", "success", "client"),
    [
        (12, None, None, None),
        (13, None, True, None),
        (14, "OFFSET", True, None),
        (15, "OFFSET", True, "client"),
        (17, "OFFSET", True, "client"),
    ],
)
def test_a_send_of_every_number_of_fields(
    fields: int, offset_msg_id: str | None, success: bool | None, client: str | None
) -> None:
    parts = [*PUB.split(","), "more", "yet"]
    if fields == 13:
        parts.pop(12)
    found = one(",".join(parts[:fields]))
    assert (found.event, found.fields, found.problem) == ("Pub", fields, None)
    assert (found.timestamp_ms, found.group, found.msg_id) == (1_700_000_000_000, "PG", "ID")
    assert (found.cost_ms, found.body_length, found.message_type) == (3, 10, "Normal_Msg")
    assert (found.offset_msg_id, found.success, found.client_host) == (
        offset_msg_id,
        success,
        client,
    )


@pytest.mark.parametrize("fields", [6, 7, 8, 9, 10])
def test_an_end_of_a_delivery_of_every_number_of_fields(fields: int) -> None:
    found = one(",".join([*AFTER.split(","), "more"][:fields]))
    assert (found.event, found.problem, found.fields) == ("SubAfter", None, fields)
    assert (found.request_id, found.msg_id, found.cost_ms) == ("req", "ID", 7)
    assert (found.success, found.keys) == (False, "Key")
    assert found.result == ("FAILED" if fields > 6 else None)
    assert found.timestamp_ms == (1_700_000_000_009 if fields > 7 else None)
    assert found.group == ("CG" if fields > 8 else None)


def test_ends_of_deliveries_of_the_cloud_channel_have_no_end_mark() -> None:
    cloud = ",".join(AFTER.split(",")[:7]) + ","
    found = list(parse(text(cloud + cloud + cloud.replace("req", "last"))))
    assert [(e.event, e.request_id, e.result, e.fields) for e in found] == [
        ("SubAfter", "req", "FAILED", 7),
        ("SubAfter", "req", "FAILED", 7),
        ("SubAfter", "last", "FAILED", 7),
    ]


def test_other_entries() -> None:
    before = one("SubBefore,5,R,CG,req,ID,2,a b")
    assert (before.reconsume_times, before.keys, before.timestamp_ms) == (2, "a b", 5)
    end = one("EndTransaction,5,R,PG,T,ID,tag,key,h:1,2,TXN,ROLLBACK_MESSAGE,true")
    assert (end.result, end.transaction_id, end.from_check) == ("ROLLBACK_MESSAGE", "TXN", True)
    assert end.message_type == "Trans_msg_Commit"
    recall = one("Recall,5,R,PG,T,ID,false")
    assert (recall.topic, recall.msg_id, recall.success) == ("T", "ID", False)


def test_the_word_null_and_nothing_are_both_none() -> None:
    found = one("SubBefore,5,null,,req,ID,0,null")
    assert found.region is found.group is found.keys is None


def test_a_batch_is_an_entry_for_each_of_its_messages() -> None:
    fields = ["Pub", "5", "R", "PG", "T", "A,B,C", "null", "null", "h:1", "900", "3", "0"]
    entry = "\x01".join([*fields, "X,Y,Z", "true\x02"])
    found = list(parse(entry.encode()))
    assert [(e.msg_id, e.offset_msg_id, e.body_length) for e in found] == [
        ("A", "X", 900),
        ("B", "Y", 900),
        ("C", "Z", 900),
    ]
    fewer = list(parse(entry.replace("X,Y,Z", "X,Y").encode()))
    assert [e.offset_msg_id for e in fewer] == [None] * 3


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\xff\x02", "its type is none of a trace entry"),
        (b"pub\x01" * 20, "its type is none of a trace entry"),
        (text("Pub,1,2,3"), "Pub has 4 fields, not 12"),
        (text("SubBefore,x,R,G,q,ID,0,k"), "field 1 is not a number"),
        (text("SubBefore,-1,R,G,q,ID,0,k"), "field 1 is -1: not from 0"),
        (text("SubBefore,9467280000000000,R,G,q,ID,0,k"), "not from 0 to 253402300799999"),
        (text(f"SubBefore,{'9' * 400},R,G,q,ID,0,k"), "field 1 is not a number"),
        (text("SubBefore,\u0661,R,G,q,ID,0,k"), "field 1 is not a number"),
        (text("SubBefore,1,R,G,q,ID,2147483648,k"), "not from 0 to 2147483647"),
        (text(AFTER.replace("false", "maybe")), "field 4 is neither true nor false"),
        (text("SubBefore,1,R,G,q,ID,0,k").replace(b"ID", b"\xc3("), "field 5 is not UTF-8"),
        (text(f"SubBefore,1,R,G,q,ID,0,{'k' * 10_000_000}"), "field 7 has 10,000,000 bytes"),
    ],
)
def test_an_entry_that_cannot_be_read_is_one_with_a_reason(body: bytes, reason: str) -> None:
    good = text("SubBefore,5,R,CG,req,ID,2,a b")
    before, found, after = parse(good + body.removesuffix(b"\x02") + b"\x02" + good)
    assert before == after == one("SubBefore,5,R,CG,req,ID,2,a b")
    assert found.event == "UNKNOWN"
    assert reason in (found.problem or "")
    assert found.raw == body.removesuffix(b"\x02")[: trace_entries.RAW_BYTES]


HARMFUL = {
    "ends": b"\x02" * 1_000_000,
    "separators": b"\x01" * 1_000_000,
    "separators of a type": b"SubAfter" + b"\x01" * 1_000_000,
    "short entries": b"x\x02" * 1_000_000,
    "ids of a batch": text("Pub,1,R,G,T,IDS,t,k,h,1,1,0,,true").replace(b"IDS", b"," * 1_000_000),
    "a batch with long keys": text(f"Pub,1,R,G,T,IDS,t,{'k' * 60_000},h,1,1,0,,true").replace(
        b"IDS", b"," * 20_000
    ),
    "the cloud channel": b"SubAfter\x01r\x01i\x011\x01true\x01k\x010\x01" * 30_000,
    "a long type": b"P" * 10_000_000,
}


@pytest.mark.parametrize("name", HARMFUL)
def test_texts_made_to_harm_take_bounded_time_and_memory(name: str) -> None:
    body = HARMFUL[name]
    started = time.process_time()
    tracemalloc.start()
    try:
        count = sum(1 for _ in parse(body))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count <= MAX_ENTRIES + 1
    assert peak < 8 * len(body) + (64 << 20)
    assert time.process_time() - started < 60


@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_no_bytes_are_an_exception(body: bytes) -> None:
    for entry in parse(body.replace(b",", b"\x01").replace(b";", b"\x02")):
        assert (entry.event == "UNKNOWN") == (entry.problem is not None) == (entry.raw is not None)


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=8),
        max_size=18,
    ),
    st.sampled_from(["Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"]),
)
def test_any_fields_of_a_known_type_are_read_or_have_a_reason(fields: list[str], kind: str) -> None:
    for entry in parse("\x01".join([kind, *fields]).encode() + b"\x02"):
        assert entry.problem is not None or entry.event == kind
