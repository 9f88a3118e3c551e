"""The store that a broker of RocketMQ 5.5.1 left: rows, bounds and backlog as its client had them.

Records, queues and index are those of 5.5.0. consumerOffset.json has no table of pulled offsets.
"""

from pathlib import Path

import pytest

from broker.reading import read, told
from mqstore.check import check
from support import goldens, planned

VERSION = "5.5.1"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return goldens.unpack(VERSION, tmp_path_factory.mktemp("golden"))


def test_rows_are_those_that_the_client_decoded(root: Path) -> None:
    held = {(r["topic"], r["queueId"], r["queueOffset"]): r for r in told(read(root))}
    expected = told(goldens.expected(VERSION))
    assert len(expected) > 900
    for row in expected:
        assert held[row["topic"], row["queueId"], row["queueOffset"]] == row
    assert not [found for found in check(root) if found.severity == "error"]


def test_the_backlog_is_what_the_tool_printed(root: Path) -> None:
    rows = planned.rows(str(root), table="backlog")
    diffs = {(r["group"], r["topic"], r["queueId"]): r["diff"] for r in rows}
    printed = goldens.progress(VERSION)
    assert printed
    assert {key: line.diff for key, line in printed.items()}.items() <= diffs.items()


def test_an_id_of_a_place_and_a_key_find_their_messages(root: Path) -> None:
    expected = [r for r in goldens.expected(VERSION) if r["properties"].get("KEYS")]
    row = next(r for r in expected if not r["topic"].startswith(("SCHEDULE", "RMQ", "%", "rmq")))
    key = row["properties"]["KEYS"].split()[0]
    found = planned.rows(str(root), subscribe=row["topic"], keys=key)
    assert (row["queueId"], row["queueOffset"]) in {(r["queueId"], r["queueOffset"]) for r in found}
    by_id = planned.rows(str(root), subscribe=row["topic"], msgIds=row["msgId"])
    assert [(r["queueId"], r["queueOffset"]) for r in by_id] == [
        (row["queueId"], row["queueOffset"])
    ]
