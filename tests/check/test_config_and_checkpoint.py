"""Findings about the config folder and the checkpoint."""

import struct
from pathlib import Path

import pytest

from check.damages import Damage, errors, too_few_queues, topic_unlisted, write
from mqstore.check import check
from support import goldens
from support.oracle import Message
from support.stores import Layout, lay_out


@pytest.mark.parametrize("damage", [topic_unlisted, too_few_queues])
def test_a_queue_that_no_consumer_can_reach_is_a_finding(tmp_path: Path, damage: Damage) -> None:
    """No error: a deleted topic's queues look the same, and are the broker's to clean up."""
    laid = lay_out(tmp_path / "store", [Message()])
    damage(laid)
    assert any(finding.file == "config/topics.json" for finding in check(laid.root))


def test_a_group_behind_the_end_of_its_queue_is_a_finding(tmp_path: Path) -> None:
    offsets = {("T", "fine"): {0: 2}, ("T", "far"): {0: 3}, ("Gone", "g"): {7: 9}}
    laid = lay_out(tmp_path / "store", [Message(), Message()], Layout(group_offsets=offsets))
    (found,) = check(laid.root)
    assert (found.severity, found.file) == ("warning", "config/consumerOffset.json")
    assert "group far goes on at 3, the queue ends at 2" in found.problem


JSON_FILES = ["topics.json", "consumerOffset.json", "subscriptionGroup.json",
              "consumerFilter.json", "delayOffset.json"]  # fmt: skip


@pytest.mark.parametrize("name", JSON_FILES)
def test_a_file_of_which_only_the_backup_is_good_is_a_warning(tmp_path: Path, name: str) -> None:
    """ConfigManager#load reads it; once that is broken too, the broker does not start."""
    root = goldens.unpack("5.5.0", tmp_path)
    path, backup = root / "config" / name, root / "config" / f"{name}.bak"
    text = path.read_text() if path.exists() else "{}"
    backup.write_text(text)
    for broken, told in (
        (text[:-9] + "\x01", "not JSON: "),
        ("\0" * 99, "zero byte"),
        ("", "empty"),
    ):
        path.write_text(broken)
        (found,) = [f for f in check(root) if f.file == f"config/{name}"]
        assert found.severity == "warning"
        assert told in found.problem
        assert f"brokers read {name}.bak, the state before" in found.problem
    path.unlink()
    (found,) = [f for f in check(root) if f.file == f"config/{name}"]
    assert found.problem.startswith("not there: brokers read")


@pytest.mark.parametrize("name", JSON_FILES)
def test_a_file_that_is_lost_with_its_backup_is_an_error(tmp_path: Path, name: str) -> None:
    root = goldens.unpack("5.5.0", tmp_path)
    path, backup = root / "config" / name, root / "config" / f"{name}.bak"
    path.write_text("{")
    backup.write_text('{\n"a": 1,\n"b\n')
    (found,) = [f for f in errors(root) if f.file == f"config/{name}"]
    assert (
        f"brokers do not start, as {name}.bak cannot be read either (not JSON: Inv" in found.problem
    )
    assert found.problem.endswith("character at line 3 column 3)")
    backup.unlink()
    (found,) = [f for f in errors(root) if f.file == f"config/{name}"]
    assert found.problem.endswith(f"start as if it had never been, as {name}.bak is not there")
    path.write_text('{"a":' * 99)
    (found,) = [f for f in errors(root) if f.file == f"config/{name}"]
    assert "mqlog does not read it" in found.problem
    path.unlink()
    backup.write_text("{")
    (found,) = [f for f in errors(root) if f.file == f"config/{name}"]
    assert found.problem.startswith("not there: brokers do not start")


def test_an_index_time_ahead_of_the_log_is_a_finding(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()])
    write(laid.root / "checkpoint", 16, struct.pack(">q", 2**60))
    (found,) = check(laid.root)
    assert (found.severity, found.file) == ("warning", "checkpoint")
