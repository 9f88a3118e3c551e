"""Disks of a controller's group, RocketMQ 5.5.1, judged by what producers and clients were told.

Of ``goldens.CONTROLLER`` all replicas had to have a record before it was acknowledged; of
``goldens.CONTROLLER_DEFAULT`` the master alone.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from mqstore.copy.restore_point import restore_point
from mqstore.copy.take_point import take_point
from mqstore.files.points.backing import LocalBacking
from mqstore.request.repositories import point_at
from support import goldens, planned

CONTROLLER, DEFAULT = goldens.CONTROLLER, goldens.CONTROLLER_DEFAULT
DISKS = [
    (CONTROLLER, "r1-killed"),
    (CONTROLLER, "r3-kill"),
    (CONTROLLER, "r1-rejoined"),
    (CONTROLLER, "r2-live"),
    (DEFAULT, "r1-killed"),
    (DEFAULT, "r2-live"),
    (DEFAULT, "r3-end"),
]
SHORT = (DEFAULT, "r3-end")
"""A slave that cut its log: no IndexFile has what the new master wrote over it."""


def topic_of(version: str) -> str:
    return str(goldens.expected(version)[0]["topic"])


def by_key(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    found = {row["keys"]: (row["queueId"], row["queueOffset"]) for row in rows}
    assert len(found) == len(rows)
    return found


def searched(path: str, topic: str, keys: list[str], **options: str) -> dict[str, tuple[int, int]]:
    """Return what a read by keys finds, all at once."""
    return by_key(planned.rows(path, subscribe=topic, keys=json.dumps(keys), **options))


@pytest.mark.parametrize(("version", "disk"), DISKS)
def test_keys_find_each_message_that_a_replica_holds(
    tmp_path: Path, version: str, disk: str
) -> None:
    root, topic = goldens.unpack(version, tmp_path, disk), topic_of(version)
    held = by_key(planned.rows(str(root), subscribe=topic))
    assert len(held) >= 300
    assert searched(str(root), topic, sorted(held)) == held
    for key in sorted(held)[::100]:
        assert searched(str(root), topic, [key]) == {key: held[key]}


def test_keys_find_each_message_in_a_point_and_in_the_store_that_it_is_restored_to(
    tmp_path: Path,
) -> None:
    version, disk = SHORT
    root, topic = goldens.unpack(version, tmp_path, disk), topic_of(version)
    held = by_key(planned.rows(str(root), subscribe=topic))
    backing = LocalBacking(f"{tmp_path}/points")
    take_point(root, backing)
    point = f"{backing.address}@1"
    assert searched(point, topic, sorted(held)) == held
    restored = tmp_path / "restored"
    restore_point(point_at(point, {}), restored)
    assert not (restored / "epochFileCheckpoint").exists()
    assert not (restored / "brokerIdentity").exists()
    assert searched(str(restored), topic, sorted(held)) == held


@pytest.mark.parametrize("data", ["", "1\n5\n1-0\n", "2\n0\n5-7\n1-0\n", "x" * (2 << 20), None])
def test_a_replica_whose_epochs_cannot_be_known_is_searched_by_a_scan(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: str | None
) -> None:
    """The .bak that is there lacks the newest epoch, so it is not taken instead."""
    version, disk = SHORT
    root, topic = goldens.unpack(version, tmp_path, disk), topic_of(version)
    held = by_key(planned.rows(str(root), subscribe=topic))
    if data is None:
        (root / "epochFileCheckpoint").unlink()
    else:
        (root / "epochFileCheckpoint").write_text(data)
    assert searched(str(root), topic, sorted(held)) == held
    assert "MQLOG_CORRUPT_STORE" in caplog.text
    assert "its IndexFiles are not used" in caplog.text
