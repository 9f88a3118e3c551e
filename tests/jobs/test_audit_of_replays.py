"""Audits by the offset map of a replay, and of what a consumer group has not consumed."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqlog
from jobs.command import Run
from mqlog_jobs.replays.offset_files import OffsetFiles
from mqstore.audit.offset_maps import MapPlace
from mqstore.audit.relation import relation_of
from mqstore.codec.offset_map import OFFSET_MAP
from mqstore.errors import InvalidOptionError, StoreError
from mqstore.read.directory import open_origin
from support.oracle import Message, join_properties
from support.stores import Layout, lay_out

LAYOUT = Layout(commit_log_bytes=8192, queue_units=16)
COUNT = 40


def sent(number: int, **more: str) -> Message:
    named = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number}", "mine": "x", **more}
    return Message(
        topic="OLD",
        queue_id=number % 3,
        body=b"body %d " % number,
        properties=join_properties(named),
        store_timestamp_ms=1_700_000_000_000 + 1000 * number,
    )


def as_replayed(one: Message, number: int) -> Message:
    """What a replay makes of a message: another id, queue and time, and the mark of its write."""
    own = {**one.properties_map, "UNIQ_KEY": f"F{number:031X}", "MQLOG_WRITE": f"w-{number}"}
    return replace(
        one,
        topic="NEW",
        queue_id=number % 2,
        properties=join_properties(own),
        store_timestamp_ms=one.store_timestamp_ms + 10_000_000,
    )


def map_of(first: Sequence[Message], second: Sequence[Message | None]) -> list[dict[str, Any]]:
    """The offset map of messages and what each became, as the replay writes it."""
    ends: dict[tuple[str, str, int], int] = {}

    def place(broker: str, one: Message) -> tuple[str, str, int, int]:
        queue = broker, one.topic, one.queue_id
        ends[queue] = ends.get(queue, 0) + 1
        return (*queue, ends[queue] - 1)

    rows = []
    for old, new in zip(first, second, strict=True):
        source = place("broker-a", old)
        target = (None,) * 4 if new is None else place("broker-z", new)
        names = [field.name for field in OFFSET_MAP]
        rows.append(dict(zip(names, (*source, *target, "id"), strict=True)))
    return rows


class Replayed:
    """A source, what a replay made of it, and the map; a test changes what it will."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = [sent(n) for n in range(COUNT)]
        self.target = [as_replayed(one, n) for n, one in enumerate(self.source)]
        self.rows = map_of(self.source, self.target)

    def write(self, kind: str = "parquet") -> tuple[Path, Path, str]:
        roots = [
            lay_out(self.folder / name / "store", messages, LAYOUT).root
            for name, messages in (("a", self.source), ("z", self.target))
        ]
        half = len(self.rows) // 2
        for number, some in enumerate((self.rows[half:], self.rows[:half])):
            rows = pa.Table.from_pylist(some, schema=OFFSET_MAP)
            OffsetFiles(MapPlace(kind, str(self.folder / "map"))).write(str(number), rows)
        return roots[0], roots[1], f"{kind}:{self.folder / 'map'}"


@pytest.fixture
def replayed(tmp_path: Path) -> Replayed:
    return Replayed(tmp_path)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_a_whole_replay_is_the_same_by_its_map_and_by_nothing_else(
    run: Run, replayed: Replayed, kind: str
) -> None:
    first, second, place = replayed.write(kind)
    done = run("audit", first, second, "--offset-map", place)
    assert (done.code, done.err) == (0, "")
    assert f"the same {COUNT} messages" in done.out
    by_id = run("audit", first, second, "--by", "id")
    assert by_id.code == 1
    assert "No message id is in both places. A replay" in by_id.out
    assert run("audit", first, second, "--by", "id", "--json").code == 1


def lost(it: Replayed) -> None:
    """The last message of queue 1 of the target is not there, though the map names it."""
    del it.target[COUNT - 1]


def altered(it: Replayed) -> None:
    it.target[17] = replace(it.target[17], body=b"other")


def not_sent(it: Replayed) -> None:
    it.rows = map_of(it.source, [*it.target[:-1], None])
    del it.target[-1]


def other_producer(it: Replayed) -> None:
    it.target.append(replace(it.target[0], body=b"of another producer"))


@pytest.mark.parametrize(
    ("change", "kind", "at"),
    [
        (lost, "missing", ("OLD", 0, 13)),
        (altered, "altered", ("OLD", 2, 5)),
        (not_sent, "missing", ("OLD", 0, 13)),
        (other_producer, "extra", ("NEW", 0, 20)),
    ],
)
def test_a_difference_is_named_where_it_is_in_each_place(
    run: Run, replayed: Replayed, change: Callable[[Replayed], None], kind: str, at: tuple[Any, ...]
) -> None:
    change(replayed)
    first, second, place = replayed.write()
    done = run("audit", first, second, "--offset-map", place, "--json")
    (row,) = done.rows
    assert (done.code, row["difference"], row["messageId"]) == (1, kind, None)
    side = "second" if kind == "extra" else "first"
    assert (row[f"{side}Topic"], row[f"{side}QueueId"], row[f"{side}QueueOffset"]) == at
    if kind == "altered":
        assert (row["fields"], row["secondTopic"], row["secondQueueOffset"]) == (["body"], "NEW", 8)


def test_what_the_map_does_not_name_is_passed_by_on_request(run: Run, replayed: Replayed) -> None:
    replayed.rows = replayed.rows[:10]
    other_producer(replayed)
    first, second, place = replayed.write()
    words = ("audit", first, second, "--offset-map", place)
    assert len(run(*words, "--json").rows) == 2 * (COUNT - 10) + 1
    assert "the same 10 messages" in run(*words, "--only-mapped").out


def commit(root: Path, topic: str, offsets: dict[int, int]) -> None:
    table = {f"{topic}@CG": {str(queue): at for queue, at in offsets.items()}}
    text = json.dumps({"offsetTable": table})
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text(text)


def test_what_a_group_has_not_consumed_is_compared_alone(run: Run, replayed: Replayed) -> None:
    """It consumed the first 30 messages of the source, and stands at the same in the target."""
    replayed.target[3] = replace(replayed.target[3], body=b"other, but consumed")
    first, second, place = replayed.write()
    commit(first, "OLD", {0: 10, 1: 10, 2: 10})
    commit(second, "NEW", {0: 15, 1: 15})
    words = ("audit", first, second, "--offset-map", place, "--unconsumed", "CG")
    assert "the same 10 messages" in run(*words).out
    commit(second, "NEW", {0: 16, 1: 15})
    (row,) = run(*words, "--json").rows
    assert (row["difference"], row["firstQueueId"], row["firstQueueOffset"]) == ("missing", 0, 10)
    commit(second, "NEW", {0: 15, 1: 14})
    (row,) = run(*words, "--json").rows
    assert (row["difference"], row["secondQueueId"], row["secondQueueOffset"]) == ("extra", 1, 14)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--offset-map", "{map}", "--by", "id"), "option --offset-map=.*no other identity can be"),
        (("--only-mapped",), "option --only-mapped=.*needs an offset map"),
        (("--offset-map", "parquet:{nowhere}"), "is no offset map that can be read"),
        (("--offset-map", "{map}", "--topic", "NONE"), "option --topic: no topic NONE"),
        (("--unconsumed", "NONE"), "option --unconsumed: no group NONE"),
    ],
)
def test_what_cannot_be_audited_so_is_an_error_in_one_line(
    run: Run, replayed: Replayed, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    first, second, place = replayed.write()
    known = {"map": place, "nowhere": tmp_path / "nowhere"}
    done = run("audit", first, second, *(word.format(**known) for word in words))
    assert (done.code, done.out) == (2, "")
    assert re.search(said, done.err)


def rows_of_table(first: Path, second: Path, **options: object) -> list[dict[str, Any]]:
    """The rows of table=audit, as the command writes differences."""
    found = mqlog.open(first).table("audit", against=second, **options).to_table()
    rows = found.drop_columns("brokerName").to_pylist()
    return [{**row, "fields": [name for name in row["fields"].split(", ") if name]} for row in rows]


@pytest.mark.parametrize("change", [lost, altered, not_sent, other_producer])
def test_the_table_has_what_the_command_finds_by_the_map(
    run: Run, replayed: Replayed, change: Callable[[Replayed], None]
) -> None:
    change(replayed)
    first, second, place = replayed.write()
    words = run("audit", first, second, "--offset-map", place, "--json").rows
    rows = rows_of_table(first, second, offset_map=place)
    assert [{n: v for n, v in row.items() if "Time" not in n} for row in rows] == [
        {n: v for n, v in row.items() if "Time" not in n} for row in words
    ]
    assert len(rows) == 1
    mapped = rows_of_table(first, second, offset_map=place, only_mapped=True)
    assert len(mapped) == (change in (lost, altered))


def test_the_table_has_what_a_group_has_not_consumed(replayed: Replayed) -> None:
    replayed.target[3] = replace(replayed.target[3], body=b"other, but consumed")
    first, second, place = replayed.write()
    commit(first, "OLD", {0: 10, 1: 10, 2: 10})
    commit(second, "NEW", {0: 16, 1: 15})
    (row,) = rows_of_table(first, second, offset_map=place, unconsumed="CG")
    assert (row["difference"], row["firstQueueId"], row["firstQueueOffset"]) == ("missing", 0, 10)
    commit(first, "OLD", {0: 14, 1: 13, 2: 12})
    assert len(rows_of_table(first, first, unconsumed="CG", subscribe=["OLD"])) == 0
    rows = rows_of_table(first, second, unconsumed="CG", identity="id")
    kinds = [row["difference"] for row in rows]
    assert (kinds.count("missing"), kinds.count("extra")) == (1, 9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"offset_map": "{map}", "identity": "id"}, "offset_map=.*no other identity can be"),
        ({"offset_map": "{map}", "assign": {"OLD": [0]}}, "offset_map=.*takes whole topics"),
        ({"offset_map": "{map}", "subscribe": ["NEW"]}, "no topic NEW"),
        ({"offset_map": "{map}", "subscribe_pattern": "N.*"}, "the offset map has no message of"),
        ({"offset_map": "parquet:{nowhere}"}, "offset_map=.*is no offset map that can be read"),
        ({"offset_map": "avro:/x"}, "offset_map=.*write parquet:DIR, csv:DIR, json:DIR"),
        ({"only_mapped": True}, "only_mapped=.*needs an offset map"),
        ({"unconsumed": "NONE"}, "option unconsumed: no group NONE"),
    ],
)
def test_what_the_table_cannot_compare_so_is_refused_by_name(
    replayed: Replayed, tmp_path: Path, options: dict[str, object], said: str
) -> None:
    first, second, place = replayed.write()
    known = {"map": place, "nowhere": tmp_path / "nowhere"}
    given = {n: v.format(**known) if isinstance(v, str) else v for n, v in options.items()}
    with pytest.raises(StoreError, match=said):
        rows_of_table(first, second, **given)
    with pytest.raises(InvalidOptionError, match=r"is for table=audit, not digests"):
        mqlog.open(first).table("digests", offset_map=place)


def test_a_map_of_two_messages_that_became_one_is_refused(replayed: Replayed) -> None:
    rows = [*replayed.rows, {**replayed.rows[3], "queueOffset": 1000}]
    with pytest.raises(InvalidOptionError, match="two messages of the source for one"):
        relation_of(pa.Table.from_pylist(rows, schema=OFFSET_MAP).to_batches())
    rows = [{**replayed.rows[3], "queueOffset": None}]
    with pytest.raises(InvalidOptionError, match="names no message of a source"):
        relation_of(pa.Table.from_pylist(rows, schema=OFFSET_MAP).to_batches())


def test_a_queue_that_was_replayed_whole_is_one_run_however_its_pieces_lie() -> None:
    messages = [replace(sent(n), queue_id=0) for n in range(1000)]
    rows = map_of(messages, [replace(one, topic="NEW") for one in messages])
    parts = [rows[600:], rows[:300], rows[300:600], rows[100:200]]
    batches = [
        batch
        for part in parts
        for batch in pa.Table.from_pylist(part, schema=OFFSET_MAP).to_batches()
    ]
    found = relation_of(batches)
    (runs,) = found.by_target.values()
    assert (runs.starts.tolist(), runs.counts.tolist()) == ([0], [1000])
    assert found.topics({"OLD"}) == {"NEW"}


def test_the_stores_of_these_tests_hold_what_the_map_says(replayed: Replayed) -> None:
    first, _, _ = replayed.write()
    with closing(open_origin(first).bounds()) as source:
        assert {q.topic: q.low for q in source.snapshot().queues} == {"OLD": 0}
