"""An audit of two replicas of a controller's group names the epoch from which one is stale."""

from pathlib import Path

import pytest

from support import goldens, planned

CONTROLLER, DEFAULT = goldens.CONTROLLER, goldens.CONTROLLER_DEFAULT


def unpacked(version: str, folder: Path, *disks: str) -> list[str]:
    return [str(goldens.unpack(version, folder / disk, disk)) for disk in disks]


def test_a_former_master_is_stale_from_the_epoch_of_the_new_one_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It acknowledged 120 messages, and the new master has 80 of them."""
    former, living = unpacked(DEFAULT, tmp_path, "r1-killed", "r2-live")
    rows = planned.rows(former, table="audit", against=living)
    alone = [row for row in rows if row["difference"] == "not in second"]
    of_group = {row["msgId"] for row in goldens.expected(DEFAULT)}
    acknowledged = {row["msgId"] for row in planned.rows(former)}
    assert len(acknowledged - of_group) == 40
    assert len(rows) - len(alone) > 0
    assert f"epoch 5 begins at 212780 in {living}: {former} is stale from there on" in caplog.text
    assert "its 40 records behind it are not the group's" in caplog.text


@pytest.mark.parametrize(
    ("version", "disks"),
    [(CONTROLLER, ("r1-rejoined", "r2-live")), (DEFAULT, ("r3-end", "r2-live"))],
)
def test_replicas_that_follow_each_other_are_equal_and_neither_is_stale(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str, disks: tuple[str, str]
) -> None:
    first, second = unpacked(version, tmp_path, *disks)
    assert planned.rows(first, table="audit", against=second) == []
    assert "stale" not in caplog.text


def test_an_audit_says_where_the_epochs_of_a_replica_cannot_be_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    former, living = unpacked(DEFAULT, tmp_path, "r1-killed", "r2-live")
    Path(living, "epochFileCheckpoint").write_bytes(b"\xff" * 100)
    assert planned.rows(former, table="audit", against=living)
    assert "which of the two is stale is not known" in caplog.text
