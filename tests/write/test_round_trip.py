"""Read → write → read: the messages of real brokers, and of any store, come through unchanged."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.check import check
from mqstore.codec.schema import PROFILES
from mqstore.errors import InvalidMessageError
from mqstore.read.directory import take
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from support import strategies
from support.oracle import Message
from support.stores import MakeStore, lay_out
from support.writing import SMALL, append, held, rows

SAME = ("topic", "queueId", "body", "tags", "keys", "bornTimestamp", "properties")


def read(root: Path, columns: Iterable[str], topics: set[str]) -> list[pa.RecordBatch]:
    snapshot = take(root)
    slices = [piece for piece in slices_of(snapshot) if piece.topic in topics]
    return list(scan(slices, ScanSettings(columns=tuple(columns))))


def told(batches: list[pa.RecordBatch], columns: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows; properties have no order, neither here nor in Java."""
    found = [row for batch in batches for row in batch.select(list(columns)).to_pylist()]
    return [
        {name: dict(v) if name == "properties" else v for name, v in row.items()} for row in found
    ]


@pytest.mark.parametrize("profile", ["standard", "full"])
def test_every_user_topic_of_a_golden_store_comes_through(
    golden: tuple[str, Path], tmp_path: Path, profile: str
) -> None:
    topics = {t for t in {q.topic for q in take(golden[1]).queues} if t[0] in "GH"}
    assert len(topics) == 5
    before = read(golden[1], PROFILES[profile], topics)
    settings = {**SMALL, "mapped_file_size_commit_log": 1 << 18}
    done = append(tmp_path / "s", before, **settings)
    after = read(tmp_path / "s", PROFILES[profile], topics)
    columns = (*SAME, "flag") if profile == "full" else SAME
    assert told(after, columns) == told(before, columns)
    assert done.messages == sum(batch.num_rows for batch in before)
    assert check(tmp_path / "s") == []


def test_a_copy_of_a_golden_topic_can_be_appended_to_its_own_store(
    golden: tuple[str, Path], tmp_path: Path
) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden[1], root)
    topic = next(q.topic for q in take(root).queues if q.topic.endswith("Batch"))
    before = read(root, PROFILES["standard"], {topic})
    count = sum(batch.num_rows for batch in before)
    append(root, before)
    after = read(root, PROFILES["standard"], {topic})
    by_queue: dict[int, list[Any]] = {}
    for row in told(after, SAME):
        by_queue.setdefault(row["queueId"], []).append(row)
    assert sum(map(len, by_queue.values())) == 2 * count
    for found in by_queue.values():
        assert found[: len(found) // 2] == found[len(found) // 2 :]
    assert check(root) == []


@given(strategies.batches(max_size=15, topics=("T", "Topic_2")))
def test_any_readable_message_comes_through_or_is_named(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Message]
) -> None:
    """What cannot be written again holds a separator inside a value, which old clients allowed."""
    laid = lay_out(tmp_path_factory.mktemp("laid") / "store", messages)
    topics = {"T", "Topic_2"}
    before = read(laid.root, PROFILES["full"], topics)
    if not before:
        return
    root = tmp_path_factory.mktemp("again") / "store"
    try:
        append(root, before, **SMALL)
    except InvalidMessageError as error:
        assert "U+0001" in str(error)  # noqa: PT017
        return
    columns = ("topic", "queueId", "body", "flag", "bornTimestamp", "tags", "keys")
    assert told(read(root, PROFILES["full"], topics), columns) == told(before, columns)
    assert [f for f in check(root) if f.severity == "error"] == []


def test_kept_store_timestamps_are_those_of_the_rows(store: MakeStore, tmp_path: Path) -> None:
    laid = store([Message(queue_id=n % 2, store_timestamp_ms=1000 * n + 5) for n in range(1, 20)])
    before = read(laid.root, PROFILES["standard"], {"T"})
    append(tmp_path / "s", before, **SMALL, timestamps="preserve")
    moments = [m.store_timestamp_ms for m in held(tmp_path / "s")]
    assert moments == [m.store_timestamp_ms for m in laid.messages]
    with pytest.raises(InvalidMessageError, match="may not go back"):
        append(tmp_path / "s", before, timestamps="preserve")
    assert check(tmp_path / "s") == []


@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.integers(1, 2**40)), min_size=1, max_size=15),
        min_size=1,
        max_size=4,
    )
)
def test_kept_timestamps_need_no_order(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int | None]]
) -> None:
    """Tasks are merged; what has no time of its own gets the commit's and comes last."""
    root = tmp_path_factory.mktemp("kept") / "s"
    batches = [
        rows(
            len(part),
            storeTimestamp=pa.array(part, pa.int64()),
            keys=[f"{n}" for n in range(len(part))],
            body=[f"{number}/{n}".encode() for n in range(len(part))],
        )
        for number, part in enumerate(parts)
    ]
    append(root, *batches, **SMALL, timestamps="preserve")
    asked = [
        (moment is None, moment or 0, number, n)
        for number, part in enumerate(parts)
        for n, moment in enumerate(part)
    ]
    now = held(root)
    assert [m.body.decode() for m in now] == [f"{p}/{n}" for _, _, p, n in sorted(asked)]
    told = [m.store_timestamp_ms for m, (none, *_) in zip(now, sorted(asked), strict=True)]
    kept = [moment for none, moment, *_ in sorted(asked) if not none]
    assert told[: len(kept)] == kept
    assert check(root) == []


def test_too_many_kept_timestamps_out_of_order_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqstore.write.merge.MAX_COMMIT_MESSAGES", 3)
    early, late = (rows(2, storeTimestamp=pa.array([t] * 2, pa.int64())) for t in (5, 6))
    with pytest.raises(InvalidMessageError, match="orderBy"):
        append(tmp_path / "s", late, early, **SMALL, timestamps="preserve")
    assert not (tmp_path / "s").exists()
    append(tmp_path / "s", early, late, **SMALL, timestamps="preserve")


def test_a_clock_behind_the_stores_does_not_go_back(store: MakeStore) -> None:
    ahead = 4_000_000_000_000
    laid = store([Message(store_timestamp_ms=ahead)])
    append(laid.root, rows(2))
    assert [m.store_timestamp_ms for m in held(laid.root)] == [ahead] * 3
