"""The modelled broker against the real ones: both say the same of what a crash left.

Only of states that a broker can be let loose on: it is killed afterwards, its copy thrown away.
"""

import hashlib
import random
from collections import Counter
from pathlib import Path

import pytest

from crash import play
from crash.broker_model import serves
from crash.rocketmq_jvm.store_jvm import RefusedError, Sizes, StoreJvm
from crash.scenarios import BY_NAME, work
from support import soak

pytestmark = [pytest.mark.broker, pytest.mark.soak]
STATES = soak.size("modelled_states", check=0, test=3, whole=100)
SCENARIOS = ("everything", "many-files", "new-topic", "interlock")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_model_serves_what_the_broker_serves(
    jvm: StoreJvm, tmp_path: Path, scenario: str
) -> None:
    recording = play.record(work(BY_NAME[scenario], 0), tmp_path / "run")
    layout = recording.work.shape.layout
    sizes = Sizes(
        commit_log=layout.commit_log_bytes,
        consume_queue=layout.queue_units * 20,
        index_slots=layout.index_slots,
        index_units=layout.index_units,
    )
    rng = random.Random(0)
    states = list(recording.disk.states(rng, samples=2))
    for number, state in enumerate(rng.sample(states, STATES)):
        base = tmp_path / f"{number}"
        base.mkdir()
        state.write(base)
        modelled = serves(base / play.STORE, jvm.version)
        assert served(jvm, base / play.STORE, sizes) == digests(modelled), play.step(state)


def served(jvm: StoreJvm, root: Path, sizes: Sizes) -> Counter[str] | None:
    """Return digests of the bodies that consumers of a real broker get; None: it does not start."""
    try:
        with jvm.serving(root, sizes) as broker:
            queues = broker.queues().values()
            return Counter(m.body_sha1 for queue in queues for m in queue.messages if m)
    except RefusedError:
        return None


def digests(bodies: Counter[bytes] | None) -> Counter[str] | None:
    if bodies is None:
        return None
    return Counter(hashlib.sha1(body).hexdigest() for body in bodies.elements())
