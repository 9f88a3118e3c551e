"""What a copy says of rocksdbstore, which every broker of 5.4 on makes, used or not."""

from pathlib import Path

import pytest

from mqstore.copy.copy_store import copy_store
from mqstore.errors import UnsafePathError
from support.oracle import Message
from support.stores import lay_out


def laid_out(folder: Path, messages: list[Message]) -> Path:
    root = lay_out(folder / "store", messages).root
    (root / "rocksdbstore").mkdir()
    (root / "rocksdbstore" / "CURRENT").write_text("MANIFEST-000001\n")
    (root / "rocksdbstore" / "MANIFEST-000001").write_bytes(b"x")
    return root


def test_of_a_stopped_broker_the_database_is_taken(tmp_path: Path) -> None:
    root = laid_out(tmp_path, [Message()])
    assert copy_store(str(root), str(tmp_path / "copy")).left_out == ()
    files = {path.name for path in (tmp_path / "copy" / "rocksdbstore").iterdir()}
    assert files == {"CURRENT", "MANIFEST-000001"}


@pytest.mark.parametrize(
    ("messages", "left_out"), [([], ()), ([Message()], ("rocksdbstore",))], ids=["empty", "used"]
)
def test_of_a_running_broker_without_index_files_it_is_left_out_by_name(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    messages: list[Message],
    left_out: tuple[str, ...],
) -> None:
    root = laid_out(tmp_path, messages)
    (root / "abort").touch()
    assert copy_store(str(root), str(tmp_path / "copy")).left_out == left_out
    assert ("rocksdbstore is left out" in caplog.text) is bool(left_out)
    assert not (tmp_path / "copy" / "rocksdbstore").exists()


def test_a_link_in_it_is_refused(tmp_path: Path) -> None:
    root = laid_out(tmp_path, [Message()])
    (root / "compaction").mkdir()
    (root / "compaction" / "compactionLog").symlink_to("/etc")
    with pytest.raises(UnsafePathError, match="compactionLog"):
        copy_store(str(root), str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()
