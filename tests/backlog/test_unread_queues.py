"""Queues that no consumer reads are told by the backlog and by what is made of it."""

import json
import logging
from pathlib import Path

import pytest

import mqlog
from mqstore.backlog.unread import _warn
from support.oracle import Message
from support.stores import Layout, lay_out


@pytest.mark.parametrize("table", ["backlog", "verdicts"])
@pytest.mark.parametrize(("read_queue_nums", "said"), [(1, True), (2, False)])
def test_messages_of_queues_behind_read_queue_nums_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, table: str, read_queue_nums: int, said: bool
) -> None:
    sent = [Message(queue_id=n % 2) for n in range(20)]
    laid = lay_out(tmp_path / "store", sent, Layout(group_offsets={("T", "g"): {0: 5, 1: 7}}))
    path = laid.root / "config/topics.json"
    entry = {"topicName": "T", "readQueueNums": read_queue_nums, "writeQueueNums": 2, "perm": 6}
    path.write_text(json.dumps({"topicConfigTable": {"T": entry}}))
    _warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        mqlog.open(str(laid.root)).table(table).to_table()
    expected = (
        "topic T has readQueueNums=1, and messages in queues from 1 on, which no consumer takes"
    )
    assert (expected in caplog.text) == said
