"""A store in which a topic was deleted and made again: its log has both, its queues the new one."""

import json
import shutil

from support.oracle import Message
from support.stores import Laid

OLD, NEW = "T1", "T2"
_BODY = 88


def make_again(laid: Laid) -> Laid:
    """Let the messages of topic OLD be earlier ones of NEW; their V1 records have IPv4 hosts."""
    assert not laid.layout.index, "its hashes are of the topic"
    for m in laid.messages:
        if m.topic == OLD:
            path, position = laid.file_of(m)
            with path.open("r+b") as file:
                file.seek(position + _BODY + len(m.body) + 1)
                file.write(NEW.encode())
    shutil.rmtree(laid.root / "consumequeue" / OLD)
    path = laid.root / "config" / "topics.json"
    document = json.loads(path.read_text())
    del document["topicConfigTable"][OLD]
    path.write_text(json.dumps(document))
    return laid


def twice(before: int, after: int, queues: int = 2) -> list[Message]:
    """Messages of the deleted topic, then of the new one, among those of another topic."""
    old = [Message(topic=OLD, queue_id=n % queues, body=b"old %d" % n) for n in range(before)]
    new = [Message(topic=NEW, queue_id=n % queues, body=b"new %d" % n) for n in range(after)]
    other = [Message(topic="Other", body=b"other %d" % n) for n in range(before + after)]
    return [m for pair in zip([*old, *new], other, strict=True) for m in pair]
