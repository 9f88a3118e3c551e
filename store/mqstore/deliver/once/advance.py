"""Whether brokers that do not show what they stored are making their ConsumeQueues, or stand still.

A broker that was killed takes messages while it makes the units of those before them. What it
stored is visible when its dispatch has come to where the log ended then.

Reference: DefaultMessageStore.ReputMessageService, #dispatchBehindBytes.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress

from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.errors import RequestRefusedError
from mqstore.live.remoting.topics import BrokerInfo, broker_infos


class Advance:
    """Compares how far the dispatch of brokers is at each look. Raises as Cluster#ask_all.

    A broker that does not tell it, or not to this user, does not go on.
    """

    def __init__(self, cluster: Cluster, brokers: Iterable[str]) -> None:
        """Take the first look."""
        self._cluster = cluster
        infos = self._look(brokers)
        self._goals = {broker: info.high for broker, info in infos.items()}
        self._reached = {broker: info.dispatched for broker, info in infos.items()}

    def goes_on(self, brokers: Collection[str]) -> bool:
        """Tell whether all these brokers were behind at the last look, and are further now."""
        before = self._reached
        self._reached = {name: info.dispatched for name, info in self._look(brokers).items()}
        return all(
            name in self._reached
            and before.get(name, 0) < min(self._reached[name], self._goals.get(name, 0))
            for name in brokers
        )

    def _look(self, brokers: Iterable[str]) -> dict[str, BrokerInfo]:
        with suppress(RequestRefusedError):
            return {info.broker: info for info in broker_infos(self._cluster, sorted(brokers))}
        return {}
