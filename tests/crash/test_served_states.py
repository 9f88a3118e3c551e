"""T5: crash states of commits, before the store classes of real brokers of three versions.

A broker starts on the state as it is: it serves none of the commit or all of it. It may take
messages, be killed and start again; then our recovery, and a broker once more: every message is
there, once. The size served_states says how many states of each version; one that fails is named,
and MQLOG_AGAIN=<its name> judges that one again.
"""

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.harness import Cluster
from broker.toolchain import VERSIONS as BROKER_VERSIONS
from broker.toolchain import Toolchain
from crash.disk import State
from crash.mutations import STEPS
from crash.rocketmq_jvm import hand
from crash.rocketmq_jvm.broker_trial import (
    BROKERS,
    STORE,
    Case,
    Tally,
    Told,
    Trial,
    is_decided,
    record,
)
from crash.rocketmq_jvm.store_jvm import StoreJvm
from crash.scenarios import SCENARIOS
from mqstore.write.recover import RecoverSettings, recover
from support import soak

pytestmark = [pytest.mark.broker, pytest.mark.soak]
STATES = soak.size("served_states", check=0, test=12, whole=2_000)
BOOTED = soak.size("booted_states", check=0, test=0, whole=20)
BOOTED_KINDS = ["queue-files", "new-topic", "same-file", "segments"]
STATES_OF_A_SEED = 20
MOST_FAILURES = 5
# A broker makes a store of a directory that has none: there is nothing to compare it with.
LOCKED = ["interlock"]
PLAIN = [BROKERS, *(s.name for s in SCENARIOS if s.name not in {"new-store", *LOCKED})]


Name = tuple[str, int, int]
"""Scenario, seed and number of a state."""


def names(kinds: list[str], count: int) -> Iterator[Name]:
    """Every scenario in turn, a new seed every so often."""
    for number in range(count):
        kind = kinds[number % len(kinds)]
        yield kind, number // (len(kinds) * STATES_OF_A_SEED), number


def judged(
    jvm: StoreJvm, base: Path, stopped: Path, wanted: Iterator[tuple[str, int, int]]
) -> Tally:
    tally, cases, failures = Tally(), dict[tuple[str, int], Case](), list[str]()
    for kind, seed, number in wanted:
        if (kind, seed) not in cases:
            cases = {known: case for known, case in cases.items() if known[1] == seed}
            cases[kind, seed] = record(kind, seed, base / "recording", stopped)
        case = cases[kind, seed]
        name = f"{jvm.version}:{kind}:{seed}:{number}"
        state = case.choose(random.Random(name))
        try:
            Trial(jvm, case, name, base / re.sub(r"\W", "-", name)).run(state, tally)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            failures.append(f"MQLOG_AGAIN={name} {type(error).__name__}: {error}")
        if len(failures) >= MOST_FAILURES:
            break
    assert not failures, "\n".join([f"in {base}", *failures])
    return tally


def test_a_broker_sees_all_of_a_commit_or_none_and_nothing_is_lost_or_doubled(
    jvm: StoreJvm, stopped: Path, tmp_path: Path
) -> None:
    tally = judged(jvm, tmp_path, stopped, names(PLAIN, STATES))
    soak.tell(f"{jvm.version}: {tally}")
    assert tally.states == STATES
    assert not tally.refused


def test_with_the_interlock_no_broker_starts_and_none_sees_a_part(
    jvm: StoreJvm, stopped: Path, tmp_path: Path
) -> None:
    tally = judged(jvm, tmp_path, stopped, names(LOCKED, -(-STATES // 3)))
    soak.tell(f"{jvm.version}, interlock: {tally}")
    assert not tally.partial
    assert tally.refused


def test_a_commit_that_hides_nothing_is_noticed(
    jvm: StoreJvm, stopped: Path, tmp_path: Path
) -> None:
    """What the judge is worth: brokers see a part of such a commit if power is cut in time."""
    with STEPS["the byte that hides the batch"]():
        case = record("next-file", 0, tmp_path / "recording", stopped)
    torn = next(filter(partly_there(case), torn_states(case)))
    trial = Trial(jvm, case, "unguarded", tmp_path / "torn")
    with pytest.raises(AssertionError, match="are served"):
        trial.run(torn, Tally())


def torn_states(case: Case) -> Iterator[State]:
    rng = random.Random(1)
    for prefix in range(case.publish, case.decide, -1):
        yield from case.disk.cut(prefix, rng, 10)


def partly_there(case: Case) -> Callable[[State], bool]:
    """Whether a scan of the log finds some of the batch, and not all."""

    def partly(state: State) -> bool:
        files = sorted(path for path in state.tree if path.startswith(f"{STORE}/commitlog/"))
        found = hand.scan(state.tree[path] or b"" for path in files)
        ours = sum(m.physical_offset >= case.tail for m in found)
        return 0 < ours < case.batch.total()

    return partly


@soak.again
def test_the_state_that_was_named(jvm: StoreJvm, stopped: Path, tmp_path: Path) -> None:
    version, kind, seed, number = soak.AGAIN.split(":")
    if version == jvm.version:
        judged(jvm, tmp_path, stopped, iter([(kind, int(seed), int(number))]))


# --- whole brokers, and their clients ---------------------------------------------------------


@soak.only
@pytest.mark.parametrize("version", BROKER_VERSIONS)
def test_whole_brokers_see_all_of_a_commit_or_none(
    toolchain: Toolchain, version: str, tmp_path: Path
) -> None:
    """The store classes are not all of a broker: some states go to a whole one, and its client."""
    with Cluster(toolchain, version, tmp_path / "cluster") as cluster:
        for number in range(BOOTED):
            kind = BOOTED_KINDS[number % len(BOOTED_KINDS)]
            case = record(kind, number, tmp_path / "recording", tmp_path)
            base = tmp_path / f"{kind}-{number}"
            base.mkdir()
            case.choose(random.Random(number)).write(base)
            root = base / STORE
            decided = is_decided(root, case.work)
            served = consumed(cluster, root, case)
            assert served in (case.before, case.before + case.batch), f"{kind}:{number}"
            assert decided or served == case.before, f"{kind}:{number}"
            recover(root, RecoverSettings(recover_unclean=True))
            wanted = case.before + (case.batch if decided else Told())
            assert consumed(cluster, root, case) == wanted, f"{kind}:{number}"
    soak.tell(f"{version}: {BOOTED} states, {2 * BOOTED} starts of whole brokers")


def consumed(cluster: Cluster, root: Path, case: Case) -> Told:
    """Boot a broker on the store, pull all that is not its own with the client, and kill it."""
    sizes = {
        "mappedFileSizeCommitLog": case.sizes.commit_log,
        "mappedFileSizeConsumeQueue": case.sizes.consume_queue,
        "maxHashSlotNum": case.sizes.index_slots,
        "maxIndexNum": case.sizes.index_units,
    }
    with cluster.broker(root, {name: str(size) for name, size in sizes.items()}) as broker:
        dumped = broker.dump()
    topics = {topic for topic, *_ in case.before + case.batch}
    assert not dumped.problems
    return Told(
        (row["topic"], row["queueId"], row["properties"].get("KEYS"), row["bodySha1"])
        for row in dumped.rows
        if row["topic"] in topics
    )
