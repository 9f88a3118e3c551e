"""Replace small files of a store in one step: topics.json, with its .bak, and the checkpoint.

What is written is whole and durable under a name of ours before it takes the file's name; the
file is never missing in between. The JSON is strict: brokers read quoted integer keys as well.

Reference: common/ConfigManager#persist, MixAll#string2File (the old file becomes .bak).
"""

import json
import os
import secrets
import stat
import time
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from mqstore.files.base import durable
from mqstore.files.base.new_file import opened
from mqstore.files.base.store_writer import StoreWriter
from mqstore.files.config import checkpoint as checkpoint_file
from mqstore.files.config.broker_config import BROKEN, EMPTY, BrokerConfig
from mqstore.format import names
from mqstore.format.checkpoint import CHECKPOINT, FILE_SIZE
from mqstore.format.config import (
    BACKUP_SUFFIX,
    BATCH_QUEUE_TYPE,
    PERM_READ,
    PERM_WRITE,
    QUEUE_TYPE,
    TOPICS,
)


def add_topics(
    writer: StoreWriter, queue_nums: Mapping[str, int], with_batches: Collection[str] = ()
) -> bool:
    """Let consumers reach that many queues of each topic; return whether anything changed.

    A new topic gets as many queues to write to as to read from. Of one that is there
    only readQueueNums is raised, and never lowered: a broker refuses to read queues beyond it.
    Topics of ``with_batches`` become such with batch ConsumeQueues.
    """
    config = BrokerConfig(writer.place)
    known = config.topics()
    missing = {
        topic: count
        for topic, count in queue_nums.items()
        if topic not in known
        or known[topic].read_queue_nums < count
        or (topic in with_batches and not known[topic].has_batches)
    }
    if not missing:
        # The process that put it there may have been killed before its name was durable.
        durable.fsync_directory(writer.path(names.CONFIG))
        return False
    document = config.load(TOPICS)
    table = document.setdefault("topicConfigTable", {})
    for topic, count in missing.items():
        if topic not in known:
            table[topic] = _topic(topic, count)
        elif known[topic].read_queue_nums < count:
            table[topic]["readQueueNums"] = count
        if topic in with_batches:
            attributes = table[topic].get("attributes")
            others = attributes if isinstance(attributes, dict) else {}
            table[topic]["attributes"] = others | {QUEUE_TYPE: BATCH_QUEUE_TYPE}
    _raise_version(document)
    replace_json(writer, TOPICS, document)
    return True


def replace_json(writer: StoreWriter, name: str, document: Mapping[str, Any]) -> None:
    """Replace ``config/name``; what was there becomes its .bak, unless it could not be parsed."""
    writer.make_directories(names.CONFIG)
    path = f"{names.CONFIG}/{name}"
    text = json.dumps(document, ensure_ascii=False, indent="\t").encode()
    before = writer.place.folder.read_small(path)
    is_lost = BrokerConfig(writer.place).look(name).state in (EMPTY, BROKEN)
    if before is not None and not is_lost:
        replace_file(writer, f"{path}{BACKUP_SUFFIX}", before)
    replace_file(writer, path, text)


def replace_checkpoint(writer: StoreWriter, fields: Mapping[str, int]) -> None:
    """Set these fields of the checkpoint and leave the others as they are."""
    found = checkpoint_file.load(writer.place)
    page = np.zeros((), CHECKPOINT)
    if found is not None:
        page[...] = found
    for name, value in fields.items():
        page[name] = value
    data = page.tobytes().ljust(FILE_SIZE, b"\0")
    before = writer.place.folder.read_small(names.CHECKPOINT)
    if before is None:
        replace_file(writer, names.CHECKPOINT, data)
    else:
        _rewrite(writer, names.CHECKPOINT, before, data)


def replace_file(writer: StoreWriter, path: str, data: bytes) -> None:
    """Make ``path``, relative to the root, hold ``data``: durably and in one step."""
    before = writer.place.folder.read_small(path)
    if before is None:
        writer.undo.remember(lambda: durable.unlink(writer.path(path)))
    else:
        writer.undo.remember(lambda: replace_for_good(writer, path, before))
    replace_for_good(writer, path, data)


def _rewrite(writer: StoreWriter, path: str, before: bytes, data: bytes) -> None:
    """Overwrite a file of a fixed size in place, as a broker has it mapped."""
    target = writer.path(path)

    def restore() -> None:
        with opened(target) as fd:
            durable.write_at(fd, before, 0)
            durable.truncate(fd, len(before))
            durable.fsync(fd)

    writer.undo.remember(restore)
    with opened(target) as fd:
        durable.write_at(fd, data, 0)
        durable.fsync(fd)


def replace_for_good(writer: StoreWriter, path: str, data: bytes) -> None:
    """As ``replace_file``, and never taken back."""
    target = writer.path(path)
    temporary = f"{writer.temp_dir}/{secrets.token_hex(16)}"
    try:
        fd = durable.create(temporary)
        try:
            durable.write_at(fd, data, 0)
            durable.fsync(fd)
            _keep_mode(fd, target)
        finally:
            durable.close(fd)
        durable.replace(temporary, target)
        durable.fsync_directory(os.path.dirname(target))  # noqa: PTH120 - strings at the seam
    except BaseException:
        durable.unlink(temporary)
        raise


def _keep_mode(fd: int, target: str) -> None:
    try:
        mode = stat.S_IMODE(os.lstat(target).st_mode)
    except FileNotFoundError:
        return
    durable.set_mode(fd, mode)


def _topic(topic: str, queues: int) -> dict[str, Any]:
    return {
        "attributes": {},
        "order": False,
        "perm": PERM_READ | PERM_WRITE,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }


def _raise_version(document: dict[str, Any]) -> None:
    version = document.get("dataVersion")
    if not isinstance(version, dict):
        version = document["dataVersion"] = {"counter": 0}
    counter = version.get("counter")
    version["counter"] = (counter if isinstance(counter, int) else 0) + 1
    version["timestamp"] = time.time_ns() // 1_000_000
