"""What mutants have found, each once more by hand."""

import os
import shutil
import struct
import time
from pathlib import Path

import pytest

from mqstore.codec.schema import PROFILES
from mqstore.errors import CorruptStoreError, StoreError, UnsafePathError
from mqstore.files.base.file_sizes import Layout as IndexLayout
from mqstore.files.base.store_dir import StoreDir
from mqstore.files.config.broker_config import BrokerConfig
from mqstore.files.index.index_file import IndexFile, list_index_files
from mqstore.read.directory import take
from mqstore.read.plan import SplitLimits, split, weigh
from mqstore.read.scan import scan
from mqstore.read.settings import ScanSettings
from mqstore.read.source import slices_of
from support import expectations, goldens, soak
from support.oracle import Message
from support.stores import Laid, Layout, lay_out

RESCUE = ScanSettings(columns=PROFILES["full"], on_corrupt="rescue", fail_on_data_loss=False)


def laid_out(tmp_path: Path, count: int = 20) -> Laid:
    messages = [Message(body=b"%d" % n) for n in range(count)]
    return lay_out(tmp_path / "store", messages, Layout(queue_units=6))


def rescued(root: Path) -> int:
    """The number of messages that are whole."""
    rows = []
    for batch in scan(slices_of(take(root, strict=False)), RESCUE):
        rows += expectations.rows(batch)
    return sum(row["crcOk"] for row in rows)


@pytest.mark.parametrize("size", [1, 19])
def test_a_queue_file_too_short_for_a_unit_holds_none(tmp_path: Path, size: int) -> None:
    laid = laid_out(tmp_path, count=3)
    path, _ = laid.unit_of(("T", 0), 0)
    os.truncate(path, size)
    (queue,) = take(laid.root, strict=False).queues
    assert (queue.low, queue.high) == (0, 0)


@pytest.mark.parametrize("place", ["config", "index", "consumequeue"])
def test_a_folder_that_is_none_is_no_error_of_the_system(tmp_path: Path, place: str) -> None:
    laid = laid_out(tmp_path)
    shutil.rmtree(laid.root / place)
    os.mkfifo(laid.root / place)
    try:
        list(scan(slices_of(take(laid.root)), RESCUE))
        BrokerConfig(StoreDir.at(laid.root)).groups()
    except StoreError as error:
        assert isinstance(error, UnsafePathError | CorruptStoreError)  # noqa: PT017 - or none
    with pytest.raises(UnsafePathError):
        BrokerConfig(StoreDir.at(laid_out(tmp_path / "2").root / "config" / "topics.json")).topics()


def test_a_store_whose_commit_log_is_gone_is_named(tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    for path in (laid.root / "commitlog").iterdir():
        path.unlink()
    with pytest.raises(CorruptStoreError) as caught:
        take(laid.root)
    assert caught.value.args[0] == f"{laid.root}/commitlog/"


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T/0"])
def test_a_file_larger_than_a_broker_maps_is_refused(tmp_path: Path, folder: str) -> None:
    laid = laid_out(tmp_path)
    last = sorted((laid.root / folder).iterdir())[-1]
    os.truncate(last, 1 << 40)
    with pytest.raises(CorruptStoreError, match="more than a broker can map") as caught:
        take(laid.root, strict=False)
    assert caught.value.args[0] == str(last)


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/T/0"])
def test_a_file_whose_end_is_no_position_is_refused(tmp_path: Path, folder: str) -> None:
    laid = laid_out(tmp_path)
    path = laid.root / folder / str(2**63 - 1).zfill(20)
    path.write_bytes(bytes(4096))
    with pytest.raises(CorruptStoreError, match="behind all positions") as caught:
        take(laid.root)
    assert caught.value.args[0] == str(path)


@soak.not_in_check
def test_a_queue_with_a_file_far_away_is_cut_into_few_partitions(tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    path, _ = laid.unit_of(("T", 0), 0)
    far = 2**62 // path.stat().st_size * path.stat().st_size
    shutil.copy(path, path.with_name(f"{far:020d}"))
    weighed = weigh(slices_of(take(laid.root, strict=False)), strict=False)
    assert max(one.slice.end - one.slice.start for one in weighed) > 2**57
    assert len(split(weighed, SplitLimits(max_records=1_000))) <= 2**17 + len(weighed)


def test_a_queue_file_that_grew_hides_nothing_of_the_next(tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    path, _ = laid.unit_of(("T", 0), 0)
    os.truncate(path, 10_000)
    assert rescued(laid.root) == 20


@soak.not_in_check
def test_units_of_anything_cost_no_batch_each(tmp_path: Path) -> None:
    root = goldens.unpack("5.5.0", tmp_path)
    log = sorted((root / "commitlog").iterdir())[1].read_bytes()
    (root / "consumequeue" / "GOrder" / "1" / ("0" * 20)).write_bytes(log)
    begin = time.process_time()  # No load of the machine makes that longer.
    batches = list(scan(slices_of(take(root, strict=False)), RESCUE))
    assert len(batches) < 1_000
    assert time.process_time() - begin < 60
    assert sum(batch.num_rows for batch in batches) > len(log) // 20 // 2
    huge = struct.pack(">qiq", 0, 2**31 - 2, 0) * 5_000
    (root / "consumequeue" / "GOrder" / "1" / ("0" * 20)).write_bytes(huge)
    assert len(list(scan(slices_of(take(root, strict=False)), RESCUE))) < 1_000


def test_an_index_file_that_fits_any_layout_is_not_tried_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = laid_out(tmp_path).root
    (root / "index").mkdir(exist_ok=True)
    # Two units, of which the newer is the head of slot 0; behind them a key of hash 0 everywhere.
    header = struct.pack(">qqqqii", 1, 1, 0, 0, 1, 2) + struct.pack(">i", 1)
    path = root / "index" / "20261121000000000"
    path.write_bytes(header + bytes(16) + struct.pack(">iqii", 0, 0, 1, 0) * 50_000)
    agrees, tried = IndexFile._agrees, []

    def counted(self: IndexFile, layout: IndexLayout, data: bytes) -> bool:
        tried.append(layout)
        return agrees(self, layout, data)

    monkeypatch.setattr(IndexFile, "_agrees", counted)
    (file,) = list_index_files(StoreDir.at(root))
    assert file.layout is None
    assert 0 < len(tried) <= 20


def test_what_is_rescued_of_units_that_lie_comes_a_few_at_a_time(tmp_path: Path) -> None:
    laid = lay_out(tmp_path / "store", [Message()], Layout(queue_units=2000))
    with (laid.root / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.truncate(256 << 20)
    path, _ = laid.unit_of(("T", 0), 0)
    path.write_bytes(struct.pack(">qiq", 0, 2**31 - 2, 0) * 2000)
    batches = list(scan(slices_of(take(laid.root, strict=False)), RESCUE))
    assert sum(batch.num_rows for batch in batches) == 2000
    assert max(batch.nbytes for batch in batches) < 2 * RESCUE.batch_bytes


def test_a_size_that_became_filler_hides_no_message_before_it(tmp_path: Path) -> None:
    laid = laid_out(tmp_path)
    path, position = laid.unit_of(("T", 0), 1)
    with path.open("r+b") as file:
        file.seek(position + 8)
        file.write(struct.pack(">i", 2**31 - 1))
    (queue,) = take(laid.root).queues
    assert (queue.low, queue.high) == (0, 20)
    assert rescued(laid.root) == 19
