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
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from mqstore.files import durable
from mqstore.files.config import broker_config
from mqstore.files.config import checkpoint as checkpoint_file
from mqstore.files.new_file import opened
from mqstore.files.safe_open import open_file
from mqstore.files.undo import Undo, make_directories
from mqstore.format import names
from mqstore.format.checkpoint import CHECKPOINT, FILE_SIZE
from mqstore.format.config import (
    BACKUP_SUFFIX,
    PERM_READ,
    PERM_WRITE,
    TOPICS,
)

_MAX_BYTES: Final = 64 * 1024 * 1024


def add_topics(root: str, queue_nums: Mapping[str, int], temp_dir: str, undo: Undo) -> bool:
    """Let consumers reach that many queues of each topic; return whether anything changed.

    A new topic gets as many queues to write to as to read from. Of one that is there only
    readQueueNums is raised, and never lowered: a broker refuses to read queues beyond it.
    """
    known = broker_config.topics(root)
    missing = {
        topic: count
        for topic, count in queue_nums.items()
        if topic not in known or known[topic].read_queue_nums < count
    }
    if not missing:
        # Whoever put it there was killed before its name was durable, perhaps.
        durable.fsync_directory(f"{root}/{names.CONFIG}")
        return False
    document = broker_config.load(root, TOPICS)
    table = document.setdefault("topicConfigTable", {})
    for topic, count in missing.items():
        if topic in known:
            table[topic]["readQueueNums"] = count
        else:
            table[topic] = _topic(topic, count)
    _raise_version(document)
    replace_json(root, TOPICS, document, temp_dir, undo)
    return True


def replace_json(
    root: str, name: str, document: Mapping[str, Any], temp_dir: str, undo: Undo
) -> None:
    """Replace ``config/name``; what was there becomes its .bak, unless nobody could read it."""
    make_directories(root, names.CONFIG, undo)
    path = f"{root}/{names.CONFIG}/{name}"
    text = json.dumps(document, ensure_ascii=False, indent="\t").encode()
    before = read_small(root, f"{names.CONFIG}/{name}")
    is_lost = broker_config.look(root, name).state in (broker_config.EMPTY, broker_config.BROKEN)
    if before is not None and not is_lost:
        replace_file(root, f"{names.CONFIG}/{name}{BACKUP_SUFFIX}", before, temp_dir, undo)
    replace_file(root, path.removeprefix(f"{root}/"), text, temp_dir, undo)


def replace_checkpoint(root: str, fields: Mapping[str, int], temp_dir: str, undo: Undo) -> None:
    """Set these fields of the checkpoint and keep the others."""
    found = checkpoint_file.load(root)
    page = np.zeros((), CHECKPOINT)
    if found is not None:
        page[...] = found
    for name, value in fields.items():
        page[name] = value
    data = page.tobytes().ljust(FILE_SIZE, b"\0")
    if read_small(root, names.CHECKPOINT) is None:
        replace_file(root, names.CHECKPOINT, data, temp_dir, undo)
    else:
        _rewrite(root, names.CHECKPOINT, data, undo)


def replace_file(root: str, path: str, data: bytes, temp_dir: str, undo: Undo) -> None:
    """Make ``root/path`` hold ``data``, durably, in one step."""
    target = f"{root}/{path}"
    before = read_small(root, path)
    if before is None:
        undo.remember(lambda: durable.unlink(target))
    else:
        undo.remember(lambda: _put(target, before, temp_dir))
    _put(target, data, temp_dir)


def read_small(root: str, path: str, most: int = _MAX_BYTES) -> bytes | None:
    """Return the first bytes of a small file of the store, or None if it is not there."""
    try:
        fd = open_file(root, path)
    except FileNotFoundError:
        return None
    try:
        return os.pread(fd, min(os.fstat(fd).st_size, most), 0)
    finally:
        os.close(fd)


def _rewrite(root: str, path: str, data: bytes, undo: Undo) -> None:
    """Overwrite a file of a fixed size in place, as its broker maps it."""
    target, before = f"{root}/{path}", read_small(root, path) or b""

    def restore() -> None:
        with opened(target) as fd:
            durable.write_at(fd, before, 0)
            durable.truncate(fd, len(before))
            durable.fsync(fd)

    undo.remember(restore)
    with opened(target) as fd:
        durable.write_at(fd, data, 0)
        durable.fsync(fd)


def _put(target: str, data: bytes, temp_dir: str) -> None:
    temporary = f"{temp_dir}/{secrets.token_hex(16)}"
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
