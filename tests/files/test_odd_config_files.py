"""Configuration files that begin with a byte order mark, are empty, or are links."""

import logging
from pathlib import Path

import pytest

import mqlog
from mqstore.copy.copy_store import copy_store
from mqstore.copy.salvage import salvage
from mqstore.copy.take_point import take_point
from mqstore.errors import CorruptConfigError, UnsafePathError
from mqstore.files.config.broker_config import _warn_of_empty
from mqstore.files.points.backing import LocalBacking
from support.oracle import Message
from support.stores import Laid, Layout, lay_out

FILES = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")


@pytest.fixture
def laid(tmp_path: Path) -> Laid:
    layout = Layout(group_offsets={("T", "g"): {0: 1}})
    return lay_out(tmp_path / "store", [Message()] * 3, layout)


def without_backup(laid: Laid, name: str) -> Path:
    path = laid.root / "config" / name
    path.with_name(f"{name}.bak").unlink(missing_ok=True)
    return path


def test_a_byte_order_mark_is_passed_by_as_brokers_do(laid: Laid) -> None:
    path = without_backup(laid, "consumerOffset.json")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    lags = mqlog.open(str(laid.root)).table("backlog").to_table()["lag"].to_pylist()
    assert lags == [2]
    path.write_bytes(b"\xef\xbb\xbf{x")
    with pytest.raises(CorruptConfigError, match="at byte 4"):
        mqlog.open(str(laid.root)).table("backlog").to_table()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", ["", " \n", "\ufeff"])
def test_an_empty_file_without_a_backup_is_told(
    laid: Laid, name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    without_backup(laid, name).write_text(text, encoding="utf-8")
    _warn_of_empty.cache_clear()
    with caplog.at_level(logging.WARNING):
        place = mqlog.open(str(laid.root))
        for table in ("backlog", "topics", "groups", "scheduled"):
            place.table(table).to_table()
    if name != "delayOffset.json":  # Read where delayed messages are.
        assert f"{name} is empty" in caplog.text


@pytest.mark.parametrize("name", FILES)
def test_a_link_among_the_files_of_config_is_refused_or_told(
    laid: Laid, tmp_path: Path, name: str
) -> None:
    path = laid.root / "config" / name
    if not path.exists():
        path.write_text("{}")
    outside = path.rename(tmp_path / name)
    path.symlink_to(outside)
    with pytest.raises(UnsafePathError, match=name):
        copy_store(laid.root, tmp_path / "copy")
    with pytest.raises(UnsafePathError, match=name):
        take_point(laid.root, LocalBacking(str(tmp_path / "points")))
    assert not salvage(laid.root, tmp_path / "new").is_complete


@pytest.mark.parametrize("name", ["consumequeue_ext", "timerlog"])
def test_a_link_beside_the_queues_is_not_left_out_of_a_copy(
    laid: Laid, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    (laid.root / name).symlink_to(tmp_path / name)
    with pytest.raises(UnsafePathError, match=name):
        copy_store(laid.root, tmp_path / "copy")
