"""What crosses a process is a frozen value: it pickles, and holds nothing that is open."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import mqstore

# Values that travel between driver and tasks, by where they are declared.
CROSSING = {
    "mqstore.read.plan": {"SplitLimits"},
    "mqstore.read.source": {"QueueBounds", "QueueSlice", "Snapshot"},
    "mqstore.read.directory": {"StoreOrigin"},
    "mqstore.read.settings": {"ScanSettings"},
    "mqstore.files.base.store_dir": {"StoreDir"},
    "mqstore.files.base.file_sizes": {"FileSizes"},
    "mqstore.write.stage.job": {"WriteJob", "Manifest", "CommitResult"},
    "mqstore.write.stage.settings": {"WriteSettings"},
    "mqstore.deliver.job": {"SendJob", "SendReport"},
    "mqstore.deliver.settings": {"SendSettings"},
    "mqstore.backlog.items": {"BacklogItem", "PackedItems"},
    "mqstore.backlog.request": {"BacklogRequest"},
}


def crossing() -> Iterator[type]:
    for module, names in CROSSING.items():
        for name in sorted(names):
            yield getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("kind", list(crossing()), ids=lambda kind: kind.__name__)
def test_what_crosses_a_process_is_frozen_and_slotted(kind: type) -> None:
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in vars(kind)


def test_every_module_of_the_core_imports_by_itself() -> None:
    for found in pkgutil.walk_packages(mqstore.__path__, "mqstore."):
        importlib.import_module(found.name)
