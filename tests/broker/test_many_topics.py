"""Real brokers with many topics and groups: each row of a look, and what a later look asks for.

The simulated fleet (``live.fleet``) is asked for the same, which shows that its brokers are true.
"""

import json
from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import mqlog
from broker.harness import BROKER_NAME, SMALL_FILES, Cluster
from live.test_fleet import in_order, look
from mqstore.live.remoting.connection import Connection
from mqstore.live.remoting.requests import Request
from mqstore.read.selection import Selection
from mqstore.request.places import open_all, places
from support import soak
from support.processes import until

pytestmark = pytest.mark.broker
TOPICS = soak.size("broker_topics", check=20, test=200, whole=2_000)
QUEUES, GROUPS, HELD = 4, 3, 2  # As many queues as a new topic has.
STILL = {28: 1, 43: 1, 21: 1, 402: 1}
"""What a later look asks a broker that did not move: runtime, offsets, topics, modes of groups."""
ROUTE = {105: 1}
"""It asks a name server whether proxies are there, whose clients brokers of 5.x do not know."""


def laid_out(root: Path) -> list[tuple[object, ...]]:
    """Write a store of many topics and groups; return the rows of its backlog."""
    topics = [f"Many{number:04}" for number in range(TOPICS)]
    messages = [(topic, n % QUEUES) for topic in topics for n in range(QUEUES * HELD)]
    names, queues = zip(*messages, strict=True)
    rows = pa.table({"topic": names, "queueId": pa.array(queues, pa.int32()), "body": names})
    sizes = {
        "mapped_file_size_commit_log": SMALL_FILES["mappedFileSizeCommitLog"],
        "mapped_file_size_consume_queue": SMALL_FILES["mappedFileSizeConsumeQueue"],
        "max_hash_slot_num": SMALL_FILES["maxHashSlotNum"],
        "max_index_num": SMALL_FILES["maxIndexNum"],
    }
    mqlog.write(rows, root, create_store=True, **sizes)
    offsets, expected = {}, []
    for number, topic in enumerate(topics):
        for group in range(GROUPS):
            at = {queue: (number + group + queue) % (HELD + 1) for queue in range(QUEUES)}
            offsets[f"{topic}@CG_{group}"] = {str(queue): one for queue, one in at.items()}
            for queue, one in at.items():
                word = "NO_CONSUMERS" if one < HELD else "OK"
                place = BROKER_NAME, f"CG_{group}", topic, queue
                expected.append((*place, HELD, one, 0, HELD - one, word))
    text = json.dumps({"offsetTable": offsets})
    (root / "config" / "consumerOffset.json").write_text(text)
    return in_order(expected)


@pytest.mark.soak
@pytest.mark.parametrize("cluster", ["5.5.0"], indirect=True, scope="session")
def test_a_look_at_many_topics_of_a_broker_has_every_row_and_a_later_one_asks_little(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = laid_out(tmp_path / "store")
    asked: Counter[int] = Counter()
    send_all = Connection.send_all

    def counted(connection: Connection, requests: list[Request]) -> list[int]:
        asked.update(request.code for request in requests)
        return send_all(connection, requests)

    with cluster.broker(tmp_path / "store") as broker:
        found = places([f"rocketmq://{cluster.name_server}"], {})
        selection = Selection(roots=(), include_system_topics=True, groups=(), with_state=True)
        with closing(open_all(selection, found.clusters)) as stores:
            monkeypatch.setattr(Connection, "send_all", counted)
            first = [row for row in look(stores) if str(row[2]).startswith("Many")]
            many = asked.copy()
            again: list[tuple[object, ...]] = []

            def is_still() -> bool:  # A broker stores messages of its own, as it tests itself.
                asked.clear()
                again[:] = [row for row in look(stores) if str(row[2]).startswith("Many")]
                return asked == STILL | (ROUTE if cluster.version.startswith("5") else {})

            until(is_still)
        broker.stop()
    soak.tell(f"{cluster.version}: {TOPICS} topics, {dict(many)}, then {dict(asked)}")
    assert in_order(first) == expected
    assert in_order(again) == expected
    assert many[202] >= TOPICS
