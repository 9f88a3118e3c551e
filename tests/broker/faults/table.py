"""The table of made faults: how each state of a group is made, and the words that are right.

``live`` is what a cluster shows in several looks, ``disk`` what the store does beside its broker,
which knows no consumers. The words that one look cannot show are WORDS_OF_LOOKS.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.faults.scene import QUEUES, Scene, wait
from broker.pop.remote import Handle, Remote, retry_topic
from mqstore.verdicts.bounds import MIN_TRIES

WORDS_OF_LOOKS: Final = frozenset({"STUCK_QUEUE", "STANDS_STILL", "SLOW_CONSUMER"})
POP_VERSION: Final = "5.5.0"
LONG_MS, SHORT_MS = 600_000, 1_500


@dataclass(frozen=True, slots=True)
class Row:
    """A group of the name ``CG_NAME`` in a state that ``make`` makes of it."""

    name: str
    make: Callable[[Scene, str, str], object]
    live: frozenset[str] = frozenset()
    disk: frozenset[str] = frozenset()
    subscription: str | None = None
    is_pop: bool = False
    is_waiting: bool = False
    """Its first messages wait from the beginning on, and are in a file that is full."""
    one_look: frozenset[str] = frozenset()
    """What one look at the cluster may say too: who is not connected may commit all the same."""
    is_behind: bool = False
    """It works, and what it has not consumed is old."""

    @property
    def group(self) -> str:
        return f"CG_{self.name}"

    @property
    def topic(self) -> str:
        return f"T_{self.name}"

    @property
    def works(self) -> bool:
        """Whether nothing old waits for it."""
        return not self.live and not self.is_behind

    def is_of(self, version: str) -> bool:
        return not self.is_pop or version == POP_VERSION


def fast(s: Scene, group: str, topic: str) -> None:
    s.feed(s.topic(topic), 5)
    s.broker.join(group, topic)


def steady(s: Scene, group: str, topic: str) -> None:
    s.feed(s.topic(topic, each=5), 1)
    s.broker.join(group, topic, how="throttles", number=50)


def throttled(s: Scene, group: str, topic: str) -> None:
    """Pulls are put off again and again, as eight messages of a queue are all it may have."""
    s.feed(s.topic(topic, each=100), 1)
    s.broker.join(group, topic, how="throttles", number=20)


def idle(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    s.broker.join(group, topic)


def restarted(s: Scene, group: str, topic: str) -> None:
    s.feed(s.topic(topic), 1)
    s.broker.join(group, topic)

    def again() -> None:
        s.broker.leave(group)
        s.broker.join(group, topic)

    s.later.append(again)


def commits_seldom(s: Scene, group: str, topic: str) -> None:
    s.feed(s.topic(topic), 3)
    s.broker.join(group, topic, how="commits", number=5_000)


def rotates(s: Scene, group: str, topic: str) -> None:
    s.topic(topic, each=200)
    s.broker.join(group, topic, how="rotates", number=120)


def from_the_end(s: Scene, group: str, topic: str) -> None:
    s.feed(s.topic(topic), 1)
    s.broker.join(group, topic, how="last")


def by_itself(s: Scene, group: str, topic: str) -> None:
    """A client commits that is no member, as those that only pull do."""
    s.topic(topic, each=400)
    s.broker.commit(topic, group, 1)
    done = [1]

    def step(client: Remote) -> None:
        done[0] = min(done[0] + 1, 400)
        for queue_id in range(QUEUES):
            client.ask(15, consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=done[0])

    s.steps.append(step)


def tag_of_nobody(s: Scene, group: str, topic: str) -> None:
    s.feed(s.topic(topic), 1)
    s.broker.join(group, topic, "NoSuchTag")


def read_only(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    s.broker.join(group, topic)
    s.consumed(group, topic)
    s.set_permission(topic, 4)


def topic_gone(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    s.broker.commit(topic, group, 1)
    s.delete(topic)


def never_started(s: Scene, group: str, topic: str) -> None:
    """It has its settings and no offset: nothing tells what it would consume."""
    s.topic(topic)
    s.set_group(group)


def one_failure(s: Scene, group: str, topic: str) -> None:
    s.feed(s.topic(topic), 1)
    s.broker.push(topic, group, "*", 20, 20)
    s.broker.join(group, topic)


def away(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    s.broker.commit(topic, group, 1)


def killed(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    client = s.other_client()
    s.cluster.ask_of(client, "join", group, topic, "*", "takes", 0)
    s.consumed(group, topic)
    client.kill()
    for number in range(40):
        s.client.send(topic, number % QUEUES, f"{topic}-late-{number}", QUEUES)


def set_back(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    s.broker.commit(topic, group, 50)
    s.later.append(lambda: [s.commit_one(group, topic, queue_id, 5) for queue_id in range(QUEUES)])


def ahead(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    s.broker.commit(topic, group, 10_000)


def hangs_whole(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    s.broker.commit(topic, group, 1)
    s.broker.join(group, topic, how="hangs", number=-1)


def hangs_from_the_first(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    s.broker.join(group, topic, how="hangs", number=-1)


def hangs_in_one(s: Scene, group: str, topic: str) -> None:
    s.topic(topic, each=10)
    s.broker.join(group, topic, how="hangs", number=1)
    s.feed(topic, 1)


def suspended(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    s.broker.commit(topic, group, 1)
    s.broker.join(group, topic, how="suspends")


def without_right(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    s.broker.commit(topic, group, 1)
    s.set_group(group, "-s", "false")
    s.broker.join(group, topic)


def write_only(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    s.broker.commit(topic, group, 1)
    s.broker.join(group, topic, how="suspends")
    s.set_permission(topic, 2)


def slow(s: Scene, group: str, topic: str) -> None:
    s.feed(s.topic(topic), 2)
    s.broker.join(group, topic, how="throttles", number=1_000)


def hot(s: Scene, group: str, topic: str) -> None:
    s.topic(topic, each=5)
    for number in range(300):
        s.client.send(topic, 2, f"{topic}-hot-{number}", QUEUES, tag="TagA")
    s.feed(topic, 5, [2])
    s.broker.join(group, topic, how="throttles", number=1_000)


def new_queue(s: Scene, group: str, topic: str) -> None:
    """Its members were told which queues they have, and a queue was added since."""
    s.topic(topic)
    s.broker.join(group, topic, how="fixed", number=QUEUES - 1)


def lock_of_another(s: Scene, group: str, topic: str) -> None:
    """The lock is taken again and again, as it expires after a minute."""
    s.topic(topic)
    s.broker.commit(topic, group, 1)
    s.lock_all(group, topic)
    s.steps.append(lambda client: s.lock_all(group, topic, client=client))
    s.broker.join(group, topic, how="orders")


def in_order(s: Scene, group: str, topic: str) -> None:
    s.feed(s.topic(topic), 1)
    s.broker.join(group, topic, how="orders")


def of_two_minds(s: Scene, group: str, topic: str) -> None:
    s.feed(s.topic(topic), 1)
    s.broker.join(group, topic, "TagA || TagB")
    s.broker.join(group, topic, "TagA")


def twins(s: Scene, group: str, topic: str) -> None:
    """Two processes with one client id take the same half of the queues."""
    s.topic(topic)
    s.broker.commit(topic, group, 1)
    s.broker.join(group, topic, how="twins")
    client = s.other_client()
    s.cluster.ask_of(client, "join", group, topic, "*", "twins", 0)
    s.feed(topic, 1)


def filtered(s: Scene, group: str, topic: str) -> None:
    s.topic(topic)
    s.broker.commit(topic, group, 1)


def fails(s: Scene, group: str, topic: str) -> None:
    s.topic(topic, each=1, queues=1)
    s.broker.join(group, topic, how="fails", number=1_000)
    s.waits.append(lambda: _tries(s, f"%RETRY%{group}") >= MIN_TRIES)


def gives_up(s: Scene, group: str, topic: str) -> None:
    s.topic(topic, each=3, queues=1)
    s.broker.join(group, topic, how="fails", number=2)
    s.waits.append(lambda: len(s.client.held(f"%DLQ%{group}")) == 3)


def pops_and_acknowledges(s: Scene, group: str, topic: str) -> None:
    s.feed(s.topic(topic), 1)

    def step(client: Remote) -> None:
        for handle in _popped(client, group, topic, LONG_MS):
            client.ack(group, handle)

    s.steps.append(step)


def pops_in_vain(s: Scene, group: str, topic: str) -> None:
    """What it pops comes again, and nothing is ever acknowledged."""
    s.topic(topic, each=3, queues=1)
    s.steps.append(lambda client: _popped(client, group, topic, SHORT_MS))
    s.waits.append(lambda: _tries(s, retry_topic(group, topic)) >= MIN_TRIES)


def popped_and_gone(s: Scene, group: str, topic: str) -> None:
    s.topic(topic, each=5)
    handles: list[Handle] = []
    wait(lambda: bool(handles.extend(_popped(s.client, group, topic, LONG_MS)) or handles[19:]))
    for handle in handles[:4]:
        s.client.ack(group, handle)


def popped_in_order(s: Scene, group: str, topic: str) -> None:
    s.topic(topic, each=20, queues=1)
    s.client.pop(topic, group, 8, LONG_MS, queue_id=0, fifo=True, attempt="first")


def _tries(s: Scene, retries: str) -> int:
    """How often the message failed that failed most."""
    return max((message.reconsume_times for message in s.client.held(retries)), default=0)


def _popped(client: Remote, group: str, topic: str, invisible_ms: int) -> list[Handle]:
    found: list[Handle] = []
    while some := client.pop(topic, group, 32, invisible_ms):
        found += some
    return found


def _row(
    name: str,
    make: Callable[[Scene, str, str], object],
    live: str = "",
    disk: str = "",
    **more: object,
) -> Row:
    return Row(name, make, frozenset(live.split()), frozenset(disk.split()), **more)  # type: ignore[arg-type]


STANDS: Final = "STANDS_STILL"
TABLE: Final = (
    # Groups that work: no word.
    _row("fast", fast),
    _row("steady", steady),
    _row("throttled", throttled),
    _row("idle", idle),
    _row("restarted", restarted),
    _row("seldom", commits_seldom),
    _row("rotates", rotates, is_behind=True),
    _row("last", from_the_end),
    _row("itself", by_itself, one_look=frozenset({"NO_MEMBERS"}), is_behind=True),
    _row("notag", tag_of_nobody),
    _row("readonly", read_only),
    _row("gone", topic_gone),
    _row("unstarted", never_started),
    _row("failed", one_failure),
    _row("ordered", in_order),
    _row("pop", pops_and_acknowledges, one_look=frozenset({"NO_MEMBERS"}), is_pop=True),
    # Who pops may be there by a proxy, which alone knows of it.
    _row("popped", popped_and_gone, is_behind=True, is_pop=True),
    # Nobody is there.
    _row("away", away, "NO_MEMBERS", STANDS, is_waiting=True),
    _row("killed", killed, "NO_MEMBERS", STANDS),
    _row("setback", set_back, "NO_MEMBERS"),
    _row("fifo", popped_in_order, "NO_MEMBERS", is_pop=True),
    # Somebody is there, and nothing is done.
    _row("hangs", hangs_whole, STANDS, STANDS, is_waiting=True),
    _row("never", hangs_from_the_first, STANDS, STANDS, is_waiting=True),
    _row("suspended", suspended, STANDS, STANDS, is_waiting=True),
    _row("forbidden", without_right, STANDS, STANDS, is_waiting=True),
    _row("writeonly", write_only, STANDS, STANDS),
    _row("locked", lock_of_another, "PAUSED_BY_ORDER", STANDS, is_waiting=True),
    # Some of it is done.
    _row("stuck", hangs_in_one, "STUCK_QUEUE", "STUCK_QUEUE"),
    _row("slow", slow, "SLOW_CONSUMER", "SLOW_CONSUMER"),
    _row("hot", hot, "HOT_QUEUE SLOW_CONSUMER", "HOT_QUEUE SLOW_CONSUMER"),
    _row("newqueue", new_queue, "NEVER_COMMITTED", "NEVER_COMMITTED"),
    _row("twins", twins, "STUCK_QUEUE", "STUCK_QUEUE"),
    # Something is wrong with what is asked for, or with the messages.
    _row("minds", of_two_minds, "INCONSISTENT_SUBSCRIPTION"),
    _row("ahead", ahead, "AHEAD", "AHEAD"),
    _row("filtered", filtered, "FILTER_ONLY", "FILTER_ONLY", subscription="NoSuchTag"),
    _row("poison", fails, "POISON", "POISON"),
    _row("dead", gives_up, "DEAD_LETTERS", "DEAD_LETTERS"),
    _row("poploop", pops_in_vain, "POISON", "POISON", is_pop=True),
)
