"""A broker and a name server that speak TLS only and want every request signed.

4.9 has ACL 1.0 (plain_acl.yml), 5.x ACL 2.0 (users and policies). The users are ADMIN, and
READER, who may read one topic as TOOLS_CONSUMER. With ACL 2.0 there is WITHOUT_GET too, who
lacks one of the rights that reading needs.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from broker.harness import (
    BOOT_SECONDS,
    BROKER_NAME,
    LOGBACK,
    LOOPBACK,
    SETTINGS,
    SMALL_FILES,
    free_ports,
    write_properties,
)
from broker.jvm import OPEN_MODULES, SMALL, Jvm
from broker.toolchain import Toolchain
from live.sending import create_topic, send
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.credentials import Credentials
from mqstore.live.remoting.requests import Request
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.live.remoting.tls import Tls
from mqstore.options.secret import Secret

FILES = Path(__file__).parent / "tls"
TRUSTED = Tls(str(FILES / "ca.pem"))
TOPIC = "Guarded"
MESSAGES = 5
ADMIN = Credentials(Secret("mqlogadmin"), Secret("admin-secret-1"))
READER = Credentials(Secret("mqlogreader"), Secret("reader-secret-2"))
WITHOUT_GET = Credentials(Secret("mqlogwithoutget"), Secret("without-get-secret-4"))
STRANGER = Credentials(Secret("mqlogstranger"), Secret("stranger-secret-3"))

_ACL_1 = f"""globalWhiteRemoteAddresses: []
accounts:
- accessKey: {ADMIN.access_key.reveal()}
  secretKey: {ADMIN.secret_key.reveal()}
  admin: true
- accessKey: {READER.access_key.reveal()}
  secretKey: {READER.secret_key.reveal()}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - {TOPIC}=SUB
  groupPerms:
  - TOOLS_CONSUMER=SUB
"""
_PROVIDERS = "org.apache.rocketmq.auth"
ACL_2 = {
    "authenticationEnabled": "true",
    "authenticationProvider": (
        f"{_PROVIDERS}.authentication.provider.DefaultAuthenticationProvider"
    ),
    "authenticationMetadataProvider": (
        f"{_PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "initAuthenticationUser": json.dumps(
        {"username": ADMIN.access_key.reveal(), "password": ADMIN.secret_key.reveal()}
    ),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": ADMIN.access_key.reveal(), "secretKey": ADMIN.secret_key.reveal()}
    ),
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_PROVIDERS}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        f"{_PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A running cluster; TOPIC has MESSAGES messages."""

    version: str
    name_server: str


@contextmanager
def guarded(toolchain: Toolchain, version: str, folder: Path) -> Iterator[Guarded]:
    """Run it, with TOPIC filled and READER known."""
    servers = _Servers(toolchain, version, folder)
    with servers.name_server() as name_server, servers.broker(name_server):
        settings = ClusterSettings(
            name_servers=(name_server,), credentials=ADMIN, tls=TRUSTED, retry_timeout_ms=30_000
        )
        with Cluster(settings) as cluster:
            wait_for_broker(cluster)
            fill(cluster, version)
        yield Guarded(version, name_server)


class _Servers:
    def __init__(self, toolchain: Toolchain, version: str, folder: Path) -> None:
        self._toolchain = toolchain
        self._version = version
        self._folder = folder

    @contextmanager
    def name_server(self) -> Iterator[str]:
        port = free_ports(0)
        home = self._home("namesrv")
        conf = {"listenPort": str(port), "bindAddress": LOOPBACK}
        path = write_properties(home / "namesrv.conf", conf)
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        with self._java(home, "namesrv", main, path) as server:
            server.wait_for("boot success", BOOT_SECONDS)
            yield f"{LOOPBACK}:{port}"

    @contextmanager
    def broker(self, name_server: str) -> Iterator[None]:
        home = self._home("broker")
        (home / "conf" / "plain_acl.yml").write_text(_ACL_1)
        store = home / "store"
        conf = {
            **SETTINGS,
            **SMALL_FILES,
            **({"aclEnable": "true"} if self._version.startswith("4") else ACL_2),
            "namesrvAddr": name_server,
            "listenPort": str(free_ports(-2, 0, 1)),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
        }
        path = write_properties(home / "broker.conf", conf)
        main = "org.apache.rocketmq.broker.BrokerStartup"
        with self._java(home, "broker", main, path) as broker:
            broker.wait_for("boot success", BOOT_SECONDS)
            yield

    def _home(self, name: str) -> Path:
        home = self._folder / name
        (home / "conf").mkdir(parents=True)
        for server in ("broker", "namesrv", "tools"):
            (home / "conf" / f"logback_{server}.xml").write_text(LOGBACK)
        return home

    def _java(self, home: Path, name: str, main: str, conf: Path) -> Jvm:
        tls = write_properties(
            home / "tls.properties",
            {
                "tls.test.mode.enable": "false",
                "tls.server.need.client.auth": "none",
                "tls.server.keyPath": str(FILES / "server.key"),
                "tls.server.certPath": str(FILES / "server.pem"),
                "tls.client.authServer": "true",
                "tls.client.trustCertPath": str(FILES / "ca.pem"),
            },
        )
        command = [
            self._toolchain.java,
            "-Xms64m",
            "-Xmx512m",
            "-XX:MaxDirectMemorySize=256m",
            *SMALL,
            *OPEN_MODULES,
            f"-Duser.home={home}",
            "-Dtls.enable=true",
            "-Dtls.server.mode=enforcing",
            f"-Dtls.config.file={tls}",
            "-cp",
            self._toolchain.classpath(self._version),
            main,
            "-c",
            str(conf),
        ]
        return Jvm(command, home, name, talks=False)


def wait_for_broker(cluster: Cluster) -> None:
    deadline, pause = time.monotonic() + BOOT_SECONDS, threading.Event()
    # A name server shows a broker without addresses while it registers.
    while not cluster.brokers().get(BROKER_NAME):
        assert time.monotonic() < deadline, "the broker never registered"
        pause.wait(0.05)


def fill(cluster: Cluster, version: str) -> None:
    create_topic(cluster, BROKER_NAME, TOPIC)
    send(cluster, BROKER_NAME, (TOPIC, 0), [b"body %d" % number for number in range(MESSAGES)])
    if version.startswith("4"):
        return
    for who, rights in ((READER, ["Sub", "Get"]), (WITHOUT_GET, ["Sub"])):
        _allow(cluster, who, rights)


def _allow(cluster: Cluster, who: Credentials, rights: list[str]) -> None:
    """Make a user of ACL 2.0 with those rights on TOPIC, who may read as TOOLS_CONSUMER."""
    name = who.access_key.reveal()
    user = {"username": name, "password": who.secret_key.reveal(), "userType": "Normal"}
    _ask(cluster, "AUTH_CREATE_USER", 3001, {"username": name}, _json(user))
    entries = [
        {"resource": f"Topic:{TOPIC}", "actions": rights, "decision": "Allow"},
        {"resource": "Group:TOOLS_CONSUMER", "actions": ["Sub"], "decision": "Allow"},
    ]
    subject = f"User:{name}"
    acl = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
    _ask(cluster, "AUTH_CREATE_ACL", 3006, {"subject": subject}, _json(acl))


def _ask(cluster: Cluster, name: str, code: int, fields: dict[str, str], body: bytes = b"") -> None:
    cluster.ask(BROKER_NAME, Request(name, code, fields, body=body))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
