"""The store of a broker with tiered storage: what its clients got, by the local log and the tier.

Its first CommitLog files expired, and the tier (POSIX provider) has their messages.
"""

import json
import logging
import random
import shutil
import time
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from broker.reading import as_dumped, rows_of, told
from mqstore.copy.copy_store import copy_store
from mqstore.copy.restore_point import restore_point
from mqstore.copy.take_point import take_point
from mqstore.errors import (
    CorruptConfigError,
    DataLossError,
    InvalidOptionError,
    StoreError,
    StoreNotFoundError,
    UnsafePathError,
)
from mqstore.files.base.directory import Directory
from mqstore.files.config.tier_metadata import TIER_METADATA, load
from mqstore.read.directory import open_origin
from mqstore.read.source import slices_of
from mqstore.request.plan import plan_read, read_schema
from mqstore.tables.catalog import CATALOG
from pyspark_mqlog.options import parse_read, parse_stream
from snapshot_copy.pointed import at, backing
from support import goldens, planned, soak

VERSION = "5.5.1-tiered"
SYSTEM = ("RMQ_SYS", "rmq_sys", "SCHEDULE")
BATCH, PULL_GROUP = "GtiBatch", "LP_Gti"
MUTANTS = soak.size("tiered_mutants", check=2, test=12, whole=3_000)
Key = tuple[str, int, int]
Row = dict[str, Any]
EXPECTED = [r for r in goldens.expected(VERSION) if not r["topic"].startswith(SYSTEM)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return goldens.unpack(VERSION, tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(goldens.unpack(VERSION, tmp_path_factory.mktemp("tier"), "tiered").parent / "tiered")


def key(row: Row) -> Key:
    return row["topic"], row["queueId"], row["queueOffset"]


def rows(root: Path, **options: str) -> list[Row]:
    """Rows of a read, in the words of the client's dump."""
    parsed = parse_read({"path": str(root), "columns": "full", **options})
    work = plan_read(parsed, read_schema(parsed).names).work()
    found = chain.from_iterable(rows_of(batch) for share in work for batch in share.batches())
    return [as_dumped(row) for row in found]


def without_place(row: Row) -> Row:
    """A client gets a message from the tier or from the local log, by where its pull began."""
    return {name: value for name, value in row.items() if name != "physicalOffset"}


def test_foundare_what_the_client_got(root: Path, tier: str) -> None:
    found = rows(root, storePathTiered=tier, includeSystemTopics="true")
    by_key = {key(row): row for row in told(found)}
    assert len(by_key) == len(found)
    differing = []
    for row in told(EXPECTED):
        assert without_place(by_key[key(row)]) == without_place(row)
        differing += [key(row)] * (by_key[key(row)]["physicalOffset"] != row["physicalOffset"])
    local = {key(row) for row in rows(root, includeSystemTopics="true")}
    assert set(differing) <= local
    assert len(local) < len(EXPECTED)


def test_ranges_by_offset_and_by_time_cross_the_edge_of_the_tier(root: Path, tier: str) -> None:
    of_topic = [r for r in EXPECTED if r["topic"] == "GtiTopic" and r["queueId"] == 0]
    for start, end in ((0, 5), (70, 80), (75, 76), (74, 75), (3, 90)):
        offsets = {"startingOffsets": start, "endingOffsets": end}
        asked = {k: json.dumps({"GtiTopic": {"0": v}}) for k, v in offsets.items()}
        found = rows(root, storePathTiered=tier, assign='{"GtiTopic":[0]}', **asked)
        assert [r["queueOffset"] for r in found] == list(range(start, end))
    times = sorted({r["store"] for r in of_topic})
    for ms in (*times[:3], *times[-30:], times[len(times) // 2]):
        asked = {"startingTimestamp": str(ms), "assign": '{"GtiTopic":[0]}'}
        found = rows(root, storePathTiered=tier, **asked)
        assert {key(r) for r in found} == {key(r) for r in of_topic if r["store"] >= ms}


def test_keys_ids_and_tags_find_what_the_tier_has(root: Path, tier: str) -> None:
    """Whichever version wrote the tier's index: its messages are scanned."""
    chosen = [r for r in EXPECTED if r["topic"] == "GtiTopic"]
    for word in ("key27", "key69", "late3"):
        found = rows(root, storePathTiered=tier, subscribe="GtiTopic", keys=word)
        has = [r for r in chosen if word in r["properties"].get("KEYS", "").split()]
        assert has
        assert {key(r) for r in found} == {key(r) for r in has}
    ids = [r["msgId"] for r in chosen[::40]]
    found = rows(root, storePathTiered=tier, subscribe="GtiTopic", msgIds=json.dumps(ids))
    assert {r["msgId"] for r in found} == set(ids)
    found = rows(root, storePathTiered=tier, subscribe="GtiTopic", tags="GtiA")
    assert {key(r) for r in found} == {
        key(r) for r in chosen if r["properties"].get("TAGS") == "GtiA"
    }


def test_without_the_tier_a_read_says_what_is_missing(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = rows(root, subscribe="GtiTopic")
    assert 0 < len(found) < len([r for r in EXPECTED if r["topic"] == "GtiTopic"])
    assert "GtiTopic/0 from 0, this store has it from 75" in caplog.text
    assert "storePathTiered" in caplog.text
    with pytest.raises(DataLossError, match="serves what lies before it from its tiered storage"):
        rows(root, subscribe="GtiTopic", startingOffsets='{"GtiTopic":{"0":0}}')


@pytest.mark.parametrize("with_tier", [False, True])
def test_the_backlog_counts_what_the_tier_has(root: Path, tier: str, with_tier: bool) -> None:
    options = {"storePathTiered": tier} if with_tier else {}
    found = planned.rows(str(root), table="backlog", **options)
    by_queue = {(r["group"], r["topic"], r["queueId"]): r for r in found}
    printed = goldens.progress(VERSION)
    assert printed
    for name, line in printed.items():
        row = by_queue[name]
        assert (row["lag"], row["diff"], row["expired"]) == (line.diff, line.diff, 0)
        assert row["minOffset"] == 0
        # Of GtiTopic/0 the local log has all that waits.
        assert row["status"] == ("LATE" if name[1:] == ("GtiTopic", 0) else "TIERED")
    assert sum(by_queue[PULL_GROUP, BATCH, n]["lag"] for n in range(4)) == 200


def test_tags_of_what_waits_are_counted_in_the_tier_and_warned_of_without(
    root: Path, tier: str, caplog: pytest.LogCaptureFixture
) -> None:
    printed = goldens.progress(VERSION)
    begin = {k[1:]: line.consumer_offset for k, line in printed.items() if k[0] == "CG_Gti"}
    for tag in ("GtiA", "GtiB"):
        asked = {"groups": "CG_Gti", "subscriptions": json.dumps({"CG_Gti": {"GtiTopic": tag}})}
        waiting = [
            r
            for r in EXPECTED
            if r["properties"].get("TAGS") == tag
            and r["queueOffset"] >= begin.get((r["topic"], r["queueId"]), 1 << 60)
        ]
        found = planned.rows(str(root), table="backlog", storePathTiered=tier, **asked)
        assert sum(r["lagMatching"] for r in found if r["topic"] == "GtiTopic") == len(waiting)
    assert waiting
    with caplog.at_level(logging.WARNING):
        planned.rows(str(root), table="backlog", **asked)
    assert "are in the broker's tiered storage" in caplog.text


@pytest.mark.parametrize("with_tier", [False, True])
def test_bounds_are_those_that_clients_are_told_and_no_loss_is_foreseen(
    root: Path, tier: str, with_tier: bool
) -> None:
    options = {"storePathTiered": tier} if with_tier else {}
    found = planned.rows(str(root), table="queues", **options)
    bounds = {(r["topic"], r["queueId"]): (r["minOffset"], r["maxOffset"]) for r in found}
    assert goldens.topic_status(VERSION).items() <= bounds.items()
    counts = {
        r["topic"]: r["messageCount"] for r in planned.rows(str(root), table="topics", **options)
    }
    assert counts[BATCH] == sum(r["topic"] == BATCH for r in EXPECTED) == 300
    foreseen = planned.rows(str(root), table="forecast", fileReservedTime="1h", **options)
    assert [r for r in foreseen if r["lag"] and r["topic"] == BATCH]
    assert {r["etaLoss"] for r in foreseen if r["topic"] == BATCH} == {None}
    verdicts = planned.rows(str(root), table="verdicts", **options)
    assert "EXPIRING" not in {r["verdict"] for r in verdicts}


def test_every_table_of_a_store_takes_the_tier(root: Path, tier: str) -> None:
    names = [name for name, table in CATALOG.items() if table.takes("storePathTiered")]
    assert {"backlog", "queues", "topics", "forecast", "verdicts"} <= set(names)
    for name in ("tags", "groups", "retries", "halfmessages", "scheduled", "queues"):
        assert isinstance(planned.rows(str(root), table=name, storePathTiered=tier), list)


def conf(folder: Path, **settings: str) -> str:
    path = folder / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


PLUG_IN = {"messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore"}
PROVIDER = "org.apache.rocketmq.tieredstore.provider."


def test_a_broker_conf_names_the_tier(root: Path, tier: str, tmp_path: Path) -> None:
    provider = {"tieredBackendServiceProvider": f"{PROVIDER}PosixFileSegment"}
    named = conf(tmp_path, **PLUG_IN, **provider, tieredStoreFilePath=tier)
    found = rows(root, storePathTiered=named, subscribe=BATCH)
    assert len(found) == 300


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "no tiered storage"),
        (PLUG_IN, "in memory"),
        (
            {**PLUG_IN, "tieredBackendServiceProvider": "com.example.S3FileSegment"},
            "kept by com.example.S3FileSegment",
        ),
        (
            {**PLUG_IN, "tieredBackendServiceProvider": f"{PROVIDER}PosixFileSegment"},
            "no absolute path",
        ),
    ],
)
def test_what_names_no_folder_is_refused_by_name(
    root: Path, tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidOptionError, match=said):
        rows(root, storePathTiered=conf(tmp_path, **settings))


def test_a_tier_that_is_not_of_the_store_is_refused_by_name(
    root: Path, tier: str, tmp_path: Path
) -> None:
    with pytest.raises(StoreNotFoundError):
        rows(root, storePathTiered=str(tmp_path / "nowhere"))
    with pytest.raises(InvalidOptionError, match="HASH_CLUSTER/broker-a"):
        rows(root, storePathTiered=str(tmp_path))
    plain = goldens.unpack("5.5.1", tmp_path)
    with pytest.raises(InvalidOptionError, match="tiered storage"):
        rows(plain, storePathTiered=tier)
    with pytest.raises(InvalidOptionError, match="excludes queues=log"):
        rows(root, storePathTiered=tier, queues="log")
    with pytest.raises(InvalidOptionError, match="directories of stores"):
        parse_read({"path": "rocketmq://127.0.0.1:1", "storePathTiered": tier})
    with pytest.raises(InvalidOptionError, match=r"is for spark\.read"):
        parse_stream({"path": str(root), "storePathTiered": tier})


def test_no_link_leads_out_of_the_tier(root: Path, tier: str, tmp_path: Path) -> None:
    copied = tmp_path / "tier"
    shutil.copytree(tier, copied)
    segments = next(copied.glob("*/broker-a/GtiTopic/0/COMMIT_LOG"))
    outside = tmp_path / "outside"
    shutil.move(segments, outside)
    segments.symlink_to(outside)
    with pytest.raises(UnsafePathError):
        rows(root, storePathTiered=str(copied), subscribe="GtiTopic")


def test_broken_metadata_is_an_error_with_the_tier_and_a_warning_without(
    root: Path, tier: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "store"
    shutil.copytree(root, store)
    (store / f"{TIER_METADATA}.bak").unlink()
    for text in (
        "{",
        '{"consumeQueueFileSegmentTable":[]}',
        '{"consumeQueueFileSegmentTable":{"x":{}}}',
        '{"consumeQueueFileSegmentTable":{"b/T/0":{"0":{"baseOffset":-1,"size":1}}}}',
        '{"consumeQueueFileSegmentTable":{"../T/0":{"0":{"baseOffset":0,"size":20}}}}',
        '{"consumeQueueFileSegmentTable":{"b/T/0":{},"c/T/0":{}}}',
        '{"consumeQueueFileSegmentTable":{"b/T/0":{"0":{"baseOffset":9e300,"size":20}}}}',
        "[" * 100_000,
    ):
        (store / TIER_METADATA).write_text(text)
        with pytest.raises(CorruptConfigError):
            rows(store, storePathTiered=tier)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert rows(store, subscribe="GtiTopic")
        assert "what tiered storage has of this store is not known" in caplog.text


def test_what_the_metadata_says_are_the_offsets_of_the_tier(root: Path) -> None:
    found = load(Directory(str(root)))
    assert found is not None
    assert found.broker == "broker-a"
    assert found.queues[BATCH, 0] == (0, 103)


@pytest.mark.soak
def test_mutated_tiers_are_read_or_named_and_no_false_message_comes(
    root: Path, tier: str, tmp_path: Path
) -> None:
    """Bytes, lengths and names of segments and of the metadata: errors are named, in time."""
    true = {key(r): r["bodySha1"] for r in EXPECTED}
    for seed in range(MUTANTS):
        chance = random.Random(seed)
        copied, store = tmp_path / f"tier-{seed}", tmp_path / f"store-{seed}"
        shutil.copytree(tier, copied)
        shutil.copytree(root, store)
        (store / f"{TIER_METADATA}.bak").unlink()
        for _ in range(chance.randint(1, 3)):
            mutate(chance, copied, store)
        begin = time.process_time()
        for damage in ("fail", "skip"):
            try:
                asked = {"storePathTiered": str(copied), "onCorrupt": damage}
                found = rows(store, subscribe="GtiTopic,GtiBatch", **asked)
            except StoreError:
                continue
            wrong = [key(r) for r in found if true.get(key(r), r["bodySha1"]) != r["bodySha1"]]
            assert not wrong, seed
        assert time.process_time() - begin < 20
        shutil.rmtree(copied)
        shutil.rmtree(store)


def mutate(chance: random.Random, tier: Path, store: Path) -> None:
    """Do one harm to a segment or to the metadata."""
    files = sorted(path for path in tier.rglob("*") if path.is_file() and "INDEX" not in path.parts)
    path = chance.choice([*files, store / TIER_METADATA])
    data = bytearray(path.read_bytes())
    kind = chance.choice(("flip", "zero", "cut", "grow", "rename", "remove", "number"))
    if kind == "remove":
        path.unlink()
    elif kind == "rename" and path in files:
        Path(path).rename(path.with_name(f"{path.name[:-1]}{chance.randint(0, 9)}"))
    else:
        at = chance.randrange(len(data))
        if kind == "flip":
            data[at] ^= 1 << chance.randrange(8)
        elif kind == "zero":
            data[at : at + 64] = bytes(len(data[at : at + 64]))
        elif kind == "cut":
            del data[at:]
        elif kind == "grow":
            data += chance.randbytes(200)
        else:
            size = min(8, len(data) - at)
            data[at : at + size] = (chance.choice((0, 1, -1, 2**31, 2**62)) % 2**64).to_bytes(
                8, "big"
            )[:size]
        path.write_bytes(data)


def test_a_copy_and_a_point_warn_of_the_tier_of_the_running_broker(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a broker was seen to append to the same segments."""
    repository = backing(tmp_path / "repository")
    for name, make in (
        ("repository@1", lambda: take_point(root, repository)),
        ("copied", lambda: copy_store(root, tmp_path / "copied")),
        ("restored", lambda: restore_point(at(repository, 1), tmp_path / "restored")),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            make()
        assert f"{tmp_path / name} names the tier of a running broker" in caplog.text
        found = planned.rows(str(tmp_path / name), table="backlog", groups=PULL_GROUP)
        assert {r["status"] for r in found} == {"TIERED"}
        assert sum(r["lag"] for r in found) == 200


def test_what_widened_bounds_cannot_read_is_no_slice(root: Path) -> None:
    """Tables about what is held read messages too, as those of dead letters: of the local log."""
    with closing(open_origin(str(root)).bounds()) as source:
        held = source.held()
        queue = held.queue(BATCH, 0)
        assert queue is not None
        assert (queue.low, queue.readable_low) == (0, queue.local_low)
        pieces = {(p.topic, p.queue_id): p.start for p in slices_of(held)}
        for found in held.queues:
            start = pieces.get((found.topic, found.queue_id))
            assert start in (None, found.readable_low)
        (first,) = source.first_at([queue], [0])
        assert first == queue.readable_low
