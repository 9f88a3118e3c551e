"""Rebuilds of a test's stores, the sizes of their files, and the files of a folder."""

import shutil
from dataclasses import astuple
from pathlib import Path

from mqstore.derive.damage import BeyondLogEnd
from mqstore.derive.rebuild import Rebuilt, rebuild
from mqstore.files.base import durable
from mqstore.files.base.file_sizes import FileSizes
from mqstore.files.base.store_dir import open_dir
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.store import Store
from support.stores import UNIT_BYTES, Layout


def sizes_of(layout: Layout) -> FileSizes:
    return FileSizes(
        commit_log=layout.commit_log_bytes,
        consume_queue=layout.queue_units * UNIT_BYTES,
        max_hash_slot_num=layout.index_slots,
        max_index_num=layout.index_units,
    )


def own_sizes(root: Path) -> FileSizes:
    with Store.open(root) as store:
        assert None not in astuple(store.sizes)
        return store.sizes.or_defaults()


def rebuilt(
    root: Path,
    sizes: FileSizes,
    start: int = 0,
    *,
    with_index: bool = True,
    fsync: bool = False,
) -> Rebuilt:
    temp_dir = root / ".mqlog" / "tmp" / "rebuild"
    shutil.rmtree(temp_dir, ignore_errors=True)  # As whoever holds the store does before.
    temp_dir.mkdir(parents=True)
    with durable.synced(wanted=fsync):
        writer = StoreWriter(open_dir(root), str(temp_dir), sizes)
        return rebuild(writer, start, behind=BeyondLogEnd.ANY, with_index=with_index)


def derived(root: Path, folder: str) -> dict[str, bytes]:
    """Return every file below a folder of the store."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }
