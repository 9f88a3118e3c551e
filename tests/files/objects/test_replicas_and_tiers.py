"""Replicas of a controller's group and stores with tiered storage, read from an object store."""

import json
import logging
from pathlib import Path

import pytest

from files.objects.test_equal_views import same
from mqstore.errors import CorruptStoreError, InvalidOptionError
from support import goldens, planned
from support.s3_server import S3Server

DISKS = [
    (goldens.CONTROLLER, "r1-killed"),
    (goldens.CONTROLLER, "r1-rejoined"),
    (goldens.CONTROLLER_DEFAULT, "r3-end"),
]
UNCLEAN = {"allowUnclean": "true"}


def topic_of(version: str) -> str:
    return str(goldens.expected(version)[0]["topic"])


@pytest.mark.parametrize(("version", "disk"), DISKS)
def test_a_replica_is_read_as_in_its_directory(
    tmp_path: Path, server: S3Server, version: str, disk: str
) -> None:
    """Also by keys, where its IndexFiles lack messages, and up to where its group agreed."""
    root, topic = goldens.unpack(version, tmp_path, disk), topic_of(version)
    place = root, server.upload(root, f"{version}-{disk}/store")
    keys = sorted(row["keys"] for row in planned.rows(str(root), subscribe=topic))
    assert same_of(server, place, subscribe=topic, columns="full") == len(keys) >= 300
    assert same_of(server, place, subscribe=topic, keys=json.dumps(keys)) == len(keys)
    by_log = {"queues": "log", "cacheDir": f"{tmp_path}/cache", "columns": "full"}
    assert same_of(server, place, **by_log) >= len(keys)
    for table in ("queues", "topics", "halfmessages", "scheduled", "verify"):
        same_of(server, place, table=table)


def same_of(server: S3Server, place: tuple[Path, str], **options: str) -> int:
    is_unclean = (place[0] / "abort").exists()
    if not is_unclean:
        return same(server, place, **options)
    root, address = place
    local = planned.rows(str(root), **options)
    rows = planned.rows(address, **server.options, **options, **UNCLEAN)
    assert len(rows) == len(local)
    if "msgId" in (rows[0] if rows else {}):
        assert {row["msgId"] for row in rows} == {row["msgId"] for row in local}
    return len(local)


def test_a_queue_of_a_replica_that_lacks_a_record_is_refused_there_too(
    tmp_path: Path, server: S3Server
) -> None:
    version = goldens.CONTROLLER_RESTARTED
    root = goldens.unpack(version, tmp_path, "r1-restarted")
    address = server.upload(root, "restarted/store")
    texts = {**server.options, **UNCLEAN}
    with pytest.raises(CorruptStoreError, match="index and queueOffset part"):
        planned.rows(address, **texts)
    by_log = {"queues": "log", "cacheDir": f"{tmp_path}/cache"}
    assert len(planned.rows(address, **texts, **by_log)) == 160


def test_a_tiered_store_is_read_as_in_its_directory_and_its_tier_is_refused(
    tmp_path: Path, server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    version = "5.5.1-tiered"
    root = goldens.unpack(version, tmp_path)
    place = root, server.upload(root, f"{version}/store")
    with caplog.at_level(logging.WARNING):
        assert same_of(server, place, columns="full") == 216
    assert caplog.text.count("GtiBatch/0 from 0, this store has it from 103") == 2
    for table in ("backlog", "queues", "topics", "forecast"):
        assert same_of(server, place, table=table)
    with pytest.raises(InvalidOptionError, match="storePathTiered"):
        planned.rows(place[1], **server.options, storePathTiered=str(tmp_path))
