"""TLS on loopback: the chain and the name of a server, and our own certificate."""

import socket
import ssl
from contextlib import nullcontext
from pathlib import Path

import pytest

from live.conftest import PATIENT
from live.loopback import Play, json_answer, listening, read_request
from mqstore.errors import InvalidOptionError
from mqstore.live.remoting.cluster import Cluster
from mqstore.live.remoting.connection import Connection, NotUnderstoodError
from mqstore.live.remoting.errors import BrokerUnavailableError
from mqstore.live.remoting.requests import GET_BROKER_RUNTIME_INFO
from mqstore.live.remoting.settings import ClusterSettings
from mqstore.live.remoting.tls import Tls

FILES = Path(__file__).parent / "tls"
CA, STRANGER = str(FILES / "ca.pem"), str(FILES / "stranger.pem")
CLIENT = {"cert_file": str(FILES / "client.pem"), "key_file": str(FILES / "client.key")}


def serving(name: str, *, wants_certificate: bool = False) -> Play:
    """Speak TLS with the certificate of that name, and answer every request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FILES / f"{name}.pem", FILES / f"{name}.key")
    if wants_certificate:
        context.load_verify_locations(CA)
        context.verify_mode = ssl.CERT_REQUIRED

    def play(peer: socket.socket) -> None:
        with context.wrap_socket(peer, server_side=True) as secure:
            while (request := read_request(secure)) is not None:
                secure.sendall(json_answer(request["opaque"], 0, b"{}"))

    return play


def ask(address: str, tls: Tls | None) -> int:
    context = None if tls is None else tls.context()
    with Connection(address, PATIENT, tls=context) as connection:
        return connection.receive(connection.send(GET_BROKER_RUNTIME_INFO())).code


@pytest.mark.parametrize(
    ("server", "tls"),
    [
        ("server", Tls(CA)),
        ("server", Tls(CA, verify_host_name=False)),
        ("elsewhere", Tls(CA, verify_host_name=False)),
    ],
)
def test_a_trusted_server_is_asked(server: str, tls: Tls) -> None:
    with listening(serving(server)) as address:
        assert ask(address, tls) == 0


@pytest.mark.parametrize(
    ("server", "tls", "words"),
    [
        ("server", Tls(STRANGER), "not trusted"),
        ("server", Tls(STRANGER, verify_host_name=False), "not trusted"),
        ("server", Tls(), "not trusted"),
        ("elsewhere", Tls(CA), "tlsVerifyHostname"),
        ("server", None, "tls=true"),
    ],
)
def test_any_other_server_is_not_and_the_error_says_what_to_set(
    server: str, tls: Tls | None, words: str
) -> None:
    with listening(serving(server)) as address:
        with pytest.raises(NotUnderstoodError, match=words) as caught:
            ask(address, tls)
        assert address in str(caught.value)


def answers_plainly(peer: socket.socket) -> None:
    """Answer requests, and close at the begin of a handshake, as a broker without TLS does."""
    while (request := read_request(peer)) is not None:
        peer.sendall(json_answer(request["opaque"], 0, b"{}"))


def closes(peer: socket.socket) -> None:
    """End every connection at its first bytes, as a load balancer without its server does."""
    peer.recv(1_000)


def test_a_plain_server_is_told_from_one_of_tls() -> None:
    words = "speaks plainly: set tls=false"
    with listening(answers_plainly) as address, pytest.raises(NotUnderstoodError, match=words):
        ask(address, Tls(CA))


@pytest.mark.parametrize("tls", [None, Tls(CA)])
def test_who_closes_every_connection_is_not_taken_for_one_of_the_other_speech(
    tls: Tls | None,
) -> None:
    words = "in front of a server"
    with listening(closes) as address, pytest.raises(BrokerUnavailableError, match=words) as caught:
        ask(address, tls)
    assert not isinstance(caught.value, NotUnderstoodError)


class Permissive:
    """A server of tlsMode=permissive, which takes both; it closes some connections at once.

    ``closes`` has for each plain connection, or for each by TLS, whether it is closed.
    """

    def __init__(self, *, plain: list[bool], secure: list[bool]) -> None:
        self._closes = {False: plain, True: secure}
        self._secure = serving("server")

    def play(self, peer: socket.socket) -> None:
        """Answer, or close at the first bytes."""
        is_secure = peer.recv(1, socket.MSG_PEEK) == b"\x16"
        left = self._closes[is_secure]
        if left and left.pop(0):
            closes(peer)
        elif is_secure:
            self._secure(peer)
        else:
            answers_plainly(peer)


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("tls", [None, Tls(CA)])
def test_a_server_of_both_speeches_that_closes_some_connections_is_not_foreign(
    tls: Tls | None, before: int
) -> None:
    """As one that is cut, or being started; twice in the way of the probe."""
    cut = [True, *[True] * before, False]
    for first in (cut, [*cut[:-1], True, False]):
        server = Permissive(plain=list(first), secure=list(first))
        with listening(server.play) as address:
            with pytest.raises(BrokerUnavailableError, match="in front of a server") as caught:
                ask(address, tls)
            assert not isinstance(caught.value, NotUnderstoodError)


def test_a_server_that_understood_us_once_is_never_taken_for_a_foreign_one() -> None:
    server = Permissive(plain=[False, *[True] * 20], secure=[])
    understood: set[str] = set()
    with listening(server.play) as address:
        for is_cut in (False, True):
            with Connection(address, PATIENT, understood=understood) as connection:
                expected = pytest.raises(BrokerUnavailableError) if is_cut else nullcontext()
                with expected as caught:
                    connection.receive(connection.send(GET_BROKER_RUNTIME_INFO()))
                assert caught is None or type(caught.value) is BrokerUnavailableError
    assert understood == {address}


def test_a_task_takes_no_server_for_a_foreign_one_that_the_driver_has_reached() -> None:
    settings = ClusterSettings(name_servers=("127.0.0.1:1",), limits=PATIENT)
    with listening(serving("server")) as address:
        for was_reached, kind in ((True, BrokerUnavailableError), (False, NotUnderstoodError)):
            with Cluster(settings, was_reached=was_reached) as cluster:
                connection = cluster.connection(address)
                with pytest.raises(BrokerUnavailableError) as caught:
                    connection.receive(connection.send(GET_BROKER_RUNTIME_INFO()))
                assert type(caught.value) is kind


def test_our_certificate_is_shown_where_it_is_wanted() -> None:
    with listening(serving("server", wants_certificate=True)) as address:
        assert ask(address, Tls(CA, **CLIENT)) == 0
        with pytest.raises(NotUnderstoodError, match="tlsCertFile"):
            ask(address, Tls(CA))


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="tlsCertFile"):
        Tls(CA, cert_file=CLIENT["cert_file"]).context()
    with pytest.raises(InvalidOptionError, match="tlsCaFile"):
        Tls(CLIENT["key_file"]).context()
