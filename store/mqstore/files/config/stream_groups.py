"""Progress that streams of ours publish under a group's name: one JSON each in .mqlog/groups.

    {"group":"audit","offsetTable":{"TopicA":{"0":23,"1":7}}}    next queue offset of each queue

A broker's own groups stand in config/, which is the broker's to write. The file is replaced in
one step and durable before it takes its name; its own name is a hash, for a group's may hold
what a file's may not.
"""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from mqstore.errors import CorruptConfigError
from mqstore.files.base import bounded_json, durable
from mqstore.files.base.store_dir import StoreDir
from mqstore.format import names
from mqstore.format.arrays import TopicQueue

OWN_STREAM: Final = "mqlog"

GROUPS_FOLDER: Final = f"{names.OURS}/groups"
_GROUP_FILE: Final = re.compile(r"[0-9a-f]{32}\.json")
_FOLDER_TRIES: Final = 3


def published(place: StoreDir) -> dict[tuple[str, str], dict[int, int]]:
    """Return what streams published: (topic, group) → {queueId: next queue offset to read}.

    Raises CorruptConfigError for a file that is not what ``publish`` writes.
    """
    found: dict[tuple[str, str], dict[int, int]] = {}
    for name in filter(_GROUP_FILE.fullmatch, place.folder.names(GROUPS_FOLDER)):
        path = f"{GROUPS_FOLDER}/{name}"
        data = place.folder.read_small(path)
        if data is not None:
            group, topics = _parse(data, f"{place.root}/{path}")
            found |= {(topic, group): queues for topic, queues in topics.items()}
    return found


def publish(place: StoreDir, group: str, queues: Mapping[TopicQueue, int]) -> None:
    """Replace what was published as ``group``; raises OSError, NoSpaceError."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, queue_id), queue_offset in sorted(queues.items()):
        topics.setdefault(topic, {})[str(queue_id)] = queue_offset
    data = json.dumps({"group": group, "offsetTable": topics}).encode()
    name = hashlib.sha256(group.encode()).hexdigest()[:32]
    folder = f"{place.root}/{GROUPS_FOLDER}"
    make_folder(place)
    temp_dir = f"{folder}/{name}.{secrets.token_hex(8)}"
    fd = durable.create(temp_dir)
    try:
        durable.write_at(fd, data, 0)
        durable.fsync(fd)
        durable.replace(temp_dir, f"{folder}/{name}.json")
    except BaseException:
        durable.unlink(temp_dir)
        raise
    finally:
        durable.close(fd)
    durable.fsync_directory(folder)


def make_folder(place: StoreDir) -> None:
    """Make the folder if it is not there; raises OSError where it cannot be written to."""
    root = place.root
    for _ in range(_FOLDER_TRIES):  # A write that ends now removes .mqlog if it is empty.
        with suppress(FileNotFoundError):
            for path, parent in ((names.OURS, root), (GROUPS_FOLDER, f"{root}/{names.OURS}")):
                with suppress(FileExistsError):
                    durable.make_directory(f"{root}/{path}")
                    durable.fsync_directory(parent)
            break
    if not os.access(f"{root}/{GROUPS_FOLDER}", os.W_OK):
        raise PermissionError(f"{root}/{GROUPS_FOLDER}: not ours to write to")


def _parse(data: bytes, path: str) -> tuple[str, dict[str, dict[int, int]]]:
    try:
        document = bounded_json.loads(data.decode())
        table = document["offsetTable"]
        return str(document["group"]), {
            topic: _queues(queues) for topic, queues in table.items() if names.is_topic(topic)
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = f"not what mqlog writes there ({error}); remove it, the stream writes it again"
        raise CorruptConfigError(path, 0, reason) from error


def _queues(queues: Mapping[str, Any]) -> dict[int, int]:
    found = {}
    for key, value in queues.items():
        queue_id = names.parse_queue_id(key)
        if queue_id is None or type(value) is not int or not 0 <= value < 2**63:
            raise ValueError(f"{key}: {value}")
        found[queue_id] = value
    return found
