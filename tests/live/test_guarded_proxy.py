"""A real proxy with ACL 2.0, before a broker with it: who may read reads, others are told why."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from broker import proxies
from broker.harness import Cluster as Servers
from broker.toolchain import Toolchain
from live.real import READING, full_rows, slices
from live.secure import (
    ACL_2,
    ADMIN,
    MESSAGES,
    READER,
    STRANGER,
    TOPIC,
    WITHOUT_GET,
    fill,
    wait_for_broker,
)
from mqstore.check.cluster import examine_cluster
from mqstore.live.origin.bounds import bounds
from mqstore.live.origin.pull import PullReader
from mqstore.live.origin.records import PullSettings, read
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.credentials import Credentials
from mqstore.live.remoting.errors import AccessDeniedError
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.options.secret import Secret
from support import soak

pytestmark = [pytest.mark.broker, pytest.mark.soak, soak.only_whole]

_OF_PROXIES = "org.apache.rocketmq.proxy.auth.Proxy"
SETTINGS = {
    **ACL_2,
    "authenticationEnabled": True,
    "authenticationMetadataProvider": f"{_OF_PROXIES}AuthenticationMetadataProvider",
    "authorizationEnabled": True,
    "authorizationMetadataProvider": f"{_OF_PROXIES}AuthorizationMetadataProvider",
    "enableAclRpcHookForClusterMode": True,
}
TOOLS = f"accessKey: {ADMIN.access_key.reveal()}\nsecretKey: {ADMIN.secret_key.reveal()}\n"
WRONG = Credentials(READER.access_key, Secret("reader-secret-wrong"))


def settings_of(address: str, who: Credentials | None) -> ClusterSettings:
    return ClusterSettings(
        name_servers=(address,), credentials=who, limits=READING, retry_timeout_ms=30_000
    )


@pytest.fixture(scope="module")
def guarded(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a proxy before a broker on which TOPIC has MESSAGES messages."""
    folder = tmp_path_factory.mktemp("guarded-proxy-")
    root, version = folder / "store", proxies.PROXY_VERSION
    root.mkdir()
    with ExitStack() as stack:
        servers = stack.enter_context(Servers(toolchain, version, folder))
        stack.enter_context(servers.booted(root, ACL_2))
        with Cluster(settings_of(servers.name_server, ADMIN)) as client:
            wait_for_broker(client)
            fill(client, version)
        running = proxies.running(
            toolchain, servers.name_server, folder, more=SETTINGS, tools=TOOLS
        )
        yield stack.enter_context(running).address


@pytest.mark.parametrize(
    "who", [READER, ADMIN, WITHOUT_GET], ids=["reader", "admin", "without Get"]
)
def test_who_may_read_reads_through_a_proxy(guarded: str, who: Credentials) -> None:
    with Cluster(settings_of(guarded, who)) as client:
        queues = bounds(client, [client.known_route(TOPIC)])
        parts = read(PullReader(client, slices(queues)), PullSettings())
        found = [row["body"] for part in parts for row in full_rows([part])]
    assert found == [b"body %d" % number for number in range(MESSAGES)]


@pytest.mark.parametrize(
    ("who", "words"),
    [
        (None, "username cannot be null"),
        (STRANGER, "is not found"),
        (WRONG, "check signature failed"),
    ],
    ids=["nobody", "stranger", "wrong secret"],
)
def test_nobody_else_does_and_the_doctor_says_so_too(
    guarded: str, who: Credentials | None, words: str
) -> None:
    with Cluster(settings_of(guarded, who)) as client:
        with pytest.raises(AccessDeniedError, match=words) as caught:
            client.known_route(TOPIC)
        assert "secret-" not in str(caught.value)
    last = list(examine_cluster(settings_of(guarded, who)))[-1]
    assert (last.severity, last.subject) == ("error", "Credentials")


def test_a_topic_without_rights_is_denied_and_the_credentials_are_good(guarded: str) -> None:
    words = "no permission to access Topic:BenchmarkTest"
    with (
        Cluster(settings_of(guarded, READER)) as client,
        pytest.raises(AccessDeniedError, match=words),
    ):
        client.known_route("BenchmarkTest")
    last = list(examine_cluster(settings_of(guarded, READER)))[-1]
    assert (last.severity, last.subject) == ("warning", "Credentials")
    assert last.found.startswith("accepted")
