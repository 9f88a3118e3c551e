"""Whatever the bytes of a store are, its tables are rows or one named error."""

import json
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.errors import CorruptStoreError, StoreError
from mqstore.tables import files, retries, scheduled
from mqstore.tables.catalog import CATALOG
from mqstore.tables.choice import Window, open_root
from mqstore.tables.retry_owners import chosen_owners
from support import oracle, parts
from support.opened import opened
from support.oracle import Message, join_properties
from support.stores import Layout, lay_out, write_json

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


def record(topic: str, body: bytes = b"", **properties: str) -> Message:
    return Message(topic=topic, body=body, properties=join_properties(properties))


MESSAGES = [
    record("T", UNIQ_KEY="a", TAGS="A", KEYS="k"),
    record("%RETRY%g", UNIQ_KEY="a", RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="0" * 32, TAGS="A"),
    record("%DLQ%g", UNIQ_KEY="b", RETRY_TOPIC="T"),
    record(oracle.SCHEDULE_TOPIC, REAL_TOPIC="T", REAL_QID="0", DELAY="1", UNIQ_KEY="c"),
    record("rmq_sys_wheel_timer", TIMER_OUT_MS="5000", REAL_TOPIC="T", UNIQ_KEY="d"),
    record(HALF, UNIQ_KEY="e", REAL_TOPIC="T"),
    record(HALF, UNIQ_KEY="e", TRANSACTION_CHECK_TIMES="1", TRAN_PREPARED_QUEUE_OFFSET="0"),
    record(OP, b"7,1,", TAGS="d"),
]


def read_all(root: Path, on_corrupt: str) -> int:
    """Read every table; count those that end in a named error."""
    errors = 0
    for table in CATALOG.values():
        options = {"onCorrupt": on_corrupt}
        if table.takes("startingTimestamp"):
            options |= {"startingTimestamp": "1", "endingTimestamp": str(2**60)}
        if table.takes("subscriptions"):
            options["subscriptions"] = json.dumps({"g": {"T": "A"}})
        if table.takes("byTag"):
            options["byTag"] = "true"
        try:
            for work in parts.planned(root, table.name, **options):
                for batch in work.batches():
                    batch.validate(full=True)
        except StoreError:
            errors += 1
    return errors


@given(data=st.data(), on_corrupt=st.sampled_from(["fail", "skip", "rescue"]))
def test_bytes_of_any_value_make_no_other_error(
    data: st.DataObject, on_corrupt: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    layout = Layout(group_offsets={("T", "g"): {0: 0}, (HALF, "CID_RMQ_SYS_TRANS"): {0: 0}})
    root = lay_out(tmp_path_factory.mktemp("store"), MESSAGES, layout).root
    write_json(root / "config" / "delayOffset.json", {"offsetTable": {1: 0}})
    (root / "config" / "timercheck").write_bytes(struct.pack(">qqqq", 6000, 0, 1, 0))
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=4)):
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            # Most of a file is empty: what is near its beginning is what is read.
            at = data.draw(st.integers(0, max(0, min(len(content), 1500) - 9)))
            value = data.draw(
                st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x01"])
            )
            content[at : at + len(value)] = value
        path.write_bytes(content)
    read_all(root, on_corrupt)


def test_the_same_bytes_undamaged_make_no_error(tmp_path: Path) -> None:
    layout = Layout(group_offsets={("T", "g"): {0: 0}})
    assert read_all(lay_out(tmp_path / "store", MESSAGES, layout).root, "fail") == 0


def test_names_of_files_that_are_no_text_end_no_table(tmp_path: Path) -> None:
    root = lay_out(tmp_path / os.fsdecode(b"\xffbroker"), MESSAGES).root
    for place in ("commitlog", "consumequeue", "consumequeue/T", "index", "config", "."):
        (root / place / os.fsdecode(b"\xff")).write_bytes(b"x")
    assert read_all(tmp_path / "*", "fail") == 0  # A glob finds what nobody can type.
    found = parts.rows("files", files.plan(open_root(str(root))))
    assert "consumequeue/T/\N{REPLACEMENT CHARACTER}" in {row["path"] for row in found}
    assert {row["brokerName"] for row in found} == {"\N{REPLACEMENT CHARACTER}broker"}


def test_a_lost_file_of_a_queue_costs_tables_its_own_rows_only(tmp_path: Path) -> None:
    delayed = record(oracle.SCHEDULE_TOPIC, REAL_TOPIC="T", REAL_QID="0", DELAY="1")
    failed = record("%RETRY%g", RETRY_TOPIC="T")
    laid = lay_out(tmp_path / "store", [delayed, failed] * 60)
    for topic in (oracle.SCHEDULE_TOPIC, "%RETRY%g"):
        laid.unit_of((topic, 0), 20)[0].unlink()
    store_, window = opened(laid.root, strict=False), Window()
    late = parts.rows("scheduled", scheduled.plan(*store_, window, None, "skip"))
    owners = chosen_owners(*store_, bool)
    again = parts.rows("retries", retries.plan(*store_, window, None, owners, "skip"))
    for rows in (late, again):
        assert [row["queueOffset"] for row in rows] == [*range(16), *range(32, 60)]
    with pytest.raises(CorruptStoreError, match="missing or cut short"):
        scheduled.plan(*store_, window, None, "fail")
