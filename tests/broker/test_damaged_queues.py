"""ConsumeQueue files that are empty or cut short: what a broker loads, and what mqlog says."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import mqlog
from broker.harness import Cluster
from broker.jvm import JvmError
from mqstore.errors import CorruptStoreError

pytestmark = pytest.mark.broker

TOPIC, COUNT = "Cut", 1200
DAMAGES: dict[str, tuple[Callable[[list[Path]], object], dict[str, bool]]] = {
    "first empty": (lambda files: os.truncate(files[0], 0), {"4.9.7": False, "5.5.0": False}),
    "cut short": (lambda files: os.truncate(files[0], 2000), {"4.9.7": False, "5.5.0": False}),
    "last empty": (lambda files: os.truncate(files[-1], 0), {"4.9.7": False, "5.5.0": True}),
    "last gone": (lambda files: files[-1].unlink(), {"4.9.7": True, "5.5.0": True}),
}
"""The damage, and which brokers start with it."""


def rows(root: Path, **options: str) -> int:
    return int(mqlog.open(str(root), **options).scan(TOPIC).to_table().num_rows)


def test_a_broker_refuses_such_files_or_serves_less_and_mqlog_names_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    """No broker of either version enters again what a queue lost while others kept theirs."""
    root = tmp_path / "store"
    root.mkdir()
    with cluster.broker(root) as broker:
        broker.produce(TOPIC, "Single", COUNT)
        broker.stop()
    assert rows(root) == COUNT
    for name, (harm, starts) in DAMAGES.items():
        place = tmp_path / name.replace(" ", "-")
        shutil.copytree(root, place)
        queue = max(
            (place / "consumequeue" / TOPIC).iterdir(),
            key=lambda folder: len(list(folder.iterdir())),
        )
        harm(sorted(queue.iterdir()))
        with pytest.raises(CorruptStoreError, match=f"consumequeue/{TOPIC}/.*queues=log"):
            raise AssertionError(f"{name}: {rows(place)} rows")
        assert rows(place, queues="log") == COUNT, name
        try:
            with cluster.broker(place) as broker:
                served = len(broker.dump(TOPIC).rows)
                broker.stop()
        except JvmError:
            assert not starts[cluster.version], name
        else:
            assert starts[cluster.version], name
            assert served < COUNT, name
